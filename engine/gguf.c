#include "gguf.h"

#include <stdlib.h>
#include <string.h>

#include "gguf_file.h"

static struct gguf *new_gguf(const char *path, struct err *e)
{
    struct gguf *g = calloc(1, sizeof *g);
    if (!g || !(g->path = strdup(path))) {
        free(g);
        err_set(e, ERR_MEMORY, "no memory to open %.200s", path);
        return NULL;
    }
    memcpy(g->shown_path, file_map_shown(path).text, sizeof g->shown_path);
    return g;
}

static struct gguf *parse_or_close(struct gguf *g, struct err *e)
{
    if (gguf_parse(g, e))
        return g;
    err_prefix(e, "%s", g->shown_path);
    gguf_close(g);
    return NULL;
}

struct gguf *gguf_open(const char *path, struct err *e)
{
    struct gguf *g = new_gguf(path, e);
    if (!g)
        return NULL;
    if (!file_map_open(&g->map, path, "a GGUF file", e)) {
        gguf_close(g);
        return NULL;
    }
    g->bytes = g->map.bytes;
    g->size = g->map.size;
    return parse_or_close(g, e);
}

struct gguf *gguf_open_memory(const void *bytes, size_t n, struct err *e)
{
    struct gguf *g = new_gguf("(memory)", e);
    if (!g)
        return NULL;
    g->bytes = bytes;
    g->size = n;
    return parse_or_close(g, e);
}

uint64_t gguf_identity(const struct gguf *g)
{
    uint64_t id = g->map.identity;
    for (int i = 0; i < g->n_parts; i++)
        id = file_map_join(id, g->parts[i]->map.identity);
    return id;
}

void gguf_close(struct gguf *g)
{
    if (!g)
        return;
    file_map_close(&g->map);
    for (int i = 0; i < g->n_parts; i++)
        gguf_close(g->parts[i]);
    free(g->parts);
    free(g->key_index.by_name);
    free(g->tensor_index.by_name);
    free(g->keys);
    free(g->tensors);
    free(g->path);
    free(g);
}
