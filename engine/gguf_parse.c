#include "gguf_file.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_NAME = 65535,      /* bytes of a key's or tensor's name (specification) */
    MAX_ENTRIES = 1 << 24, /* keys or tensors */
    MAX_ALIGNMENT = 1 << 20,
    MIN_KEY_BYTES = 8 + 4 + 1,            /* name length, type, the smallest value */
    MIN_TENSOR_BYTES = 8 + 4 + 8 + 4 + 8, /* name length, n_dims, one dim, type, offset */
};

/* The place up to which a file was read. Nothing before `at` is outside the file. */
struct reader {
    const unsigned char *bytes;
    uint64_t size, at;
    struct err *e;
};

/* What is being read, for messages: "key 3" or "tensor 7 \"blk.0.attn_q.weight\"". */
struct place {
    const char *kind;
    uint64_t i;
    struct gguf_str name;
};

static struct gguf_shown show_place(const struct place *p)
{
    struct gguf_shown s;
    if (p->name.len > 0)
        snprintf(s.text, sizeof s.text, "%s %" PRIu64 " \"%.50s\"", p->kind, p->i,
                 gguf_show(p->name).text);
    else
        snprintf(s.text, sizeof s.text, "%s %" PRIu64, p->kind, p->i);
    return s;
}

/* --- reading, checked --- */

/* Takes n bytes, or fails. */
static const unsigned char *take(struct reader *r, const struct place *p, const char *what,
                                 uint64_t n)
{
    if (n > r->size - r->at) {
        err_set(r->e, ERR_INVALID,
                "%s: its %s at byte %" PRIu64 " takes %" PRIu64 " bytes, but the file ends %" PRIu64
                " bytes further on",
                show_place(p).text, what, r->at, n, r->size - r->at);
        return NULL;
    }
    const unsigned char *at = r->bytes + r->at;
    r->at += n;
    return at;
}

static bool read_u32(struct reader *r, const struct place *p, const char *what, uint32_t *out)
{
    const unsigned char *at = take(r, p, what, sizeof *out);
    if (at)
        memcpy(out, at, sizeof *out);
    return at;
}

static bool read_u64(struct reader *r, const struct place *p, const char *what, uint64_t *out)
{
    const unsigned char *at = take(r, p, what, sizeof *out);
    if (at)
        memcpy(out, at, sizeof *out);
    return at;
}

static bool read_string(struct reader *r, const struct place *p, const char *what,
                        struct gguf_str *out)
{
    uint64_t n;
    if (!read_u64(r, p, what, &n))
        return false;
    out->data = (const char *)take(r, p, what, n);
    out->len = (size_t)n;
    return out->data;
}

static bool read_name(struct reader *r, struct place *p, struct gguf_str *out)
{
    if (!read_string(r, p, "name", out))
        return false;
    if (out->len > MAX_NAME)
        return err_set(r->e, ERR_INVALID, "%s: its name has %zu bytes, at most %d are allowed",
                       show_place(p).text, out->len, MAX_NAME);
    p->name = *out;
    return true;
}

/* --- index --- */

static int compare_names(const struct gguf_str *a, const struct gguf_str *b)
{
    size_t n = a->len < b->len ? a->len : b->len;
    int order = n ? memcmp(a->data, b->data, n) : 0;
    return order ? order : (a->len > b->len) - (a->len < b->len);
}

static int compare_entries(const void *a, const void *b)
{
    return compare_names(*(const struct gguf_str *const *)a, *(const struct gguf_str *const *)b);
}

bool gguf_index_build(struct gguf_index *index, const void *entries, size_t stride, uint64_t n,
                      const char *kind, struct err *e)
{
    index->by_name = malloc((n ? n : 1) * sizeof *index->by_name);
    if (!index->by_name)
        return err_set(e, ERR_MEMORY, "no memory for %" PRIu64 " names", n);
    index->n = n;
    for (uint64_t i = 0; i < n; i++)
        index->by_name[i] = (const void *)((const char *)entries + i * stride);
    qsort(index->by_name, n, sizeof *index->by_name, compare_entries);
    for (uint64_t i = 1; i < n; i++)
        if (compare_names(index->by_name[i - 1], index->by_name[i]) == 0)
            return err_set(e, ERR_INVALID, "two %ss are named \"%s\"", kind,
                           gguf_show(*index->by_name[i]).text);
    return true;
}

