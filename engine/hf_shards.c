#include "hf_shards.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ends_in.h"
#include "hf_config.h"

enum { MAX_INDEX = 32 << 20, MAX_FILES = 2000, MAX_MISSING_NAMED = 4 };

struct hf_shards {
    const char *dir; /* while opening */
    struct safetensors **files;
    char **file_names; /* [n_files] "model-00001-of-00002.safetensors", ascending */
    size_t n_files, n_names;
    const struct st_tensor **tensors; /* by name */
    size_t n;
};

static char *path_in(const char *dir, const char *name, struct err *e)
{
    const size_t n = strlen(dir) + strlen(name) + 2;
    char *path = malloc(n);
    if (path)
        snprintf(path, n, "%s/%s", dir, name);
    else
        err_set(e, ERR_MEMORY, "no memory for a path");
    return path;
}

static bool exists(const char *dir, const char *name)
{
    char *path = path_in(dir, name, NULL);
    bool is = path && access(path, F_OK) == 0;
    free(path);
    return is;
}

/* --- which files --- */

/* The directory itself has only plain names. */
static bool is_plain_name(const char *name)
{
    return name[0] != '.' && !strchr(name, '/') && strlen(name) < 256 &&
           ends_in(name, ".safetensors");
}

static bool add_file(struct hf_shards *s, const char *name, struct err *e)
{
    char **grown = realloc(s->file_names, (s->n_names + 1) * sizeof *grown);
    if (grown)
        s->file_names = grown;
    if (!grown || !(grown[s->n_names] = strdup(name)))
        return err_set(e, ERR_MEMORY, "no memory for a file name");
    s->n_names++;
    return true;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static bool bad_entry(const struct hf_shards *s, const char *tensor, const json_t *v, struct err *e)
{
    return err_set(
        e, ERR_INVALID,
        "%s/model.safetensors.index.json: tensor \"%s\" is in %s, expected the name of a "
        ".safetensors file beside it",
        file_map_shown(s->dir).text, hf_show(tensor).text, hf_show_value(v).text);
}

/* Names of the map's files, each once. `seen` has those so far: tensors and files may be many. */
static bool add_each(struct hf_shards *s, const json_t *map, json_t *seen, struct err *e)
{
    const char *tensor;
    json_t *v;
    json_object_foreach((json_t *)map, tensor, v)
    {
        const char *name = json_string_value(v);
        if (!name || !is_plain_name(name))
            return bad_entry(s, tensor, v, e);
        if (json_object_get(seen, name))
            continue;
        if (s->n_names == MAX_FILES)
            return err_set(e, ERR_LIMIT, "more than %d files of weights", MAX_FILES);
        if (json_object_set_new(seen, name, json_true()) != 0 || !add_file(s, name, e))
            return err_set(e, ERR_MEMORY, "no memory for a file name");
    }
    return true;
}

static bool add_mapped(struct hf_shards *s, const json_t *map, struct err *e)
{
    json_t *seen = json_object();
    bool ok = add_each(s, map, seen, e);
    json_decref(seen);
    if (!ok)
        return false;
    if (s->n_names == 0)
        return err_set(e, ERR_INVALID, "%s/model.safetensors.index.json has no weight_map",
                       file_map_shown(s->dir).text);
    qsort(s->file_names, s->n_names, sizeof *s->file_names, by_text);
    return true;
}

/* What a directory without safetensors has instead. */
static bool no_weights(const char *dir, struct err *e)
{
    const struct file_shown d = file_map_shown(dir);
    DIR *open_dir = opendir(dir);
    const struct dirent *f;
    const char *found = NULL;
    char text[256] = "";
    while (open_dir && !found && (f = readdir(open_dir)))
        if (ends_in(f->d_name, ".bin") || ends_in(f->d_name, ".pth") || ends_in(f->d_name, ".pt") ||
            ends_in(f->d_name, ".gguf") || ends_in(f->d_name, ".safetensors")) {
            snprintf(text, sizeof text, "%s", hf_show(f->d_name).text);
            found = ends_in(f->d_name, ".gguf")          ? "name that file itself"
                    : ends_in(f->d_name, ".safetensors") ? "expected model.safetensors, or "
                                                           "model.safetensors.index.json beside it"
                                                         : "PyTorch weights are not read; "
                                                           "save the model as safetensors";
        }
    if (open_dir)
        closedir(open_dir);
    if (exists(dir, "adapter_config.json"))
        return err_set(e, ERR_UNSUPPORTED, "%s is an adapter, not a model: name its base model",
                       d.text);
    if (found)
        return err_set(e, ERR_UNSUPPORTED, "%s has no model.safetensors, but %s: %s", d.text, text,
                       found);
    return err_set(e, ERR_NOT_FOUND,
                   "%s has no weights: expected model.safetensors, or "
                   "model.safetensors.index.json and the files that it names",
                   d.text);
}

static bool check_present(const struct hf_shards *s, struct err *e)
{
    char names[MAX_MISSING_NAMED * 90] = "";
    size_t n_missing = 0, at = 0;
    for (size_t i = 0; i < s->n_names; i++)
        if (!exists(s->dir, s->file_names[i]) && n_missing++ < MAX_MISSING_NAMED)
            at += (size_t)snprintf(names + at, sizeof names - at, "%s%s", at ? ", " : "",
                                   hf_show(s->file_names[i]).text);
    return n_missing == 0 ||
           err_set(e, ERR_NOT_FOUND, "%s: %zu of the %zu files of weights are missing: %s%s",
                   file_map_shown(s->dir).text, n_missing, s->n_names, names,
                   n_missing > MAX_MISSING_NAMED ? ", ..." : "");
}

/* *map: the index's weight_map, which *json owns; or NULL. */
static bool find_files(struct hf_shards *s, json_t **json, const json_t **map, struct err *e)
{
    *json = NULL;
    *map = NULL;
    if (exists(s->dir, "model.safetensors"))
        return add_file(s, "model.safetensors", e);
    if (!exists(s->dir, "model.safetensors.index.json"))
        return no_weights(s->dir, e);
    char *path = path_in(s->dir, "model.safetensors.index.json", e);
    *json = path ? json_file_read(path, MAX_INDEX, e) : NULL;
    free(path);
    if (!*json)
        return false;
    *map = hf_get(*json, "weight_map");
    return add_mapped(s, *map, e) && check_present(s, e);
}

/* --- the tensors of all --- */

static int by_name(const void *x, const void *y)
{
    return strcmp((*(const struct st_tensor *const *)x)->name,
                  (*(const struct st_tensor *const *)y)->name);
}

static bool index_tensors(struct hf_shards *s, struct err *e)
{
    size_t n = 0;
    for (size_t i = 0; i < s->n_files; i++)
        n += safetensors_n(s->files[i]);
    s->tensors = calloc(n + 1, sizeof(struct st_tensor *));
    if (!s->tensors)
        return err_set(e, ERR_MEMORY, "no memory for %zu tensors", n);
    for (size_t i = 0; i < s->n_files; i++)
        for (size_t k = 0; k < safetensors_n(s->files[i]); k++)
            s->tensors[s->n++] = safetensors_at(s->files[i], k);
    qsort(s->tensors, s->n, sizeof(struct st_tensor *), by_name);
    for (size_t i = 1; i < s->n; i++)
        if (strcmp(s->tensors[i - 1]->name, s->tensors[i]->name) == 0)
            return err_set(e, ERR_INVALID, "%s: two of its files have a tensor \"%s\"",
                           file_map_shown(s->dir).text, hf_show(s->tensors[i]->name).text);
    return true;
}

static bool open_files(struct hf_shards *s, struct err *e)
{
    s->files = calloc(s->n_names, sizeof(struct safetensors *));
    if (!s->files)
        return err_set(e, ERR_MEMORY, "no memory for %zu files", s->n_names);
    for (size_t i = 0; i < s->n_names; i++) {
        char *path = path_in(s->dir, s->file_names[i], e);
        s->files[i] = path ? safetensors_open(path, e) : NULL;
        free(path);
        if (!s->files[i])
            return false;
        s->n_files++;
    }
    return index_tensors(s, e);
}

/* Files that were fetched at different times need not belong together. */
static bool check_map(const struct hf_shards *s, const json_t *map, struct err *e)
{
    const char *tensor;
    json_t *v;
    json_object_foreach((json_t *)map, tensor, v) if (!hf_shards_find(s, tensor)) return err_set(
        e, ERR_NOT_FOUND, "%s: %s has no tensor \"%s\", which model.safetensors.index.json names",
        file_map_shown(s->dir).text, hf_show_value(v).text, hf_show(tensor).text);
    return true;
}

struct hf_shards *hf_shards_open(const char *dir, struct err *e)
{
    struct hf_shards *s = calloc(1, sizeof *s);
    json_t *index = NULL;
    const json_t *map;
    if (!s) {
        err_set(e, ERR_MEMORY, "no memory to open %.200s", dir);
        return NULL;
    }
    s->dir = dir;
    bool ok = find_files(s, &index, &map, e) && open_files(s, e) && (!map || check_map(s, map, e));
    json_decref(index);
    s->dir = NULL;
    if (ok)
        return s;
    hf_shards_close(s);
    return NULL;
}

struct hf_shards *hf_shards_open_memory(const void *bytes, size_t n, struct err *e)
{
    struct hf_shards *s = calloc(1, sizeof *s);
    if (s)
        s->files = calloc(1, sizeof(struct safetensors *));
    if (!s || !s->files) {
        free(s);
        err_set(e, ERR_MEMORY, "no memory to open a file");
        return NULL;
    }
    s->dir = "(memory)";
    s->files[0] = safetensors_open_memory(bytes, n, e);
    s->n_files = s->files[0] != NULL;
    if (s->n_files && index_tensors(s, e))
        return s;
    hf_shards_close(s);
    return NULL;
}

void hf_shards_close(struct hf_shards *s)
{
    if (!s)
        return;
    for (size_t i = 0; i < s->n_files; i++)
        safetensors_close(s->files[i]);
    for (size_t i = 0; i < s->n_names; i++)
        free(s->file_names[i]);
    free(s->files);
    free(s->file_names);
    free(s->tensors);
    free(s);
}

uint64_t hf_shards_identity(const struct hf_shards *s)
{
    uint64_t id = s->n_files;
    for (size_t i = 0; i < s->n_files; i++)
        id = file_map_join(id, safetensors_identity(s->files[i]));
    return id;
}

size_t hf_shards_n_files(const struct hf_shards *s)
{
    return s->n_files;
}

size_t hf_shards_n(const struct hf_shards *s)
{
    return s->n;
}

const struct st_tensor *hf_shards_at(const struct hf_shards *s, size_t i)
{
    return s->tensors[i];
}

static const struct st_tensor **find_slot(const struct hf_shards *s, const char *name)
{
    const struct st_tensor wanted = {.name = name}, *key = &wanted;
    return s->n ? bsearch(&key, s->tensors, s->n, sizeof(struct st_tensor *), by_name) : NULL;
}

const struct st_tensor *hf_shards_find(const struct hf_shards *s, const char *name)
{
    const struct st_tensor **found = find_slot(s, name);
    return found ? *found : NULL;
}

size_t hf_shards_index(const struct hf_shards *s, const struct st_tensor *t)
{
    return (size_t)(find_slot(s, t->name) - s->tensors);
}
