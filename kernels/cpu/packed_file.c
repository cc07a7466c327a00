#include "packed_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "packed_form.h"

enum { MAX_ENTRIES = 1 << 24, N_SAMPLES = 8, SAMPLE_BYTES = 64 };

struct packed_file {
    struct packed_header header;
    struct packed_entry *table; /* [header.n] */
    void *map;                  /* what to unmap */
    size_t map_bytes;
    const uint8_t *data; /* of the file's header.data_at, on a huge page */
};

/* --- hashes --- */

static uint64_t turn(uint64_t h, uint64_t word)
{
    h = (h ^ word) * 0x9E3779B97F4A7C15u; /* odd: no two words give the same */
    return h << 29 | h >> 35;
}

/* Eight independent chains of words, so that multiplications overlap; then one of the chains. */
uint64_t packed_hash(const void *data, size_t n)
{
    const uint8_t *p = data;
    uint64_t h[8] = {1, 2, 3, 4, 5, 6, 7, 8}, w[8];
    for (size_t left = n; left > 0;) {
        const size_t k = left < sizeof w ? left : sizeof w;
        if (k < sizeof w)
            memset(w, 0, sizeof w);
        memcpy(w, p, k);
        for (int i = 0; i < 8; i++)
            h[i] = turn(h[i], w[i]);
        p += k;
        left -= k;
    }
    uint64_t all = n;
    for (int i = 0; i < 8; i++)
        all = turn(all, h[i]);
    return all ^ all >> 32;
}

uint64_t packed_chunk_hash(const void *data, size_t bytes, size_t i)
{
    const size_t at = i * PACKED_CHUNK, left = bytes - at;
    return packed_hash((const uint8_t *)data + at, left < PACKED_CHUNK ? left : PACKED_CHUNK);
}

uint64_t packed_sample(const void *data, size_t n)
{
    uint8_t all[N_SAMPLES * SAMPLE_BYTES];
    if (n <= sizeof all)
        return packed_hash(data, n);
    const size_t step = (n - SAMPLE_BYTES) / (N_SAMPLES - 1);
    for (size_t i = 0; i < N_SAMPLES; i++) {
        const size_t at = i + 1 < N_SAMPLES ? i * step : n - SAMPLE_BYTES;
        memcpy(all + i * SAMPLE_BYTES, (const uint8_t *)data + at, SAMPLE_BYTES);
    }
    return packed_hash(all, sizeof all) ^ n;
}

/* --- opening --- */

static bool read_all(int fd, void *to, size_t n, uint64_t at)
{
    for (uint8_t *p = to; n > 0;) {
        const ssize_t k = pread(fd, p, n, (off_t)at);
        if (k < 0 && errno == EINTR)
            continue;
        if (k <= 0)
            return false;
        p += k;
        at += (uint64_t)k;
        n -= (size_t)k;
    }
    return true;
}

static bool check_header(const struct packed_header *h, uint64_t file_bytes,
                         const struct packed_key *key, struct err *e)
{
    if (memcmp(h->magic, PACKED_MAGIC, sizeof h->magic) != 0)
        return err_set(e, ERR_INVALID, "it is no file of packed weights");
    if (h->order != PACKED_ORDER || h->entry_bytes != sizeof(struct packed_entry))
        return err_set(e, ERR_UNSUPPORTED, "it is of another version or machine");
    if (packed_hash(h, offsetof(struct packed_header, hash)) != h->hash)
        return err_set(e, ERR_INVALID, "its header is damaged");
    if (strncmp(h->layout, key->layout, sizeof h->layout) != 0)
        return err_set(e, ERR_UNSUPPORTED, "its layout is \"%.31s\", expected \"%s\"", h->layout,
                       key->layout);
    if (h->model != key->model)
        return err_set(e, ERR_NOT_FOUND, "it is of another model, or of this one before a change");
    if (h->n > MAX_ENTRIES || h->data_at % PACKED_ALIGN != 0 || h->data_at > h->file_bytes ||
        sizeof *h + h->n * sizeof(struct packed_entry) > h->data_at)
        return err_set(e, ERR_INVALID, "its header contradicts itself");
    if (h->file_bytes != file_bytes)
        return err_set(e, ERR_INVALID, "it has %llu bytes, expected %llu",
                       (unsigned long long)file_bytes, (unsigned long long)h->file_bytes);
    return true;
}

