#include "safetensors.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "file_map.h"
#include "gguf.h"

/* The largest known checkpoints have 100,000 tensors over all their files: 10 MB of header. */
enum { MAX_HEADER = 16 << 20, MAX_NAME = 512 };

struct safetensors {
    char *path;
    struct file_map map;
    const unsigned char *bytes;
    uint64_t size;
    json_t *header; /* owns the names */
    struct st_tensor *tensors;
    size_t n;
    const struct st_tensor **by_name;
};

static const struct {
    const char *name;
    int bits;
    bool known;
    enum dtype dtype;
} types[] = {
    {"F32", 32, true, DTYPE_F32},
    {"F16", 16, true, DTYPE_F16},
    {"BF16", 16, true, DTYPE_BF16},
    {"F8_E4M3", 8, true, DTYPE_F8_E4M3},
    {"F8_E5M2", 8, true, DTYPE_F8_E5M2},
    {"U8", 8, false, 0},
    {"I8", 8, false, 0},
    {"BOOL", 8, false, 0},
    {"I16", 16, false, 0},
    {"U16", 16, false, 0},
    {"I32", 32, false, 0},
    {"U32", 32, false, 0},
    {"F64", 64, false, 0},
    {"I64", 64, false, 0},
    {"U64", 64, false, 0},
    {"F8_E8M0", 8, false, 0},
    {"F4", 4, false, 0},
    {"F6_E2M3", 6, false, 0},
    {"F6_E3M2", 6, false, 0},
    {"C64", 64, false, 0},
};

/* A name made fit for a message. */
static struct gguf_shown show(const char *name)
{
    return gguf_show((struct gguf_str){name, strlen(name)});
}

/* --- one tensor's entry --- */

static bool read_type(const json_t *entry, struct st_tensor *t, struct err *e)
{
    const char *name = json_string_value(json_object_get(entry, "dtype"));
    if (!name)
        return err_set(e, ERR_INVALID, "tensor \"%s\" has no dtype", show(t->name).text);
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (strcmp(types[i].name, name) == 0) {
            t->type = types[i].name;
            t->bits = types[i].bits;
            t->known = types[i].known;
            t->dtype = types[i].dtype;
            return true;
        }
    return err_set(e, ERR_UNSUPPORTED, "tensor \"%s\" is of type \"%s\", which is not known",
                   show(t->name).text, show(name).text);
}

static bool read_shape(const json_t *entry, struct st_tensor *t, struct err *e)
{
    const json_t *shape = json_object_get(entry, "shape");
    const size_t n = json_array_size(shape);
    if (!json_is_array(shape) || n > SAFETENSORS_MAX_DIMS)
        return err_set(e, ERR_INVALID, "tensor \"%s\": its shape is not a list of at most %d sizes",
                       show(t->name).text, SAFETENSORS_MAX_DIMS);
    t->n_dims = (int)n;
    int64_t elems = 1;
    bool empty = false;
    for (size_t i = 0; i < SAFETENSORS_MAX_DIMS; i++) {
        const json_t *dim = i < n ? json_array_get(shape, i) : NULL;
        if (dim && (!json_is_integer(dim) || json_integer_value(dim) < 0))
            return err_set(e, ERR_INVALID, "tensor \"%s\": size %zu of its shape is no number",
                           show(t->name).text, i);
        t->dims[i] = dim ? json_integer_value(dim) : 1;
        empty = empty || t->dims[i] == 0;
        if (__builtin_mul_overflow(elems, empty ? 0 : t->dims[i], &elems) || elems > INT64_MAX / 64)
            return err_set(e, ERR_INVALID, "tensor \"%s\" has more elements than fit anywhere",
                           show(t->name).text);
    }
    return true;
}

