/* loaded_model.h: what `serve` opens of a model file: its engine, tokenizer and template. */
#ifndef TOKEND_LOADED_MODEL_H
#define TOKEND_LOADED_MODEL_H

#include "engine.h"
#include "settings.h"
#include "template.h"
#include "tokenizer.h"

struct loaded_model {
    struct engine *engine;
    struct tokenizer *tokenizer;    /* NULL: of a kind that we do not know; token ids only */
    struct template *template;      /* NULL: the model has none that we can run */
    struct template *tool_template; /* of requests with tools; NULL: the same */
    struct chat_templates texts;    /* of the special tokens */
    struct generation_defaults defaults;
};

/* Opens all of it by the settings; what is missing but not needed is logged as a warning. May
 * run on any thread, and takes as long as reading the file does. `wake` as in engine_open. */
bool loaded_model_open(struct loaded_model *, const struct settings *, void (*wake)(void *arg),
                       void *arg, struct err *e);
/* Logs the model, the memory budget and what fits in it. */
void loaded_model_log(const struct loaded_model *);
/* The engine must have been closed (loaded_model.engine = NULL) before. */
void loaded_model_free(struct loaded_model *);

/* Fills the types of *c by the settings of these names; false and *e: they exclude each other. */
bool engine_config_types(struct engine_config *c, const char *kv_cache_dtype, const char *dtype,
                         const char *quantization, const char *activation_bits, struct err *e);

/* The type that a choice of --kv-cache-dtype means; F16 of "auto". */
enum dtype kv_cache_type(const char *);

/* Sets what opens the device, by the setting of this name; auto is the CPU, and a log line, if `tell`,
 * says whether there is a GPU. False and *e: --device cuda, and no GPU can be used. */
bool engine_config_device(struct engine_config *c, const char *device, bool tell, struct err *e);

/* "98.4 MiB", in buf. */
const char *format_bytes(uint64_t bytes, char buf[32]);

#endif
