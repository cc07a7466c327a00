/* text_ops.h: what string filters and string methods have in common. Every result keeps the
 * origin of the bytes it took; NULL or false: failed, the error is set. */
#ifndef TOKEND_TEXT_OPS_H
#define TOKEND_TEXT_OPS_H

#include "runtime.h"

enum letter_case {
    CASE_UPPER,
    CASE_LOWER,
    CASE_TITLE,
    CASE_CAPITALIZE,
    CASE_SWAP,
    CASE_WORDS,
    CASE_FOLD,
};
/* CASE_FOLD is str.casefold() for all but rare letters; CASE_TITLE is str.title(), CASE_WORDS the
 * filter title. */
const struct str *string_case(struct rt *, const struct str *, enum letter_case);
/* chars: what to strip, or NULL for white space. */
const struct str *string_strip(struct rt *, const struct str *, const struct str *chars, bool left,
                               bool right);
/* count < 0: all. */
bool string_replace(struct rt *, const struct str *, const struct str *old, const struct str *with,
                    int64_t count, struct value *out);
/* sep NULL: at white space. limit < 0: no limit. */
bool string_split(struct rt *, const struct str *, const struct str *sep, int64_t limit,
                  bool from_right, struct list *out);
bool string_splitlines(struct rt *, const struct str *, bool keep_ends, struct list *out);
/* Joins str(item)s; strict: items must be strings. */
bool string_join(struct rt *, const struct str *sep, struct value items, bool strict,
                 struct value *out);
bool push_part(struct rt *, struct list *, const struct str *, size_t from, size_t end);
const struct str *string_part(struct rt *, const struct str *, size_t from, size_t end);
/* The bound on searching backwards, which takes |text| · |needle| at worst. */
bool charge_search(struct rt *, const struct str *text, const struct str *needle);

#endif
