/* hf_shards.h: the safetensors files of a Hugging Face directory, as one set of tensors:
 * model.safetensors, or the files that model.safetensors.index.json names. */
#ifndef TOKEND_HF_SHARDS_H
#define TOKEND_HF_SHARDS_H

#include "safetensors.h"

struct hf_shards;

/* Opens headers only. Says what is wrong with a directory that has none: weights of another
 * format, an adapter, a download that is not complete. */
struct hf_shards *hf_shards_open(const char *dir, struct err *e);
/* One file in memory, which must outlive it (tests, fuzzers). */
struct hf_shards *hf_shards_open_memory(const void *bytes, size_t n, struct err *e);
void hf_shards_close(struct hf_shards *); /* NULL is fine */

/* Of all files together: others, or these after a change, have another. */
uint64_t hf_shards_identity(const struct hf_shards *);
size_t hf_shards_n_files(const struct hf_shards *);
size_t hf_shards_n(const struct hf_shards *);
const struct st_tensor *hf_shards_at(const struct hf_shards *, size_t i); /* by name */
const struct st_tensor *hf_shards_find(const struct hf_shards *, const char *name);
/* The index of a tensor that hf_shards_find gave. */
size_t hf_shards_index(const struct hf_shards *, const struct st_tensor *);

#endif
