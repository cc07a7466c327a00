#include "model_path.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "ends_in.h"
#include "file_map.h"

enum { MAX_PATH = 4096 };

bool model_path_is_hub_name(const char *s)
{
    const char *slash = strchr(s, '/');
    if (!slash || slash == s || !slash[1] || s[0] == '.' || slash[1] == '.' || strlen(s) > 200)
        return false;
    for (const char *at = s; *at; at++)
        if (at != slash && !isalnum((unsigned char)*at) && !strchr(".-_", *at))
            return false;
    return !ends_in(s, ".gguf");
}

/* --- the hub's cache: models--org--name/{refs/main, snapshots/COMMIT} --- */

static bool join(char out[MAX_PATH], const char *dir, const char *rest)
{
    int n = dir ? snprintf(out, MAX_PATH, "%s%s", dir, rest) : 0;
    return n > 0 && n < MAX_PATH;
}

static bool cache_dir(char out[MAX_PATH])
{
    const char *dir = getenv("HF_HUB_CACHE");
    if (dir && dir[0])
        return join(out, dir, "");
    if ((dir = getenv("HF_HOME")) && dir[0])
        return join(out, dir, "/hub");
    if ((dir = getenv("XDG_CACHE_HOME")) && dir[0])
        return join(out, dir, "/huggingface/hub");
    return join(out, getenv("HOME"), "/.cache/huggingface/hub");
}

static bool model_dir(char out[MAX_PATH], const char *name)
{
    char cache[MAX_PATH];
    const char *slash = strchr(name, '/');
    if (!cache_dir(cache))
        return false;
    int n =
        snprintf(out, MAX_PATH, "%s/models--%.*s--%s", cache, (int)(slash - name), name, slash + 1);
    return n > 0 && n < MAX_PATH;
}

static bool is_dir(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

/* The commit that refs/main names, which is what was fetched last. */
static bool main_commit(const char *dir, char out[80])
{
    char path[MAX_PATH];
    if (!join(path, dir, "/refs/main"))
        return false;
    struct file_map ref;
    struct err why;
    if (!file_map_open(&ref, path, "a commit", &why))
        return false;
    size_t n = ref.size < 79 ? (size_t)ref.size : 79;
    memcpy(out, ref.bytes, n);
    file_map_close(&ref);
    while (n > 0 && isspace((unsigned char)out[n - 1]))
        n--;
    out[n] = '\0';
    for (size_t i = 0; i < n; i++)
        if (!isalnum((unsigned char)out[i]))
            return false;
    return n > 0;
}

/* Without refs (a partial copy of a cache), the only one that is there. */
static bool only_commit(const char *dir, char out[80])
{
    char path[MAX_PATH];
    DIR *snapshots = join(path, dir, "/snapshots") ? opendir(path) : NULL;
    const struct dirent *f;
    int n = 0;
    while (snapshots && (f = readdir(snapshots)))
        if (f->d_name[0] != '.' && strlen(f->d_name) < 80 && n++ == 0)
            strcpy(out, f->d_name);
    if (snapshots)
        closedir(snapshots);
    return n == 1;
}

static char *find_cached(const char *name)
{
    char dir[MAX_PATH], commit[80], path[MAX_PATH];
    if (!model_dir(dir, name) || (!main_commit(dir, commit) && !only_commit(dir, commit)))
        return NULL;
    int n = snprintf(path, sizeof path, "%s/snapshots/%s", dir, commit);
    return n > 0 && n < MAX_PATH && is_dir(path) ? strdup(path) : NULL;
}

/* --- what else was named --- */

static bool refuse_file(const char *path, struct err *e)
{
    static const char *const pickles[] = {".bin", ".pt", ".pth", ".ckpt"};
    const struct file_shown p = file_map_shown(path);
    if (ends_in(path, ".safetensors") || ends_in(path, ".safetensors.index.json") ||
        ends_in(path, "config.json"))
        return err_set(e, ERR_INVALID,
                       "%s is one file of a Hugging Face model: name the directory that it is in, "
                       "which has config.json and the tokenizer, too",
                       p.text);
    for (size_t i = 0; i < sizeof pickles / sizeof *pickles; i++)
        if (ends_in(path, pickles[i]))
            return err_set(e, ERR_UNSUPPORTED,
                           "%s: PyTorch files are not read; expected a GGUF file, or a directory "
                           "with config.json and safetensors",
                           p.text);
    return true;
}

char *model_path_find(const char *model, struct err *e)
{
    struct stat st;
    char *path;
    if (stat(model, &st) == 0) {
        if (!S_ISDIR(st.st_mode) && !refuse_file(model, e))
            return NULL;
        if ((path = strdup(model)) == NULL)
            err_set(e, ERR_MEMORY, "no memory for a path");
        return path;
    }
    if (errno != ENOENT && errno != ENOTDIR) {
        err_errno(e, "cannot examine %s", file_map_shown(model).text);
        return NULL;
    }
    if (!model_path_is_hub_name(model)) {
        err_set(e, ERR_NOT_FOUND,
                "%s does not exist: expected a file, a directory, or a name of the Hugging Face "
                "hub (org/name) that was fetched before (hf download org/name)",
                model[0] ? file_map_shown(model).text : "\"\"");
        return NULL;
    }
    if ((path = find_cached(model)))
        return path;
    err_set(e, ERR_NOT_FOUND,
            "%.100s is neither a file or directory nor in the Hugging Face cache of this machine. "
            "If it is a name of the hub, fetch it first (hf download %.100s) and start again; "
            "nothing is downloaded here",
            model, model);
    return NULL;
}
