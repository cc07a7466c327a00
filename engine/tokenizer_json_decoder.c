/* The decoder of a tokenizer.json. Its steps are done to every token once, when the file is
 * read; what only the start of a text sees becomes the tokenizer's rule for that. */
#include "buf.h"
#include "tokenizer_json.h"
#include "utf8.h"

static const char DECODER[] = "decoder";

enum { MOST_OPS = 16 };

struct op {
    enum { OP_BYTE_LEVEL, OP_BYTES, OP_REPLACE, OP_STRIP } kind;
    struct str from, to; /* REPLACE; STRIP: from is the character */
    size_t start, stop;  /* STRIP: how many go at the ends */
};

struct decoding {
    struct json_reading *r;
    struct op ops[MOST_OPS];
    int n_ops;
    bool fused; /* what follows sees the whole text */
};

static bool add_op(struct decoding *d, struct op op)
{
    if (d->n_ops == MOST_OPS)
        return err_set(d->r->e, ERR_LIMIT, "%s: more than %d steps", DECODER, MOST_OPS);
    d->ops[d->n_ops++] = op;
    return true;
}

static bool add_metaspace(struct decoding *d, const json_t *from)
{
    struct str mark;
    struct tokenizer *t = d->r->t;
    bool old;
    const json_t *scheme = json_object_get(from, "prepend_scheme");
    if (!json_get_str(from, DECODER, "replacement", &mark, d->r->e) ||
        !json_get_bool(from, DECODER, "add_prefix_space", true, &old, d->r->e))
        return false;
    if (mark.len == 0)
        return err_set(d->r->e, ERR_INVALID, "%s.replacement is empty", DECODER);
    bool never = json_is(scheme, "never") || (!old && !json_is(scheme, "first"));
    t->start = never ? START_KEEP : START_SPACES_OF_FIRST;
    return add_op(d, (struct op){.kind = OP_REPLACE, .from = mark, .to = {" ", 1}});
}

static bool add_replace(struct decoding *d, const json_t *from)
{
    struct str content;
    const json_t *v = json_object_get(from, "pattern");
    const json_t *string = json_is_string(v) ? v : json_object_get(v, "String");
    if (!json_get_str(from, DECODER, "content", &content, d->r->e))
        return false;
    struct str pattern = json_is_string(string) ? json_str(string) : (struct str){0};
    if (pattern.len == 0 || content.len > pattern.len * SAY_TIMES)
        return err_set(d->r->e, ERR_UNSUPPORTED,
                       "%s: we have Replace only of a string, by one that is not much longer",
                       DECODER);
    if (d->fused && (size_t)utf8_char(pattern.data, pattern.len) != pattern.len)
        return err_set(d->r->e, ERR_UNSUPPORTED, "%s: Replace of a longer string behind Fuse",
                       DECODER);
    return add_op(d, (struct op){.kind = OP_REPLACE, .from = pattern, .to = content});
}

static bool add_strip(struct decoding *d, const json_t *from)
{
    struct str content;
    json_int_t start = json_integer_value(json_object_get(from, "start"));
    json_int_t stop = json_integer_value(json_object_get(from, "stop"));
    if (!json_get_str(from, DECODER, "content", &content, d->r->e))
        return false;
    if (start < 0 || stop < 0 || content.len == 0)
        return err_set(d->r->e, ERR_INVALID, "%s: Strip with a negative number or no content",
                       DECODER);
    if (!d->fused)
        return add_op(d, (struct op){OP_STRIP, content, {0}, (size_t)start, (size_t)stop});
    if (stop != 0 || start > 1 || !str_is(content, " "))
        return err_set(d->r->e, ERR_UNSUPPORTED,
                       "%s: behind Fuse we have Strip only of one space at the start", DECODER);
    if (start == 1)
        d->r->t->start = START_ONE_SPACE;
    return true;
}

/* What json_for_each_step's caller wants to keep. */
struct decoder_reading {
    struct json_reading r; /* first: steps get a pointer to it */
    struct decoding d;
};

