/* file_map.h: a whole file in memory, read-only: mapped, or read where it is small. */
#ifndef TOKEND_FILE_MAP_H
#define TOKEND_FILE_MAP_H

#include <stddef.h>
#include <stdint.h>

#include "err.h"

struct file_map {
    const unsigned char *bytes;
    uint64_t size;
    uint64_t identity; /* another file, or this one after a change, has another */
};

/* `expected` ("a GGUF file") is for messages. Only regular files that are not empty: nothing can
 * make it wait. */
bool file_map_open(struct file_map *, const char *path, const char *expected, struct err *e);
void file_map_close(struct file_map *); /* a zeroed one is fine */

/* The identity of several files together, one after the other. */
uint64_t file_map_join(uint64_t identity, uint64_t more);
/* A part of some mapping will not be read again soon: this process lets go of its pages, the page
 * cache keeps them. */
void file_map_forget(const void *at, size_t bytes);

/* A path for messages: the tail of a long one. */
struct file_shown {
    char text[128];
};
struct file_shown file_map_shown(const char *path);

#endif
