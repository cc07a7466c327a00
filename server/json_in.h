/* json_in.h: JSON that a client sent.
 *
 * jansson parses and frees by recursion and allocates per value, so a body is looked at
 * before it sees it: valid UTF-8 (the byte offset is named), nesting and the number of values
 * within limits. A number that no type holds is refused naming its field. "\u0000" is kept:
 * use json_string_length. Of a repeated key the last one counts. Any thread. */
#ifndef TOKEND_JSON_IN_H
#define TOKEND_JSON_IN_H

#include "api_error.h"

enum {
    JSON_IN_MAX_DEPTH = 128,
    JSON_IN_MAX_CONTAINERS = 1 << 18, /* arrays and objects: about 200 bytes each in memory */
    JSON_IN_MAX_VALUES = 1 << 22,     /* about 40 bytes each */
};

/* NULL and *e (400, invalid_json or the field) on failure. */
json_t *json_in_read(const char *text, size_t n, struct api_error *e);
/* The same, of a body that must be an object. */
json_t *json_in_read_object(const char *text, size_t n, struct api_error *e);
/* The same, of a file: its name stands in the messages where "the body" would. */
json_t *json_in_read_file(const char *text, size_t n, const char *path, struct api_error *e);

/* The field's value; NULL when absent or null. */
json_t *field(const json_t *object, const char *name);
/* Typed fields: an absent one leaves *out; a wrong one is a 400 that names it, and what would
 * be right. Integers also take 5.0. */
bool field_bool(const json_t *object, const char *name, bool *out, struct api_error *e);
bool field_int(const json_t *object, const char *name, int64_t min, int64_t max, int64_t *out,
               struct api_error *e);
bool field_number(const json_t *object, const char *name, double min, double max, double *out,
                  struct api_error *e);
/* The value is borrowed from the object. */
bool field_string(const json_t *object, const char *name, const char **out, struct api_error *e);

/* An integer value, of field or element `name`. */
bool json_in_int(const json_t *value, const char *name, int64_t min, int64_t max, int64_t *out,
                 struct api_error *e);
/* "an array", "a string", … for messages. */
const char *json_in_kind(const json_t *value);

#endif
