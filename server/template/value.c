#include "dict.h"

#include <math.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

bool value_truth(struct value v)
{
    switch ((enum value_type)v.type) {
    case V_UNDEFINED:
    case V_NONE:
        return false;
    case V_BOOL:
        return v.b;
    case V_INT:
        return v.i != 0;
    case V_FLOAT:
        return v.f != 0;
    case V_STR:
        return v.s->n != 0;
    case V_LIST:
    case V_TUPLE:
        return v.list->n != 0;
    case V_DICT:
        return v.dict->n != 0;
    case V_RANGE:
        return v.range->n != 0;
    case V_VIEW:
        return v.view->dict->n != 0;
    default:
        return true;
    }
}

const char *value_type_name(struct value v)
{
    static const char *const views[] = {"dict_keys", "dict_values", "dict_items"};
    switch ((enum value_type)v.type) {
    case V_UNDEFINED:
        return "Undefined";
    case V_NONE:
        return "NoneType";
    case V_BOOL:
        return "bool";
    case V_INT:
        return "int";
    case V_FLOAT:
        return "float";
    case V_STR:
        return v.s->markup ? "Markup" : "str";
    case V_LIST:
        return "list";
    case V_TUPLE:
        return "tuple";
    case V_DICT:
        return "dict";
    case V_NAMESPACE:
        return "Namespace";
    case V_GENERATOR:
        return "generator";
    case V_RANGE:
        return "range";
    case V_VIEW:
        return views[v.view->kind];
    case V_MACRO:
        return "Macro";
    case V_FUNCTION:
        return "function";
    case V_METHOD:
        return "builtin_function_or_method";
    case V_LOOP:
        return "LoopContext";
    case V_CYCLER:
        return "Cycler";
    case V_JOINER:
        return "Joiner";
    }
    return "?";
}

bool value_same(struct value a, struct value b)
{
    if (a.type != b.type)
        return false;
    switch ((enum value_type)a.type) {
    case V_NONE:
        return true;
    case V_BOOL:
        return a.b == b.b;
    case V_INT:
        return a.i == b.i;
    case V_STR: /* Python shares equal constants; whether it shares others is its own affair */
        return a.s == b.s || str_eq(a.s, b.s);
    case V_UNDEFINED:
    case V_FLOAT:
        return false;
    default:
        return a.list == b.list;
    }
}

uint64_t hash_seed(void)
{
    uint64_t seed;
    if (getrandom(&seed, sizeof seed, GRND_NONBLOCK) != sizeof seed)
        seed = (uint64_t)time(NULL) ^ (uint64_t)(uintptr_t)&seed;
    return seed;
}

static uint64_t mix(uint64_t a, uint64_t b)
{
    unsigned __int128 p = (unsigned __int128)(a ^ 0x9E3779B97F4A7C15u) * (b ^ 0xD6E8FEB86659FD93u);
    return (uint64_t)p ^ (uint64_t)(p >> 64);
}

uint64_t hash_bytes(uint64_t seed, const void *bytes, size_t n)
{
    const unsigned char *p = bytes;
    uint64_t h = mix(seed, n);
    for (; n >= 8; p += 8, n -= 8) {
        uint64_t w;
        memcpy(&w, p, 8);
        h = mix(h ^ w, seed);
    }
    uint64_t w = 0;
    if (n)
        memcpy(&w, p, n);
    return mix(h ^ w, seed ^ 0x2545F4914F6CDD1Du);
}

static uint64_t hash_float(uint64_t seed, double f)
{
    if (f >= -9223372036854775808.0 && f < 9223372036854775808.0 && f == floor(f)) {
        int64_t i = (int64_t)f;
        return hash_bytes(seed, &i, sizeof i);
    }
    return hash_bytes(seed, &f, sizeof f);
}

static bool hash_tuple(uint64_t seed, const struct list *l, struct hash_work *work, uint64_t *hash)
{
    uint64_t h = mix(seed, l->n + 1);
    if (work->depth == 0 || work->items < l->n)
        return false;
    work->items -= l->n;
    work->depth--;
    for (size_t i = 0; i < l->n; i++) {
        uint64_t item;
        if (!value_hash(seed, l->v[i], work, &item))
            return false;
        h = mix(h ^ item, seed + 1);
    }
    work->depth++;
    *hash = h;
    return true;
}

enum { HASHED_PER_ITEM = 256 }; /* bytes of a string that count as one item of work */