/* data_offsets [begin, end) within the data that follows the header */
static bool read_place(const json_t *entry, uint64_t room, const unsigned char *data,
                       struct st_tensor *t, struct err *e)
{
    const json_t *at = json_object_get(entry, "data_offsets");
    const json_t *a = json_array_get(at, 0), *b = json_array_get(at, 1);
    if (json_array_size(at) != 2 || !json_is_integer(a) || !json_is_integer(b))
        return err_set(e, ERR_INVALID, "tensor \"%s\": its data_offsets are not two numbers",
                       show(t->name).text);
    const int64_t begin = json_integer_value(a), end = json_integer_value(b);
    if (begin < 0 || end < begin)
        return err_set(e, ERR_INVALID,
                       "tensor \"%s\": its data_offsets are %" PRId64 " and %" PRId64,
                       show(t->name).text, begin, end);
    if ((uint64_t)end > room)
        return err_set(e, ERR_INVALID,
                       "tensor \"%s\" ends at byte %" PRId64 " of %" PRIu64
                       " bytes of data: the file is cut short; fetch it again",
                       show(t->name).text, end, room);
    t->data = data + begin;
    t->bytes = (uint64_t)(end - begin);
    const int64_t bits = st_tensor_elems(t) * t->bits;
    if (bits % 8 != 0 || t->bytes != (uint64_t)bits / 8)
        return err_set(e, ERR_INVALID,
                       "tensor \"%s\" of %" PRId64 " values of type %s has %" PRIu64
                       " bytes, expected %" PRId64,
                       show(t->name).text, st_tensor_elems(t), t->type, t->bytes, bits / 8);
    return true;
}

int64_t st_tensor_elems(const struct st_tensor *t)
{
    int64_t n = 1;
    for (int i = 0; i < t->n_dims; i++)
        if (t->dims[i] == 0)
            return 0;
    for (int i = 0; i < t->n_dims; i++)
        n *= t->dims[i];
    return n;
}

/* --- the header --- */

static int by_offset(const void *x, const void *y)
{
    const struct st_tensor *a = x, *b = y;
    if (a->data != b->data)
        return (const char *)a->data < (const char *)b->data ? -1 : 1;
    return (a->bytes > b->bytes) - (a->bytes < b->bytes); /* the empty ones first */
}

static int by_name(const void *x, const void *y)
{
    return strcmp((*(const struct st_tensor *const *)x)->name,
                  (*(const struct st_tensor *const *)y)->name);
}

/* One behind the other, from the first byte of data to the last. */
static bool check_places(const struct safetensors *s, const unsigned char *data, uint64_t room,
                         struct err *e)
{
    uint64_t at = 0;
    for (size_t i = 0; i < s->n; i++) {
        const struct st_tensor *t = &s->tensors[i];
        const uint64_t begin = (uint64_t)((const unsigned char *)t->data - data);
        if (begin != at)
            return err_set(e, ERR_INVALID,
                           "tensor \"%s\" begins at byte %" PRIu64 " of the data, expected %" PRIu64
                           ", where the one before it ends",
                           show(t->name).text, begin, at);
        at += t->bytes;
    }
    if (at != room)
        return err_set(e, ERR_INVALID,
                       "the tensors have %" PRIu64 " bytes, but %" PRIu64 " follow the header", at,
                       room);
    return true;
}

static bool read_tensors(struct safetensors *s, const unsigned char *data, uint64_t room,
                         struct err *e)
{
    const char *name;
    json_t *entry;
    s->tensors = calloc(json_object_size(s->header) + 1, sizeof *s->tensors);
    s->by_name = calloc(json_object_size(s->header) + 1, sizeof *s->by_name);
    if (!s->tensors || !s->by_name)
        return err_set(e, ERR_MEMORY, "no memory for %zu tensors", json_object_size(s->header));
    json_object_foreach(s->header, name, entry)
    {
        if (strcmp(name, "__metadata__") == 0)
            continue;
        struct st_tensor *t = &s->tensors[s->n];
        t->name = name;
        if (strlen(name) > MAX_NAME || !json_is_object(entry))
            return err_set(e, ERR_INVALID, "tensor \"%s\": %s", show(name).text,
                           json_is_object(entry) ? "its name is too long" : "not an object");
        if (!read_type(entry, t, e) || !read_shape(entry, t, e) ||
            !read_place(entry, room, data, t, e))
            return false;
        t->mapped = s->map.bytes;
        s->n++;
    }
    qsort(s->tensors, s->n, sizeof *s->tensors, by_offset);
    for (size_t i = 0; i < s->n; i++)
        s->by_name[i] = &s->tensors[i];
    qsort(s->by_name, s->n, sizeof *s->by_name, by_name);
    return check_places(s, data, room, e);
}

