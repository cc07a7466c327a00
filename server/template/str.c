#include "str.h"

#include <string.h>

void str_begin(struct str_builder *b, struct arena *a)
{
    *b = (struct str_builder){.arena = a};
}

static bool make_room(struct str_builder *b, size_t n)
{
    if (b->failed)
        return false;
    if (n <= b->cap - b->n)
        return true;
    if (n > SIZE_MAX / 4 - b->n) {
        b->arena->over_limit = true;
        b->failed = true;
        return false;
    }
    size_t cap = b->n + n + (b->n + n) / 2;
    if (cap < 64)
        cap = 64;
    char *s = arena_grow(b->arena, b->s, b->cap, cap);
    if (!s) {
        b->failed = true;
        return false;
    }
    b->s = s;
    b->cap = cap;
    return true;
}

/* Gives the builder a byte map (it was uniform until now), or makes the map as long as the text. */
static bool make_origin(struct str_builder *b)
{
    if (b->origin && b->origin_cap >= b->cap)
        return true;
    uint8_t *o = arena_grow(b->arena, b->origin, b->origin_cap, b->cap);
    if (!o) {
        b->failed = true;
        return false;
    }
    if (!b->origin)
        memset(o, b->tmpl, b->n);
    b->origin = o;
    b->origin_cap = b->cap;
    return true;
}

void str_put(struct str_builder *b, const char *bytes, size_t n, bool tmpl)
{
    if (n == 0 || !make_room(b, n))
        return;
    if (b->n == 0 && !b->origin)
        b->tmpl = tmpl;
    if ((b->origin || b->tmpl != tmpl) && !make_origin(b))
        return;
    memcpy(b->s + b->n, bytes, n);
    if (b->origin)
        memset(b->origin + b->n, tmpl, n);
    b->n += n;
}

void str_put_data(struct str_builder *b, const char *text)
{
    str_put(b, text, strlen(text), false);
}

void str_put_part(struct str_builder *b, const struct str *s, size_t from, size_t n)
{
    if (!s->origin) {
        str_put(b, s->s + from, n, s->tmpl);
        return;
    }
    if (n == 0 || !make_room(b, n) || !make_origin(b))
        return;
    memcpy(b->s + b->n, s->s + from, n);
    memcpy(b->origin + b->n, s->origin + from, n);
    b->n += n;
}

void str_put_str(struct str_builder *b, const struct str *s)
{
    str_put_part(b, s, 0, s->n);
}

struct str *str_end(struct str_builder *b)
{
    if (b->failed)
        return NULL;
    struct str *s = arena_zalloc(b->arena, sizeof *s);
    if (!s)
        return NULL;
    s->s = b->s ? b->s : "";
    s->origin = b->origin;
    s->n = b->n;
    s->tmpl = b->tmpl;
    return s;
}

struct str *str_of(struct arena *a, const char *bytes, size_t n, bool tmpl)
{
    struct str *s = arena_zalloc(a, sizeof *s);
    if (!s)
        return NULL;
    s->s = bytes;
    s->n = n;
    s->tmpl = tmpl;
    return s;
}

struct str *str_data(struct arena *a, const char *bytes, size_t n)
{
    char *copy = arena_alloc(a, n);
    if (!copy)
        return NULL;
    if (n)
        memcpy(copy, bytes, n);
    return str_of(a, copy, n, false);
}

struct str *str_part(struct arena *a, const struct str *s, size_t from, size_t n)
{
    struct str *p = str_of(a, s->s + from, n, s->tmpl);
    if (!p)
        return NULL;
    p->origin = s->origin ? s->origin + from : NULL;
    p->markup = s->markup;
    return p;
}

enum { GROWABLE = 256 }; /* results from here on keep room for further appends */

/* Appends b to the builder that a ends. The builder never moves its text (older strings point
 * into it), so this is only for what fits. */
static struct str *append_in_place(const struct str *x, const struct str *y)
{
    struct str_builder *b = x->grow;
    str_put_str(b, y);
    struct str *s = str_end(b);
    if (s)
        s->grow = b;
    return s;
}

static bool can_append(const struct str *x, const struct str *y)
{
    const struct str_builder *b = x->grow;
    return b && b->s == x->s && b->n == x->n && y->n <= b->cap - b->n &&
           (!b->origin || b->origin_cap >= b->cap);
}

struct str *str_concat(struct arena *a, const struct str *x, const struct str *y)
{
    if (can_append(x, y))
        return append_in_place(x, y);
    if (x->n > SIZE_MAX / 4 - y->n) {
        a->over_limit = true;
        return NULL;
    }
    struct str_builder *b = arena_alloc(a, sizeof *b);
    if (!b)
        return NULL;
    str_begin(b, a);
    size_t n = x->n + y->n;
    b->cap = n < GROWABLE ? n : n + n / 2;
    b->s = arena_alloc(a, b->cap);
    if (!b->s)
        return NULL;
    str_put_str(b, x);
    str_put_str(b, y);
    struct str *s = str_end(b);
    if (s && n >= GROWABLE)
        s->grow = b;
    return s;
}

bool str_eq(const struct str *a, const struct str *b)
{
    return a->n == b->n && (a->n == 0 || memcmp(a->s, b->s, a->n) == 0);
}

bool str_is(const struct str *a, const char *text)
{
    size_t n = strlen(text);
    return a->n == n && (n == 0 || memcmp(a->s, text, n) == 0);
}

int str_cmp(const struct str *a, const struct str *b)
{
    size_t n = a->n < b->n ? a->n : b->n;
    int c = n ? memcmp(a->s, b->s, n) : 0; /* UTF-8 sorts as its code points do */
    return c ? c : (a->n > b->n) - (a->n < b->n);
}

bool str_tmpl_at(const struct str *s, size_t i)
{
    return s->origin ? s->origin[i] != 0 : s->tmpl;
}

size_t str_find(const struct str *s, size_t from, const char *needle, size_t n)
{
    if (from > s->n || n > s->n - from)
        return SIZE_MAX;
    if (n == 0)
        return from;
    const char *p = memmem(s->s + from, s->n - from, needle, n);
    return p ? (size_t)(p - s->s) : SIZE_MAX;
}

size_t str_rfind(const struct str *s, size_t end, const char *needle, size_t n)
{
    if (n > end)
        return SIZE_MAX;
    for (size_t at = end - n + 1; at-- > 0;)
        if (n == 0 || memcmp(s->s + at, needle, n) == 0)
            return at;
    return SIZE_MAX;
}