const void *gguf_index_find(const struct gguf_index *index, const char *name)
{
    const struct gguf_str wanted = {name, strlen(name)}, *key = &wanted;
    if (index->n == 0)
        return NULL;
    const struct gguf_str **found =
        bsearch(&key, index->by_name, index->n, sizeof *index->by_name, compare_entries);
    return found ? *found : NULL;
}

/* --- metadata --- */

static bool check_type(struct reader *r, const struct place *p, const char *what, uint32_t type)
{
    if (type < GGUF_N_TYPES)
        return true;
    return err_set(r->e, ERR_INVALID, "%s: %s %" PRIu32 " at byte %" PRIu64 ", expected 0 to %d",
                   show_place(p).text, what, type, r->at - 4, GGUF_N_TYPES - 1);
}

static bool skip_strings(struct reader *r, const struct place *p, uint64_t n)
{
    struct gguf_str s;
    if (n > (r->size - r->at) / 8)
        return err_set(r->e, ERR_INVALID,
                       "%s: %" PRIu64 " strings at byte %" PRIu64 " cannot fit in the %" PRIu64
                       " bytes that are left",
                       show_place(p).text, n, r->at, r->size - r->at);
    for (uint64_t i = 0; i < n; i++)
        if (!read_string(r, p, "string", &s))
            return false;
    return true;
}

static bool read_array(struct reader *r, const struct place *p, struct gguf_key *key)
{
    uint32_t elem;
    if (!read_u32(r, p, "array's element type", &elem) ||
        !check_type(r, p, "array of element type", elem) ||
        !read_u64(r, p, "array's length", &key->n))
        return false;
    if (elem == GGUF_ARRAY)
        return err_set(r->e, ERR_UNSUPPORTED, "%s: arrays of arrays are not supported",
                       show_place(p).text);
    key->elem = (enum gguf_type)elem;
    key->value = r->bytes + r->at;
    if (elem == GGUF_STRING)
        return skip_strings(r, p, key->n);
    uint64_t bytes;
    if (__builtin_mul_overflow(key->n, gguf_type_bytes(key->elem), &bytes))
        bytes = UINT64_MAX;
    return take(r, p, "array", bytes);
}

static bool read_key(struct reader *r, uint64_t i, struct gguf_key *key)
{
    struct place p = {.kind = "key", .i = i};
    struct gguf_str s;
    uint32_t type;
    if (!read_name(r, &p, &key->name) || !read_u32(r, &p, "type", &type) ||
        !check_type(r, &p, "type", type))
        return false;
    key->type = (enum gguf_type)type;
    if (key->type == GGUF_ARRAY)
        return read_array(r, &p, key);
    if (key->type == GGUF_STRING) {
        if (!read_string(r, &p, "string", &s))
            return false;
        key->value = (const unsigned char *)s.data;
        key->n = s.len;
        return true;
    }
    key->value = take(r, &p, "value", gguf_type_bytes(key->type));
    return key->value;
}

/* Makes room for entry i of n. Grows with what was read, so that a count alone takes nothing. */
static void *grow(void *entries, size_t stride, uint64_t i, uint64_t n, struct err *e)
{
    bool full = i == 0 || (i >= 64 && (i & (i - 1)) == 0);
    if (!full)
        return entries;
    uint64_t cap = i == 0 ? 64 : 2 * i;
    void *grown = realloc(entries, (cap < n ? cap : n) * stride);
    if (!grown)
        err_set(e, ERR_MEMORY, "no memory for %" PRIu64 " entries", n);
    return grown;
}

static bool read_keys(struct reader *r, struct gguf *g, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) {
        struct gguf_key *keys = grow(g->keys, sizeof *keys, i, n, r->e);
        if (!keys)
            return false;
        g->keys = keys;
        memset(&keys[i], 0, sizeof keys[i]);
        if (!read_key(r, i, &keys[i]))
            return false;
        g->n_keys = i + 1;
    }
    return gguf_index_build(&g->key_index, g->keys, sizeof *g->keys, n, "key", r->e);
}