static bool read_header(struct safetensors *s, struct err *e)
{
    static const char lfs[] = "version https://git-lfs";
    uint64_t n;
    json_error_t why;
    if (s->size >= sizeof lfs - 1 && memcmp(s->bytes, lfs, sizeof lfs - 1) == 0)
        return err_set(e, ERR_INVALID,
                       "a Git LFS pointer, not the model itself; fetch it with: git lfs pull");
    if (s->size < sizeof n)
        return err_set(e, ERR_INVALID, "a file of %" PRIu64 " bytes is no safetensors file",
                       s->size);
    memcpy(&n, s->bytes, sizeof n);
    if (n > s->size - sizeof n)
        return err_set(e, ERR_INVALID,
                       "its header should have %" PRIu64 " bytes, but the file has %" PRIu64
                       ": no safetensors file, or one that was cut short",
                       n, s->size);
    if (n > MAX_HEADER)
        return err_set(e, ERR_LIMIT, "a header of %" PRIu64 " bytes, at most %d are read", n,
                       MAX_HEADER);
    s->header =
        json_loadb((const char *)s->bytes + sizeof n, (size_t)n, JSON_REJECT_DUPLICATES, &why);
    if (!s->header)
        return err_set(e, ERR_INVALID, "its header is no JSON object: %.150s (byte %d)",
                       show(why.text).text, why.position);
    if (!json_is_object(s->header))
        return err_set(e, ERR_INVALID, "its header is no JSON object");
    return read_tensors(s, s->bytes + sizeof n + n, s->size - sizeof n - n, e);
}

/* --- opening --- */

static struct safetensors *open_bytes(struct safetensors *s, const char *path, struct err *e)
{
    s->path = strdup(path);
    if (!s->path)
        err_set(e, ERR_MEMORY, "no memory to open %.200s", path);
    else if (read_header(s, e))
        return s;
    else
        err_prefix(e, "%s", file_map_shown(path).text);
    safetensors_close(s);
    return NULL;
}

struct safetensors *safetensors_open(const char *path, struct err *e)
{
    struct safetensors *s = calloc(1, sizeof *s);
    if (!s) {
        err_set(e, ERR_MEMORY, "no memory to open %.200s", path);
        return NULL;
    }
    if (!file_map_open(&s->map, path, "a safetensors file", e)) {
        free(s);
        return NULL;
    }
    s->bytes = s->map.bytes;
    s->size = s->map.size;
    return open_bytes(s, path, e);
}

struct safetensors *safetensors_open_memory(const void *bytes, size_t n, struct err *e)
{
    struct safetensors *s = calloc(1, sizeof *s);
    if (!s) {
        err_set(e, ERR_MEMORY, "no memory to open a file");
        return NULL;
    }
    s->bytes = bytes;
    s->size = n;
    return open_bytes(s, "(memory)", e);
}

void safetensors_close(struct safetensors *s)
{
    if (!s)
        return;
    free(s->tensors);
    free(s->by_name);
    json_decref(s->header);
    file_map_close(&s->map);
    free(s->path);
    free(s);
}

uint64_t safetensors_identity(const struct safetensors *s)
{
    return s->map.identity;
}

size_t safetensors_n(const struct safetensors *s)
{
    return s->n;
}

const struct st_tensor *safetensors_at(const struct safetensors *s, size_t i)
{
    return &s->tensors[i];
}

const struct st_tensor *safetensors_find(const struct safetensors *s, const char *name)
{
    const struct st_tensor wanted = {.name = name}, *key = &wanted;
    const struct st_tensor **found =
        s->n ? bsearch(&key, s->by_name, s->n, sizeof *s->by_name, by_name) : NULL;
    return found ? *found : NULL;
}
