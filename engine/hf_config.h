/* hf_config.h: a JSON file of a Hugging Face directory (config.json, generation_config.json ...),
 * and its values, checked. A message names the file and the key, what it is and what it should
 * be. null counts as absent, but for hf_is_null. */
#ifndef TOKEND_HF_CONFIG_H
#define TOKEND_HF_CONFIG_H

#include <jansson.h>
#include <stdint.h>

#include "err.h"
#include "file_map.h"

/* Reads a JSON object from a file of at most max_bytes. NULL and *e; ERR_NOT_FOUND: no such file.
 */
json_t *json_file_read(const char *path, size_t max_bytes, struct err *e);

struct hf_config {
    struct file_shown path; /* for messages */
    const json_t *top;
    const json_t *model; /* top, or the text_config in it */
    struct err *e;       /* where the getters put what was wrong */
};

/* Nothing printed of a hostile file but printable ASCII, and not much of it. */
struct hf_shown {
    char text[84];
};
struct hf_shown hf_show(const char *);
struct hf_shown hf_show_value(const json_t *);

/* As err_set, with the file's path before the message. */
bool hf_err(const struct hf_config *, enum err_code code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* The value of a key of `in`, or NULL: absent or null. */
const json_t *hf_get(const json_t *in, const char *key);
bool hf_is_null(const json_t *in, const char *key);

/* Each is false, and *c->e set, for a value of the wrong kind; an absent one gives the default.
 * Numbers lie within [min, max]. */
bool hf_int(const struct hf_config *c, const json_t *in, const char *key, int64_t min, int64_t max,
            int64_t dflt, int *out);
bool hf_num(const struct hf_config *c, const json_t *in, const char *key, double min, double max,
            double dflt, double *out);
bool hf_bool(const struct hf_config *c, const json_t *in, const char *key, bool dflt, bool *out);
bool hf_text(const struct hf_config *c, const json_t *in, const char *key, const char *dflt,
             const char **out);
/* A list of exactly n numbers within [min, max]. */
bool hf_numbers(const struct hf_config *c, const json_t *in, const char *key, int n, double min,
                double max, float *out);

#endif