/* --- tensors --- */

static bool read_dims(struct reader *r, const struct place *p, struct gguf_tensor *t)
{
    uint32_t n;
    if (!read_u32(r, p, "number of dims", &n))
        return false;
    if (n < 1 || n > 4)
        return err_set(r->e, ERR_INVALID, "%s: %" PRIu32 " dims, expected 1 to 4",
                       show_place(p).text, n);
    t->n_dims = (int)n;
    int64_t elems = 1;
    for (uint32_t i = 0; i < 4; i++) {
        uint64_t dim = 1;
        if (i < n && !read_u64(r, p, "dims", &dim))
            return false;
        if (dim == 0 || __builtin_mul_overflow(elems, dim, &elems))
            return err_set(r->e, ERR_INVALID, "%s: dim %" PRIu32 " is %" PRIu64 ", expected %s",
                           show_place(p).text, i, dim,
                           dim == 0 ? "at least 1" : "a number of elements below 2^63");
        t->dims[i] = (int64_t)dim;
    }
    return true;
}

/* The bytes of a tensor's data, 0 when ggml's block size of its type is not known. */
static bool size_tensor(struct reader *r, const struct place *p, struct gguf_tensor *t)
{
    struct ggml_type type = ggml_type_of(t->ggml_type);
    t->type_name = type.name;
    t->known = type.known;
    t->dtype = type.dtype;
    if (type.block_elems == 0)
        return true;
    if (t->dims[0] % type.block_elems != 0)
        return err_set(r->e, ERR_INVALID,
                       "%s: rows of %" PRId64 " values, expected a multiple of %d, the block of %s",
                       show_place(p).text, t->dims[0], type.block_elems, type.name);
    uint64_t blocks = (uint64_t)(t->dims[0] / type.block_elems);
    for (int i = 1; i < 4; i++)
        blocks *= (uint64_t)t->dims[i]; /* below 2^63: read_dims */
    if (__builtin_mul_overflow(blocks, (uint64_t)type.block_bytes, &t->bytes))
        t->bytes = UINT64_MAX;
    return true;
}

static bool read_tensor(struct reader *r, uint64_t i, struct gguf_tensor *t)
{
    struct place p = {.kind = "tensor", .i = i};
    return read_name(r, &p, &t->name) && read_dims(r, &p, t) &&
           read_u32(r, &p, "type", &t->ggml_type) && size_tensor(r, &p, t) &&
           read_u64(r, &p, "offset", &t->offset);
}

/* t->offset, until now relative to the data section, becomes the file's. */
static bool place_tensor(struct reader *r, uint64_t i, struct gguf_tensor *t, uint64_t data_start,
                         uint32_t alignment)
{
    const struct place p = {.kind = "tensor", .i = i, .name = t->name};
    uint64_t room = r->size - data_start;
    if (t->offset % alignment != 0)
        return err_set(r->e, ERR_INVALID,
                       "%s: offset %" PRIu64 " is not a multiple of the alignment, %" PRIu32,
                       show_place(&p).text, t->offset, alignment);
    if (t->offset > room || t->bytes > room - t->offset)
        return err_set(r->e, ERR_INVALID,
                       "%s: %" PRIu64 " bytes of %s at offset %" PRIu64 " run past the %" PRIu64
                       " bytes of data that the file has",
                       show_place(&p).text, t->bytes, t->type_name, t->offset, room);
    t->offset += data_start;
    t->data = r->bytes + t->offset;
    return true;
}

static bool read_alignment(struct reader *r, const struct gguf *g, uint32_t *out)
{
    const struct gguf_key *key = gguf_index_find(&g->key_index, "general.alignment");
    *out = 32;
    if (!key)
        return true;
    if (key->type != GGUF_U32)
        return err_set(r->e, ERR_INVALID, "general.alignment is of type %s, expected U32",
                       gguf_type_name(key->type));
    memcpy(out, key->value, sizeof *out);
    if (*out < 8 || *out > MAX_ALIGNMENT || (*out & (*out - 1)) != 0)
        return err_set(r->e, ERR_INVALID,
                       "general.alignment is %" PRIu32 ", expected a power of two from 8 to %d",
                       *out, MAX_ALIGNMENT);
    return true;
}

