/* model_path.h: where the model lies that a user names: a file, a directory, or a name of the
 * Hugging Face hub ("org/name") that a cache on this machine holds. */
#ifndef TOKEND_MODEL_PATH_H
#define TOKEND_MODEL_PATH_H

#include "err.h"

/* The path, for free(); NULL and what is wanted. Looks for a hub name in HF_HUB_CACHE,
 * HF_HOME/hub, XDG_CACHE_HOME/huggingface/hub or ~/.cache/huggingface/hub. */
char *model_path_find(const char *model, struct err *e);

#endif
