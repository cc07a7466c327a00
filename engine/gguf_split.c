#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gguf_file.h"

enum { MAX_PARTS = 1000, MAX_MISSING_NAMED = 8 };

/* "dir/name-00001-of-00003.gguf": the numbers are one-based, split.no is not. */
static int suffix_of(char out[32], uint32_t part, uint32_t n)
{
    return snprintf(out, 32, "-%05" PRIu32 "-of-%05" PRIu32 ".gguf", part + 1, n);
}

/* Bytes of the path before the suffix of this part, or -1. */
static int stem_of(const char *path, uint32_t part, uint32_t n)
{
    char suffix[32];
    size_t len = strlen(path), tail = (size_t)suffix_of(suffix, part, n);
    if (len > INT_MAX || len < tail || strcmp(path + len - tail, suffix) != 0)
        return -1;
    return (int)(len - tail);
}

struct split {
    struct gguf *g; /* the first part */
    uint32_t n;
    uint32_t n_tensors; /* of all parts */
    bool counted;       /* n_tensors is known */
    int stem;
    struct err *e;
};

static char *part_path(const struct split *s, uint32_t part)
{
    char suffix[32];
    size_t tail = (size_t)suffix_of(suffix, part, s->n);
    char *path = malloc((size_t)s->stem + tail + 1);
    if (!path) {
        err_set(s->e, ERR_MEMORY, "no memory for a path");
        return NULL;
    }
    memcpy(path, s->g->path, (size_t)s->stem);
    memcpy(path + s->stem, suffix, tail + 1);
    return path;
}

/* What is missing is known before the first part is opened: a download that is not complete. */
static bool check_present(const struct split *s)
{
    char names[MAX_MISSING_NAMED * 32] = "", suffix[32];
    int n_missing = 0, at = 0;
    for (uint32_t i = 1; i < s->n; i++) {
        char *path = part_path(s, i);
        if (!path)
            return false;
        if (access(path, F_OK) != 0 && n_missing++ < MAX_MISSING_NAMED) {
            suffix_of(suffix, i, s->n);
            at +=
                snprintf(names + at, sizeof names - (size_t)at, "%s...%s", at ? ", " : "", suffix);
        }
        free(path);
    }
    if (n_missing == 0)
        return true;
    return gguf_err(s->g, s->e, ERR_NOT_FOUND, "%d of the %" PRIu32 " parts are missing: %s%s",
                    n_missing, s->n, names, n_missing > MAX_MISSING_NAMED ? ", ..." : "");
}

static bool check_part(const struct gguf *g, uint32_t part, const struct split *s)
{
    uint32_t no, n;
    if (!gguf_u32(g, "split.no", &no, s->e) || !gguf_u32(g, "split.count", &n, s->e))
        return false;
    if (no != part || n != s->n)
        return gguf_err(g, s->e, ERR_INVALID,
                        "part %" PRIu64 " of %" PRIu32 " by its header, expected part %" PRIu64
                        " of %" PRIu32,
                        (uint64_t)no + 1, n, (uint64_t)part + 1, s->n);
    return true;
}

/* The part's tensors join those of the first, which owns the part from then on. */
static bool append_part(struct split *s, struct gguf *part)
{
    struct gguf *g = s->g;
    const uint64_t n = g->n_tensors + part->n_tensors; /* each at most 2^24 */
    struct gguf_tensor *tensors = realloc(g->tensors, (n ? n : 1) * sizeof *tensors);
    if (!tensors)
        return err_set(s->e, ERR_MEMORY, "no memory for %" PRIu64 " tensors", n);
    g->tensors = tensors;
    if (part->n_tensors > 0)
        memcpy(tensors + g->n_tensors, part->tensors, part->n_tensors * sizeof *tensors);
    g->n_tensors = n;
    g->parts[g->n_parts++] = part;
    return true;
}

static bool join_part(struct split *s, uint32_t i)
{
    char *path = part_path(s, i);
    struct gguf *part = path ? gguf_open(path, s->e) : NULL;
    free(path);
    if (!part)
        return false;
    if (check_part(part, i, s) && append_part(s, part))
        return true;
    gguf_close(part);
    return false;
}

static bool join_all(struct split *s)
{
    struct gguf *g = s->g;
    g->parts = calloc(s->n, sizeof *g->parts);
    if (!g->parts)
        return err_set(s->e, ERR_MEMORY, "no memory for %" PRIu32 " parts", s->n);
    for (uint32_t i = 1; i < s->n; i++)
        if (!join_part(s, i))
            return false;
    if (s->counted && g->n_tensors != s->n_tensors)
        return gguf_err(g, s->e, ERR_INVALID,
                        "the %" PRIu32 " parts have %" PRIu64 " tensors, expected %" PRIu32
                        " (split.tensors.count)",
                        s->n, g->n_tensors, s->n_tensors);
    free(g->tensor_index.by_name);
    g->tensor_index = (struct gguf_index){0};
    return gguf_index_build(&g->tensor_index, g->tensors, sizeof *g->tensors, g->n_tensors,
                            "tensor", s->e) ||
           err_prefix(s->e, "%s", g->shown_path);
}

static bool check_first(struct split *s)
{
    char suffix[32];
    uint32_t no;
    if (!gguf_u32_or(s->g, "split.no", 0, &no, s->e))
        return false;
    suffix_of(suffix, 0, s->n);
    if (s->n > MAX_PARTS)
        return gguf_err(s->g, s->e, ERR_LIMIT, "split.count is %" PRIu32 ", expected at most %d",
                        s->n, MAX_PARTS);
    if (no != 0)
        return gguf_err(s->g, s->e, ERR_INVALID,
                        "part %" PRIu64 " of a model that is split into %" PRIu32
                        "; name the first, which ends in \"%s\"",
                        (uint64_t)no + 1, s->n, suffix);
    s->stem = stem_of(s->g->path, 0, s->n);
    if (s->stem < 0)
        return gguf_err(s->g, s->e, ERR_INVALID,
                        "the first of %" PRIu32 " parts of a model, whose name should end in "
                        "\"%s\": the others are found by it",
                        s->n, suffix);
    s->counted = gguf_has(s->g, "split.tensors.count");
    return !s->counted || gguf_u32(s->g, "split.tensors.count", &s->n_tensors, s->e);
}

bool gguf_join_parts(struct gguf *g, struct err *e)
{
    struct split s = {.g = g, .e = e};
    if (!gguf_u32_or(g, "split.count", 1, &s.n, e))
        return false;
    return s.n <= 1 || g->n_parts > 0 || (check_first(&s) && check_present(&s) && join_all(&s));
}

bool gguf_is_whole(const struct gguf *g)
{
    uint32_t n;
    return gguf_u32_or(g, "split.count", 1, &n, NULL) && (n <= 1 || (uint32_t)g->n_parts + 1 == n);
}
