/* model_file.h: a model by path: what it is, its weights, and what lies beside them.
 *
 * A GGUF file (or the first of a split set), a Hugging Face directory, or a name of the hub that
 * this machine's cache holds. Opening reads headers only (the rest is mapped), and fails where
 * there is nothing to open. A model that we cannot compute opens, too, for `inspect`: its spec or
 * its weights then say why not. Thread-free after opening. */
#ifndef TOKEND_MODEL_FILE_H
#define TOKEND_MODEL_FILE_H

#include "chat_templates.h"
#include "generation_defaults.h"
#include "model_spec.h"
#include "tokenizer.h"
#include "weights.h"

struct model_file;

struct model_file *model_file_open(const char *path, struct err *e);
/* A GGUF file in memory, which must outlive it (tests, fuzzers). */
struct model_file *model_file_open_memory(const void *bytes, size_t n, struct err *e);
void model_file_close(struct model_file *); /* NULL is fine */

/* Where it lies: what was named, or a directory of the hub's cache. NULL: in memory. */
const char *model_file_path(const struct model_file *);
/* The GGUF file, or NULL: it is none. */
const struct gguf *model_file_gguf(const struct model_file *);

/* Of its weights' files: others, or these after a change, have another. */
uint64_t model_file_identity(const struct model_file *);

/* NULL and *e: not a model that we compute, and why. */
const struct model_spec *model_file_spec(const struct model_file *, struct err *e);
const struct weights *model_file_weights(const struct model_file *, struct err *e);

/* "GGUF file", "Hugging Face directory" */
const char *model_file_kind(const struct model_file *);
/* Calls f for every tensor of the files, read or not: the file's word for its type, its bytes. */
void model_file_each_tensor(const struct model_file *,
                            void (*f)(void *arg, const char *type, uint64_t bytes), void *arg);
/* What the files say about the licence, cut to the buffer: "apache-2.0"; "": nothing. */
void model_file_licence(const struct model_file *, char out[160]);

/* generation_config.json's */
const struct generation_defaults *model_file_defaults(const struct model_file *);
const struct chat_templates *model_file_templates(const struct model_file *);
/* A new one, which the caller frees. */
struct tokenizer *model_file_tokenizer(const struct model_file *, struct err *e);

#endif
