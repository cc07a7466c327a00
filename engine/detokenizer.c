#include "tokenizer.h"
#include "tokenizer_impl.h"
#include "utf8.h"

#include <string.h>

/* detokenizer.held is always the start of a character: a lead byte and bytes that may follow
 * it. A byte that may not follow ends the run, which is what Unicode calls a maximal subpart. */

static size_t put_replacement(char *out)
{
    memcpy(out, "\xEF\xBF\xBD", 3);
    return 3;
}

static size_t add_byte(struct detokenizer *d, unsigned char b, char *out)
{
    size_t at = 0;
    if (d->n_held && !utf8_continues((unsigned char)d->held[0], d->n_held, b)) {
        at += put_replacement(out);
        d->n_held = 0;
    }
    if (d->n_held == 0 && utf8_length(b) == 0)
        return at + put_replacement(out + at);
    d->held[d->n_held++] = (char)b;
    if (d->n_held < utf8_length((unsigned char)d->held[0]))
        return at;
    memcpy(out + at, d->held, (size_t)d->n_held);
    at += (size_t)d->n_held;
    d->n_held = 0;
    return at;
}

/* Bytes of the piece that a text does not start with. */
static size_t dropped_at_start(const struct tokenizer *t, struct str piece)
{
    bool one = t->start == START_ONE_SPACE || t->start == START_SPACE_OF_EACH;
    return one && piece.len && piece.data[0] == ' ';
}

static bool still_at_start(const struct tokenizer *t, struct str piece)
{
    return t->start == START_ONE_SPACE       ? piece.len == 0
           : t->start == START_SPACE_OF_EACH ? piece.len == dropped_at_start(t, piece)
                                             : false;
}

size_t detokenizer_add(struct detokenizer *d, const struct tokenizer *t, int32_t id,
                       bool skip_special, char *out)
{
    if (skip_special && tokenizer_is_control(t, id))
        return 0;
    struct str piece = t->pieces[id];
    bool at_start = d->at_start;
    d->at_start = at_start && still_at_start(t, piece);
    size_t at = 0, first = at_start ? dropped_at_start(t, piece) : 0;
    for (size_t i = first; i < piece.len; i++)
        if (!at_start || t->start != START_SPACES_OF_FIRST || piece.data[i] != ' ')
            at += add_byte(d, (unsigned char)piece.data[i], out + at);
    return at;
}

size_t detokenizer_flush(struct detokenizer *d, char *out)
{
    if (d->n_held == 0)
        return 0;
    d->n_held = 0;
    return put_replacement(out);
}