static bool place_tensors(struct reader *r, struct gguf *g)
{
    uint32_t alignment;
    if (!read_alignment(r, g, &alignment))
        return false;
    uint64_t pad = (alignment - r->at % alignment) % alignment;
    uint64_t data_start = pad > r->size - r->at ? r->size : r->at + pad;
    for (uint64_t i = 0; i < g->n_tensors; i++) {
        if (!place_tensor(r, i, &g->tensors[i], data_start, alignment))
            return false;
        g->tensors[i].mapped = g->map.bytes;
    }
    return true;
}

static bool read_tensors(struct reader *r, struct gguf *g, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) {
        struct gguf_tensor *tensors = grow(g->tensors, sizeof *tensors, i, n, r->e);
        if (!tensors)
            return false;
        g->tensors = tensors;
        memset(&tensors[i], 0, sizeof tensors[i]);
        if (!read_tensor(r, i, &tensors[i]))
            return false;
        g->n_tensors = i + 1;
    }
    return gguf_index_build(&g->tensor_index, g->tensors, sizeof *g->tensors, n, "tensor", r->e) &&
           place_tensors(r, g);
}

/* --- the whole file --- */

static bool check_magic(const struct reader *r)
{
    static const char lfs[] = "version https://git-lfs";
    if (r->size >= 4 && memcmp(r->bytes, "GGUF", 4) == 0)
        return true;
    if (r->size >= sizeof lfs - 1 && memcmp(r->bytes, lfs, sizeof lfs - 1) == 0)
        return err_set(r->e, ERR_INVALID,
                       "a Git LFS pointer, not the model itself; fetch it with: git lfs pull");
    struct gguf_str start = {(const char *)r->bytes, r->size < 4 ? r->size : 4};
    return err_set(r->e, ERR_INVALID, "not a GGUF file: it starts with \"%s\", expected \"GGUF\"",
                   gguf_show(start).text);
}

static bool check_version(const struct reader *r, uint32_t version)
{
    if (version == 2 || version == 3)
        return true;
    if (version != 0 && (version & 0xFFFF) == 0)
        return err_set(r->e, ERR_UNSUPPORTED,
                       "a big-endian GGUF file; only little-endian ones are supported");
    return err_set(r->e, ERR_UNSUPPORTED,
                   "GGUF version %" PRIu32 "; versions 2 and 3 are supported", version);
}

static bool check_count(const struct reader *r, const char *what, uint64_t n, uint64_t least_bytes)
{
    if (n > MAX_ENTRIES)
        return err_set(r->e, ERR_LIMIT, "the header says %" PRIu64 " %s, at most %d are supported",
                       n, what, MAX_ENTRIES);
    if (n > (r->size - r->at) / least_bytes)
        return err_set(r->e, ERR_INVALID,
                       "the header says %" PRIu64 " %s, but the file of %" PRIu64
                       " bytes is too short for them",
                       n, what, r->size);
    return true;
}

bool gguf_parse(struct gguf *g, struct err *e)
{
    struct reader r = {g->bytes, g->size, 0, e};
    uint32_t version;
    uint64_t n_tensors, n_keys;
    if (!check_magic(&r))
        return false;
    if (r.size < 24)
        return err_set(e, ERR_INVALID, "a file of %" PRIu64 " bytes; a GGUF header has 24", r.size);
    memcpy(&version, r.bytes + 4, 4);
    memcpy(&n_tensors, r.bytes + 8, 8);
    memcpy(&n_keys, r.bytes + 16, 8);
    r.at = 24;
    return check_version(&r, version) && check_count(&r, "tensors", n_tensors, MIN_TENSOR_BYTES) &&
           check_count(&r, "keys", n_keys, MIN_KEY_BYTES) && read_keys(&r, g, n_keys) &&
           read_tensors(&r, g, n_tensors);
}
