/* model_path.h: where the model lies that a user names: a file, a directory, or a name of the
 * Hugging Face hub ("org/name") that a cache on this machine holds. */
#ifndef TOKEND_MODEL_PATH_H
#define TOKEND_MODEL_PATH_H

#include "err.h"

/* Whether it has the form of a hub name: "org/name" of letters, digits, '.', '-' and '_', not that
 * of a GGUF file. */
bool model_path_is_hub_name(const char *);

/* The path, for free(); NULL and what is wanted. Looks for a hub name in HF_HUB_CACHE,
 * HF_HOME/hub, XDG_CACHE_HOME/huggingface/hub or ~/.cache/huggingface/hub. */
char *model_path_find(const char *model, struct err *e);

#endif
