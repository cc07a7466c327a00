/* str.h: strings that know who wrote each byte.
 *
 * A byte is the template's (its literal text, its string constants, trusted variables) or
 * data. Most strings are wholly one or the other; the rest carry a byte map beside the text.
 * Whoever makes a string from others copies their bytes together with their origin; whoever
 * invents bytes makes data. Immutable once made; all memory is the arena's. */
#ifndef TOKEND_STR_H
#define TOKEND_STR_H

#include "arena.h"

#include <stdint.h>

struct str {
    const char *s;         /* n bytes of UTF-8, not terminated */
    const uint8_t *origin; /* [n], 1 = the template's; NULL: `tmpl` holds for all bytes */
    size_t n;
    struct str_builder *grow; /* where an append may continue in place, or NULL */
    bool tmpl;
    bool markup; /* jinja2's Markup: already escaped for HTML */
};

/* Collects a string. Start with str_begin; when memory runs out it turns `failed` and
 * ignores the rest. */
struct str_builder {
    struct arena *arena;
    char *s;
    uint8_t *origin; /* NULL while all bytes are `tmpl` */
    size_t n, cap, origin_cap;
    bool tmpl, failed;
};

void str_begin(struct str_builder *, struct arena *);
void str_put(struct str_builder *, const char *bytes, size_t n, bool tmpl);
void str_put_data(struct str_builder *, const char *text); /* terminated */
/* Bytes [from, from + n) of a string, with their origin. */
void str_put_part(struct str_builder *, const struct str *, size_t from, size_t n);
void str_put_str(struct str_builder *, const struct str *);
/* The collected string (the builder must not be used any more), or NULL if it failed. */
struct str *str_end(struct str_builder *);

/* NULL: out of memory. `bytes` is not copied and must outlive the arena. */
struct str *str_of(struct arena *, const char *bytes, size_t n, bool tmpl);
struct str *str_data(struct arena *, const char *bytes, size_t n); /* copies; data */
/* Bytes [from, from + n); shares the text. */
struct str *str_part(struct arena *, const struct str *, size_t from, size_t n);
/* a + b. Appending again and again to a long string costs only what is appended. */
struct str *str_concat(struct arena *, const struct str *a, const struct str *b);

bool str_eq(const struct str *a, const struct str *b);
bool str_is(const struct str *a, const char *text);
int str_cmp(const struct str *a, const struct str *b); /* by code points */
/* Whether byte i was written by the template. */
bool str_tmpl_at(const struct str *s, size_t i);
/* Byte offset of the first `needle` at or after `from`, or SIZE_MAX. Linear time. */
size_t str_find(const struct str *s, size_t from, const char *needle, size_t n);
/* Last `needle` that ends at or before `end`. */
size_t str_rfind(const struct str *s, size_t end, const char *needle, size_t n);

#endif