static bool add_decoder(struct json_reading *r, const json_t *from, struct str type)
{
    struct decoding *d = &((struct decoder_reading *)(void *)r)->d;
    if (str_is(type, "ByteLevel"))
        return add_op(d, (struct op){.kind = OP_BYTE_LEVEL});
    if (str_is(type, "ByteFallback"))
        return add_op(d, (struct op){.kind = OP_BYTES});
    if (str_is(type, "Metaspace"))
        return add_metaspace(d, from);
    if (str_is(type, "Replace"))
        return add_replace(d, from);
    if (str_is(type, "Strip"))
        return add_strip(d, from);
    if (str_is(type, "Fuse")) {
        d->fused = true;
        return true;
    }
    return err_set(r->e, ERR_UNSUPPORTED, "%s of type \"%.*s\": we do not have it", DECODER,
                   (int)(type.len < 100 ? type.len : 100), type.data);
}

static size_t replace_all(const struct op *op, struct str s, char *out)
{
    size_t n = 0;
    for (size_t i = 0; i < s.len;) {
        bool here =
            s.len - i >= op->from.len && memcmp(s.data + i, op->from.data, op->from.len) == 0;
        struct str put = here ? op->to : (struct str){s.data + i, 1};
        memcpy(out + n, put.data, put.len);
        n += put.len;
        i += here ? op->from.len : 1;
    }
    return n;
}

static struct str strip_ends(const struct op *op, struct str s)
{
    struct str c = op->from;
    for (size_t k = 0; k < op->start && s.len >= c.len && memcmp(s.data, c.data, c.len) == 0; k++)
        s = (struct str){s.data + c.len, s.len - c.len};
    for (size_t k = 0;
         k < op->stop && s.len >= c.len && memcmp(s.data + s.len - c.len, c.data, c.len) == 0; k++)
        s.len -= c.len;
    return s;
}

/* The steps write to a and b by turns; Replace is refused where a token would outgrow them. */
struct saying {
    const struct decoding *d;
    struct buf a, b;
    bool joined_by_spaces;
};

static int64_t say(void *user, int32_t id, char *out)
{
    struct saying *x = user;
    const struct tokenizer *t = x->d->r->t;
    struct str s = t->names[id];
    if (x->joined_by_spaces) {
        out[0] = ' ';
        memcpy(out + 1, s.data, s.len);
        return s.len ? (int64_t)s.len + 1 : 0;
    }
    struct buf *to = &x->a; /* never what s lies in */
    for (int i = 0; i < x->d->n_ops; i++) {
        const struct op *op = &x->d->ops[i];
        buf_clear(to);
        char *at = buf_reserve(to, s.len * SAY_TIMES + 1);
        int byte = op->kind == OP_BYTES ? tokenizer_named_byte(s) : -1;
        int64_t n = -1;
        if (!at)
            break;
        if (op->kind == OP_STRIP) {
            s = strip_ends(op, s);
            continue;
        }
        if (op->kind == OP_BYTE_LEVEL)
            n = alphabet_decode(s, at);
        else if (op->kind == OP_REPLACE)
            n = (int64_t)replace_all(op, s, at);
        else if (byte >= 0) {
            *at = (char)byte;
            n = 1;
        }
        if (n < 0)
            continue;
        s = (struct str){at, (size_t)n};
        to = to == &x->a ? &x->b : &x->a;
    }
    size_t most = t->names[id].len * SAY_TIMES + SAY_MORE;
    s.len = s.len < most ? s.len : most;
    memmove(out, s.data, s.len);
    return (int64_t)s.len;
}

bool json_read_decoder(struct json_reading *r)
{
    struct decoder_reading x = {.r = *r};
    struct saying saying = {.d = &x.d};
    const json_t *from = json_object_get(r->root, DECODER);
    x.d.r = &x.r;
    if (!json_for_each_step(&x.r, from, DECODER, "decoders", add_decoder))
        return false;
    saying.joined_by_spaces = !from || json_is_null(from);
    if (saying.joined_by_spaces)
        r->t->start = START_ONE_SPACE;
    r->t->adds_space = r->t->start != START_KEEP;
    bool ok = tokenizer_make_pieces(r->t, say, &saying, r->e);
    buf_free(&saying.a);
    buf_free(&saying.b);
    return ok;
}
