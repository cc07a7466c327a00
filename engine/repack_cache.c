#include "repack_cache.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* FNV-1a (Fowler, Noll, Vo) */
static uint64_t hash_text(const char *text)
{
    uint64_t h = 0xCBF29CE484222325u;
    for (; *text; text++)
        h = (h ^ (unsigned char)*text) * 0x100000001B3u;
    return h;
}

static char *beside(const char *model)
{
    struct stat st;
    char *path;
    const bool dir = stat(model, &st) == 0 && S_ISDIR(st.st_mode);
    return asprintf(&path, "%s%s.repacked", model, dir ? "/tokend" : "") < 0 ? NULL : path;
}

static char *inside(const char *dir, const char *model)
{
    char *path, *whole = realpath(model, NULL);
    const char *name = whole ? whole : model, *slash = strrchr(name, '/');
    const char *base = slash ? slash + 1 : name;
    const int n = asprintf(&path, "%s/%.200s-%016" PRIx64 ".repacked", dir, base, hash_text(name));
    free(whole);
    return n < 0 ? NULL : path;
}

char *repack_cache_path(const char *where, const char *model, struct err *e)
{
    char *path = strcmp(where, "beside") == 0 ? beside(model) : inside(where, model);
    if (!path)
        err_set(e, ERR_MEMORY, "no memory for the path of the repack cache");
    return path;
}
