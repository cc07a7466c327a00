/* test_data.h: reading the files that tests bring along (tests/data) and the big corpus. */
#ifndef TOKEND_TEST_DATA_H
#define TOKEND_TEST_DATA_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The bytes of a file, for free(), terminated by a NUL that *n does not count; NULL when it
 * cannot be read. */
static inline unsigned char *test_read_file(const char *path, size_t *n)
{
    FILE *f = fopen(path, "rb");
    if (!f)
        return NULL;
    size_t cap = 1 << 16, len = 0;
    unsigned char *bytes = malloc(cap + 1);
    while (bytes && (len += fread(bytes + len, 1, cap - len, f)) == cap)
        bytes = realloc(bytes, (cap *= 2) + 1);
    fclose(f);
    if (!bytes)
        return NULL;
    bytes[len] = '\0';
    *n = len;
    return bytes;
}

/* A file of tests/data. The tests run in Meson, which sets the variable. */
static inline unsigned char *test_read_data(const char *name, size_t *n)
{
    const char *dir = getenv("TOKEND_TEST_DATA");
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", dir ? dir : "tests/data", name);
    return test_read_file(path, n);
}

/* The folder of the big corpora (golden models and so on), which may be absent: what
 * TOKEND_CORPUS says, or ../shared/golden beside the repository. */
static inline const char *test_corpus(void)
{
    static char beside[4096];
    const char *corpus = getenv("TOKEND_CORPUS"), *data = getenv("TOKEND_TEST_DATA");
    snprintf(beside, sizeof beside, "%s/../../../shared/golden", data ? data : "tests/data");
    return corpus ? corpus : beside;
}

/* Where a model that was fetched lies. */
static inline void test_cached_model(char *out, size_t size, const char *file)
{
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    snprintf(out, size, "%s%s/tokend/models/%s", cache ? cache : (home ? home : ""),
             cache ? "" : "/.cache", file);
}

/* The default model, which config/quickstart.sh fetches */
static inline void test_default_model(char *out, size_t size)
{
    test_cached_model(out, size, "SmolLM2-135M-Instruct.Q4_1.gguf");
}

#endif
