/* blocks.h: the CPU backend's memory, taken at load and freed all together at close.
 *
 * Blocks are zeroed and aligned to 64 bytes (2 MiB and with huge pages asked for when large).
 * Only the thread that owns the backend calls these. */
#ifndef TOKEND_BLOCKS_H
#define TOKEND_BLOCKS_H

#include <stddef.h>
#include <stdint.h>

#include "err.h"

struct block;

struct blocks {
    struct block *head;
    uint8_t *chunk; /* where blocks_pack puts the next one */
    size_t chunk_left;
    uint64_t spread; /* memory nodes, as bits, over which large blocks are spread evenly; 0: a page
                        lies near to who first writes it */
};

/* Takes `count` items of `size` bytes and adds their bytes to *total (may be NULL). NULL and
 * *e, which names `what`, when there is not as much memory. */
void *blocks_take(struct blocks *, size_t count, size_t size, const char *what, uint64_t *total,
                  struct err *e);
/* As blocks_take for what stays until the end: blocks too small for huge pages of their own lie
 * side by side in some that they share. */
void *blocks_pack(struct blocks *, size_t count, size_t size, const char *what, uint64_t *total,
                  struct err *e);
/* Gives one block of blocks_take back before its time; NULL is fine. */
void blocks_give(struct blocks *, void *data, uint64_t *total);
void blocks_free(struct blocks *);

#endif