static bool read_table(struct packed_file *f, int fd, struct err *e)
{
    const struct packed_header *h = &f->header;
    const size_t bytes = h->n * sizeof *f->table;
    f->table = malloc(bytes ? bytes : 1);
    if (!f->table)
        return err_set(e, ERR_MEMORY, "no memory for %llu entries", (unsigned long long)h->n);
    if (!read_all(fd, f->table, bytes, sizeof *h) || packed_hash(f->table, bytes) != h->table_hash)
        return err_set(e, ERR_INVALID, "its table is damaged");
    for (uint64_t i = 0; i < h->n; i++) {
        const struct packed_entry *t = &f->table[i];
        if (t->at < h->data_at || t->at % 64 != 0 || t->at > h->file_bytes ||
            t->bytes > h->file_bytes - t->at)
            return err_set(e, ERR_INVALID, "weight %llu lies outside of it", (unsigned long long)i);
    }
    return true;
}

/* On a huge page's address: the page cache may hold huge pages of the file. */
static bool map_data(struct packed_file *f, int fd, struct err *e)
{
    const size_t bytes = f->header.file_bytes - f->header.data_at;
    if (bytes == 0)
        return true;
    f->map_bytes = bytes + PACKED_ALIGN;
    f->map =
        mmap(NULL, f->map_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (f->map == MAP_FAILED) {
        f->map = NULL;
        return err_errno(e, "cannot map it");
    }
    void *at = (void *)packed_round_up((uintptr_t)f->map, PACKED_ALIGN);
    f->data = mmap(at, bytes, PROT_READ, MAP_SHARED | MAP_FIXED, fd, (off_t)f->header.data_at);
    if (f->data == MAP_FAILED)
        return err_errno(e, "cannot map it");
#ifdef MADV_HUGEPAGE
    madvise(at, bytes, MADV_HUGEPAGE);
#endif
    return true;
}

static bool open_fd(struct packed_file *f, int fd, const struct packed_key *key, struct err *e)
{
    struct stat st;
    if (fstat(fd, &st) != 0)
        return err_errno(e, "cannot examine it");
    if (!S_ISREG(st.st_mode))
        return err_set(e, ERR_INVALID, "it is not a regular file");
    if (!read_all(fd, &f->header, sizeof f->header, 0))
        return err_set(e, ERR_INVALID, "it is cut short");
    return check_header(&f->header, (uint64_t)st.st_size, key, e) && read_table(f, fd, e) &&
           map_data(f, fd, e);
}

bool packed_open(struct packed_file **out, const char *path, const struct packed_key *key,
                 struct err *e)
{
    *out = NULL;
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a FIFO must not hang us */
    if (fd < 0 && errno == ENOENT)
        return err_set(e, ERR_NOT_FOUND, "it does not exist");
    if (fd < 0)
        return err_errno(e, "cannot open it");
    struct packed_file *f = calloc(1, sizeof *f);
    const bool ok = f ? open_fd(f, fd, key, e) : err_set(e, ERR_MEMORY, "no memory to open it");
    close(fd);
    if (ok)
        *out = f;
    else
        packed_close(f);
    return ok;
}

void packed_close(struct packed_file *f)
{
    if (!f)
        return;
    if (f->map)
        munmap(f->map, f->map_bytes);
    free(f->table);
    free(f);
}

size_t packed_n(const struct packed_file *f)
{
    return f->header.n;
}

/* --- reading --- */

struct hash_job {
    const uint8_t *data;
    size_t bytes;
    uint64_t *hashes;
};

static void hash_one(void *arg, int i)
{
    const struct hash_job *job = arg;
    job->hashes[i] = packed_chunk_hash(job->data, job->bytes, (size_t)i);
}

const void *packed_find(const struct packed_file *f, size_t i, const struct packed_weight *w,
                        struct team *team, struct err *e)
{
    const struct packed_entry *t = i < f->header.n ? &f->table[i] : NULL;
    if (!t || t->type != (uint64_t)w->type || t->rows != w->rows || t->cols != w->cols ||
        t->source != w->source || t->bytes != w->bytes) {
        err_set(e, ERR_NOT_FOUND, "weight %zu is another one", i);
        return NULL;
    }
    const size_t n = packed_n_chunks(w->bytes);
    struct hash_job job = {f->data + (t->at - f->header.data_at), w->bytes,
                           malloc((n ? n : 1) * sizeof *job.hashes)};
    if (!job.hashes) {
        err_set(e, ERR_MEMORY, "no memory to examine weight %zu", i);
        return NULL;
    }
    team_for(team, hash_one, &job, (int)n);
    const bool whole = packed_hash(job.hashes, n * sizeof *job.hashes) == t->hash;
    free(job.hashes);
    if (!whole)
        err_set(e, ERR_INVALID, "weight %zu is damaged", i);
    return whole ? job.data : NULL;
}
