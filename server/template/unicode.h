/* unicode.h: UTF-8 and the character properties that Python's string methods use.
 *
 * Strings handed to these functions are valid UTF-8 (templates and JSON are checked on the
 * way in). Tables are generated; thread-free. */
#ifndef TOKEND_UNICODE_H
#define TOKEND_UNICODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct unicode_run { /* code points first, first + stride, … last */
    uint32_t first, last;
    uint8_t stride;
};
struct unicode_map { /* the same, each mapped to itself + delta */
    uint32_t first, last;
    uint8_t stride;
    int32_t delta;
};
struct unicode_special { /* a code point that becomes several; 0 ends */
    uint32_t from, to[3];
};

/* Decodes the character at p[n] (n > 0) and returns its bytes, 1 to 4. */
size_t unicode_decode(const char *p, size_t n, uint32_t *cp);
/* Writes cp and returns its bytes, 1 to 4. */
size_t unicode_encode(uint32_t cp, char out[4]);
/* Byte offset of character i (i <= count). */
size_t unicode_offset(const char *p, size_t n, size_t i);
/* Start of the character that ends before byte `end` (end > 0). */
size_t unicode_before(const char *p, size_t end);

bool unicode_is_space(uint32_t cp);
bool unicode_is_linebreak(uint32_t cp);
bool unicode_is_printable(uint32_t cp);
bool unicode_is_alpha(uint32_t cp);
bool unicode_is_numeric(uint32_t cp);
bool unicode_is_digit(uint32_t cp);
bool unicode_is_decimal(uint32_t cp);
bool unicode_is_lower(uint32_t cp);
bool unicode_is_upper(uint32_t cp);
bool unicode_is_titlecase(uint32_t cp);
bool unicode_is_case_ignorable(uint32_t cp);
bool unicode_is_alnum(uint32_t cp);

enum unicode_case { UNICODE_UPPER, UNICODE_LOWER, UNICODE_TITLE };
/* Maps one character to 1 to 3 and returns how many. */
int unicode_map_case(uint32_t cp, enum unicode_case, uint32_t out[3]);

#define UNICODE_TABLE(name)                                                                        \
    extern const struct unicode_run name[];                                                        \
    extern const size_t name##_n
UNICODE_TABLE(unicode_unprintable);
UNICODE_TABLE(unicode_alpha);
UNICODE_TABLE(unicode_numeric);
UNICODE_TABLE(unicode_digit);
UNICODE_TABLE(unicode_decimal);
UNICODE_TABLE(unicode_lower);
UNICODE_TABLE(unicode_upper);
UNICODE_TABLE(unicode_titlecase);
UNICODE_TABLE(unicode_case_ignorable);
#undef UNICODE_TABLE
#define UNICODE_MAP(name)                                                                          \
    extern const struct unicode_map name[];                                                        \
    extern const size_t name##_n;                                                                  \
    extern const struct unicode_special name##_special[];                                          \
    extern const size_t name##_special_n
UNICODE_MAP(unicode_to_upper);
UNICODE_MAP(unicode_to_lower);
UNICODE_MAP(unicode_to_title);
#undef UNICODE_MAP

#endif
