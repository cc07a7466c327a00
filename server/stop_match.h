/* stop_match.h: finding stop strings in text that arrives in pieces.
 *
 * A set holds the strings of a request; a matcher walks one choice's text through all of them
 * at once (Knuth–Morris–Pratt, so hostile strings cost a bounded time a byte). The answer does
 * not depend on how the text was cut into pieces: the string that is complete first ends the
 * text, of several that end together the longest. Loop thread only. */
#ifndef TOKEND_STOP_MATCH_H
#define TOKEND_STOP_MATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { STOP_MAX_STRINGS = 64, STOP_MAX_BYTES = 4096 };

struct stop_string {
    char *text;     /* one allocation: the bytes, then back[] */
    uint16_t *back; /* [len]: longest proper border of text[0 … i] */
    int len;
};

struct stop_set { /* zeroed = empty; free with stop_set_free */
    struct stop_string strings[STOP_MAX_STRINGS];
    int n;
};

/* Takes a copy; an empty string is ignored. False: out of memory. The set has room and the
 * string is short enough (the caller checked). */
bool stop_set_add(struct stop_set *, const char *text, size_t len);
void stop_set_free(struct stop_set *);

struct stop_matcher {                   /* zeroed = at the start of a text */
    uint16_t matched[STOP_MAX_STRINGS]; /* bytes of each string that the text ends with */
};

/* Feeds text[n]. Returns the length of the stop string that was completed, or 0; *used is the
 * number of bytes up to and including its end (n when none). */
int stop_feed(struct stop_matcher *, const struct stop_set *, const char *text, size_t n,
              size_t *used);
/* Bytes at the end of the text that may yet become a stop string: the longest partial match. */
int stop_held(const struct stop_matcher *, const struct stop_set *);

#endif
