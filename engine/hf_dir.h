/* hf_dir.h: a model in a Hugging Face directory: config.json, generation_config.json and weights.
 */
#ifndef TOKEND_HF_DIR_H
#define TOKEND_HF_DIR_H

#include "generation_defaults.h"
#include "model_spec.h"
#include "weights.h"

struct hf_dir;
struct hf_shards;

/* Fails where it is no such directory. */
struct hf_dir *hf_dir_open(const char *dir, struct err *e);
void hf_dir_close(struct hf_dir *); /* NULL is fine */

/* NULL and *e: not a model that we compute, and why. */
const struct model_spec *hf_dir_spec(const struct hf_dir *, struct err *e);
const struct weights *hf_dir_weights(const struct hf_dir *, struct err *e);
uint64_t hf_dir_identity(const struct hf_dir *);
const struct generation_defaults *hf_dir_defaults(const struct hf_dir *);
/* NULL: they could not be opened. */
const struct hf_shards *hf_dir_shards(const struct hf_dir *);
/* Of the model card (README.md). */
void hf_dir_licence(const struct hf_dir *, char out[160]);

#endif
