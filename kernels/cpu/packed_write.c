/* Writing a file of packed weights: under another name, from front to back, then renamed. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "packed_form.h"

/* Large aligned pieces: the page cache then holds the file in huge pages, where it can. */
#define PIECE ((size_t)2 * PACKED_ALIGN)
#define BEHIND (16 * (uint64_t)PIECE) /* what the disk may have yet to write */

struct writer {
    int fd;
    const atomic_bool *stop;
    uint64_t at;     /* of the file, where `piece` goes */
    uint8_t *piece;  /* [PIECE] */
    size_t in_piece; /* bytes of it that are filled */
    struct err *e;
};

/* The disk keeps up with what is written, so that neither memory fills with what it has not got
 * nor the last wait is long, in which nobody can stop us. Errors show there. */
static void write_back(const struct writer *w)
{
    const unsigned wait =
        SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER;
    sync_file_range(w->fd, (off_t)w->at, (off_t)w->in_piece, SYNC_FILE_RANGE_WRITE);
    if (w->at >= BEHIND)
        sync_file_range(w->fd, (off_t)(w->at - BEHIND), (off_t)PIECE, wait);
}

static bool flush(struct writer *w)
{
    if (atomic_load(w->stop))
        return err_set(w->e, ERR_LIMIT, "told to stop");
    for (size_t done = 0; done < w->in_piece;) {
        const ssize_t k = pwrite(w->fd, w->piece + done, w->in_piece - done, (off_t)(w->at + done));
        if (k < 0 && errno == EINTR)
            continue;
        if (k <= 0)
            return err_errno(w->e, "cannot write it");
        done += (size_t)k;
    }
    write_back(w);
    w->at += w->in_piece;
    w->in_piece = 0;
    return true;
}

/* data NULL: zeros */
static bool put(struct writer *w, const uint8_t *data, uint64_t n)
{
    while (n > 0) {
        const size_t room = PIECE - w->in_piece, k = n < room ? (size_t)n : room;
        if (data)
            memcpy(w->piece + w->in_piece, data, k);
        else
            memset(w->piece + w->in_piece, 0, k);
        w->in_piece += k;
        data = data ? data + k : NULL;
        n -= k;
        if (w->in_piece == PIECE && !flush(w))
            return false;
    }
    return true;
}

static bool hash_weight(const struct packed_weight *w, uint64_t *out)
{
    const size_t n = packed_n_chunks(w->bytes);
    uint64_t *hashes = malloc((n ? n : 1) * sizeof *hashes);
    if (!hashes)
        return false;
    for (size_t i = 0; i < n; i++)
        hashes[i] = packed_chunk_hash(w->data, w->bytes, i);
    *out = packed_hash(hashes, n * sizeof *hashes);
    free(hashes);
    return true;
}

static void layout_table(struct packed_header *h, struct packed_entry *table,
                         const struct packed_weight *weights)
{
    uint64_t at = h->data_at;
    for (uint64_t i = 0; i < h->n; i++) {
        const struct packed_weight *w = &weights[i];
        table[i] =
            (struct packed_entry){(uint64_t)w->type, w->rows, w->cols, w->source, at, w->bytes, 0};
        at = packed_round_up(at + w->bytes, 64);
    }
    h->file_bytes = at;
}

/* The data first; header and table, which have the hashes, last. */
static bool write_all(struct writer *w, struct packed_header *h, struct packed_entry *table,
                      const struct packed_weight *weights)
{
    w->at = h->data_at;
    for (uint64_t i = 0; i < h->n; i++) {
        const uint64_t end = i + 1 < h->n ? table[i + 1].at : h->file_bytes;
        if (!hash_weight(&weights[i], &table[i].hash))
            return err_set(w->e, ERR_MEMORY, "no memory to write it");
        if (!put(w, weights[i].data, weights[i].bytes) ||
            !put(w, NULL, end - table[i].at - table[i].bytes))
            return false;
    }
    if (!flush(w))
        return false;
    h->table_hash = packed_hash(table, h->n * sizeof *table);
    h->hash = packed_hash(h, offsetof(struct packed_header, hash));
    w->at = 0;
    return put(w, (const uint8_t *)h, sizeof *h) &&
           put(w, (const uint8_t *)table, h->n * sizeof *table) && flush(w);
}

/* Says that the disk is full before gigabytes are written. */
static bool reserve(int fd, uint64_t bytes, struct err *e)
{
    if (fallocate(fd, 0, 0, (off_t)bytes) == 0 || (errno != ENOSPC && errno != EDQUOT))
        return ftruncate(fd, (off_t)bytes) == 0 || err_errno(e, "cannot write it");
    return err_errno(e, "cannot write %llu bytes", (unsigned long long)bytes);
}

static bool write_fd(int fd, const struct packed_key *key, const struct packed_weight *weights,
                     size_t n, const atomic_bool *stop, struct err *e)
{
    struct packed_header h = {.order = PACKED_ORDER,
                              .entry_bytes = sizeof(struct packed_entry),
                              .model = key->model,
                              .n = n};
    memcpy(h.magic, PACKED_MAGIC, sizeof h.magic);
    snprintf(h.layout, sizeof h.layout, "%s", key->layout);
    h.data_at = packed_round_up(sizeof h + n * sizeof(struct packed_entry), PACKED_ALIGN);
    struct packed_entry *table = calloc(n ? n : 1, sizeof *table);
    struct writer w = {.fd = fd, .stop = stop, .piece = aligned_alloc(64, PIECE), .e = e};
    bool ok = table && w.piece ? true : err_set(e, ERR_MEMORY, "no memory to write it");
    if (ok) {
        layout_table(&h, table, weights);
        ok = reserve(fd, h.file_bytes, e) && write_all(&w, &h, table, weights) &&
             (fdatasync(fd) == 0 || err_errno(e, "cannot write it"));
    }
    free(w.piece);
    free(table);
    return ok;
}

/* The file that is written, empty and locked: of several processes one writes, and what one that
 * was killed has left is written over. -1 and *e. */
static int open_part(const char *part, struct err *e)
{
    struct stat ours, named;
    const int fd = open(part, O_WRONLY | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
    if (fd < 0) {
        err_errno(e, "cannot make it");
        return -1;
    }
    /* Between open and lock another process may have renamed it: then it is the file in use. */
    if (flock(fd, LOCK_EX | LOCK_NB) != 0 || fstat(fd, &ours) != 0 || stat(part, &named) != 0 ||
        ours.st_ino != named.st_ino || ours.st_dev != named.st_dev)
        err_set(e, ERR_LIMIT, "another process writes it");
    else if (!S_ISREG(ours.st_mode))
        err_set(e, ERR_INVALID, "%s is not a regular file", part);
    else if (ftruncate(fd, 0) != 0)
        err_errno(e, "cannot empty %s", part);
    else
        return fd;
    close(fd);
    return -1;
}

bool packed_write(const char *path, const struct packed_key *key,
                  const struct packed_weight *weights, size_t n, const atomic_bool *stop,
                  struct err *e)
{
    char part[4096];
    const int len = snprintf(part, sizeof part, "%s.part", path);
    if (len < 0 || (size_t)len >= sizeof part)
        return err_set(e, ERR_LIMIT, "its path is too long");
    const int fd = open_part(part, e);
    if (fd < 0)
        return false;
    bool ok = write_fd(fd, key, weights, n, stop, e);
    if (ok && rename(part, path) != 0)
        ok = err_errno(e, "cannot name it");
    if (!ok)
        unlink(part);
    close(fd); /* which unlocks it */
    return ok;
}
