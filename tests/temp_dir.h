/* temp_dir.h: a directory for one test's files, gone with all that is in it at the end. */
#ifndef TOKEND_TEMP_DIR_H
#define TOKEND_TEMP_DIR_H

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct temp_dir {
    char path[64];
};

static inline void temp_dir_open(struct temp_dir *d)
{
    strcpy(d->path, "/tmp/tokend-test-XXXXXX");
    if (!mkdtemp(d->path))
        abort();
}

/* Writes a file; the directories in its name are made. */
static inline void temp_dir_write_bytes(const struct temp_dir *d, const char *name,
                                        const void *bytes, size_t n)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", d->path, name);
    for (char *at = path + strlen(d->path) + 1; (at = strchr(at, '/')); at++) {
        *at = '\0';
        mkdir(path, 0700);
        *at = '/';
    }
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(bytes, 1, n, f) != n || fclose(f) != 0)
        abort();
}

static inline void temp_dir_write(const struct temp_dir *d, const char *name, const char *text)
{
    temp_dir_write_bytes(d, name, text, strlen(text));
}

static inline int temp_dir_remove(const char *path, const struct stat *st, int kind, struct FTW *at)
{
    (void)st, (void)kind, (void)at;
    return remove(path);
}

static inline void temp_dir_close(struct temp_dir *d)
{
    nftw(d->path, temp_dir_remove, 8, FTW_DEPTH | FTW_PHYS);
}

#endif