bool value_hash(uint64_t seed, struct value key, struct hash_work *work, uint64_t *hash)
{
    int64_t i;
    size_t cost = key.type == V_STR ? key.s->n / HASHED_PER_ITEM : 0;
    if (work->items < cost)
        return false;
    work->items -= cost;
    switch ((enum value_type)key.type) {
    case V_STR:
        *hash = hash_bytes(seed, key.s->s, key.s->n);
        return true;
    case V_BOOL:
    case V_INT:
        i = value_as_int(key);
        *hash = hash_bytes(seed, &i, sizeof i);
        return true;
    case V_FLOAT:
        *hash = hash_float(seed, key.f);
        return true;
    case V_NONE:
        *hash = mix(seed, 0x6E6F6E65);
        return true;
    case V_UNDEFINED:
        *hash = mix(seed, 0x756E6465);
        return true;
    case V_TUPLE:
        return hash_tuple(seed, key.list, work, hash);
    default:
        return false;
    }
}

static bool key_eq(struct value a, struct value b)
{
    if (value_is_number(a) && value_is_number(b)) {
        if (value_is_integer(a) && value_is_integer(b))
            return value_as_int(a) == value_as_int(b);
        return value_as_float(a) == value_as_float(b);
    }
    if (a.type != b.type)
        return false;
    if (a.type == V_STR)
        return str_eq(a.s, b.s);
    if (a.type != V_TUPLE)
        return true; /* none, undefined */
    if (a.list->n != b.list->n)
        return false;
    for (size_t i = 0; i < a.list->n; i++)
        if (!key_eq(a.list->v[i], b.list->v[i]))
            return false;
    return true;
}

struct list *list_new(struct arena *a, size_t cap)
{
    struct list *l = arena_zalloc(a, sizeof *l);
    if (!l)
        return NULL;
    l->cap = cap;
    if (cap && !(l->v = arena_array(a, cap, sizeof *l->v)))
        return NULL;
    return l;
}

bool list_push(struct arena *a, struct list *l, struct value v)
{
    if (l->n == l->cap) {
        size_t cap = l->cap ? l->cap + l->cap / 2 + 1 : 4;
        struct value *p = arena_grow(a, l->v, l->cap * sizeof *p, cap * sizeof *p);
        if (!p)
            return false;
        l->v = p;
        l->cap = cap;
    }
    l->v[l->n++] = v;
    return true;
}

struct dict *dict_new(struct arena *a)
{
    return arena_zalloc(a, sizeof(struct dict));
}

enum { INDEX_FROM = 8 }; /* smaller dicts are searched from end to end */

static void index_add(struct dict *d, uint32_t position)
{
    size_t mask = d->index_cap - 1, i = d->e[position].hash & mask;
    while (d->index[i])
        i = (i + 1) & mask;
    d->index[i] = position + 1;
}

static bool index_grow(struct arena *a, struct dict *d)
{
    size_t cap = d->index_cap ? d->index_cap * 2 : 32;
    uint32_t *index = arena_zalloc(a, cap * sizeof *index);
    if (!index)
        return false;
    d->index = index;
    d->index_cap = cap;
    for (size_t i = 0; i < d->n; i++)
        index_add(d, (uint32_t)i);
    return true;
}

struct value *dict_find(const struct dict *d, struct value key, uint64_t hash)
{
    if (!d->index) {
        for (size_t i = 0; i < d->n; i++)
            if (d->e[i].hash == hash && key_eq(d->e[i].key, key))
                return &d->e[i].value;
        return NULL;
    }
    size_t mask = d->index_cap - 1;
    for (size_t i = hash & mask; d->index[i]; i = (i + 1) & mask) {
        struct entry *e = &d->e[d->index[i] - 1];
        if (e->hash == hash && key_eq(e->key, key))
            return &e->value;
    }
    return NULL;
}

bool dict_put(struct arena *a, struct dict *d, struct value key, uint64_t hash, struct value v)
{
    struct value *old = dict_find(d, key, hash);
    if (old) {
        *old = v;
        return true;
    }
    if (d->n >= UINT32_MAX / 4)
        return false;
    if (d->n == d->cap) {
        size_t cap = d->cap ? d->cap * 2 : 4;
        struct entry *e = arena_grow(a, d->e, d->cap * sizeof *e, cap * sizeof *e);
        if (!e)
            return false;
        d->e = e;
        d->cap = cap;
    }
    d->e[d->n++] = (struct entry){key, v, hash};
    if (d->n <= INDEX_FROM)
        return true;
    if (d->n * 2 > d->index_cap)
        return index_grow(a, d);
    index_add(d, (uint32_t)(d->n - 1));
    return true;
}
