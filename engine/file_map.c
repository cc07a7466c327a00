#include "file_map.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

struct file_shown file_map_shown(const char *path)
{
    struct file_shown s;
    const size_t n = strlen(path), room = sizeof s.text - 1;
    if (n <= room)
        memcpy(s.text, path, n + 1);
    else
        snprintf(s.text, sizeof s.text, "...%s", path + n - (room - 3));
    return s;
}

uint64_t file_map_join(uint64_t identity, uint64_t more)
{
    identity = (identity ^ more) * 0x9E3779B97F4A7C15u; /* odd: no two give the same */
    return identity << 29 | identity >> 35;
}

static uint64_t identity_of(const struct stat *st)
{
    uint64_t id = file_map_join((uint64_t)st->st_size, (uint64_t)st->st_ino);
    id = file_map_join(id, (uint64_t)st->st_mtim.tv_sec);
    return file_map_join(id, (uint64_t)st->st_mtim.tv_nsec);
}

static bool map_fd(struct file_map *m, int fd, const char *path, const char *expected,
                   struct err *e)
{
    const struct file_shown shown = file_map_shown(path);
    struct stat st;
    if (fstat(fd, &st) != 0)
        return err_errno(e, "cannot examine %s", shown.text);
    if (S_ISDIR(st.st_mode))
        return err_set(e, ERR_INVALID, "%s is a directory, expected %s", shown.text, expected);
    if (!S_ISREG(st.st_mode))
        return err_set(e, ERR_INVALID, "%s is not a regular file, expected %s", shown.text,
                       expected);
    if (st.st_size == 0)
        return err_set(e, ERR_INVALID, "%s is empty, expected %s", shown.text, expected);
    void *bytes = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (bytes == MAP_FAILED)
        return err_errno(e, "cannot map %s", shown.text);
    m->bytes = bytes;
    m->size = (uint64_t)st.st_size;
    m->identity = identity_of(&st);
    return true;
}

bool file_map_open(struct file_map *m, const char *path, const char *expected, struct err *e)
{
    *m = (struct file_map){0};
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a FIFO must not hang us */
    if (fd < 0)
        return err_errno(e, "cannot open %s", file_map_shown(path).text);
    bool ok = map_fd(m, fd, path, expected, e);
    close(fd);
    return ok;
}

static uintptr_t page_bytes(void)
{
    return (uintptr_t)sysconf(_SC_PAGESIZE);
}

/* Whole pages only: the neighbours of a part may still be wanted. */
void file_map_forget(const void *at, size_t bytes)
{
    const uintptr_t page = page_bytes(), from = ((uintptr_t)at + page - 1) / page * page;
    const uintptr_t end = ((uintptr_t)at + bytes) / page * page;
    if (end > from)
        madvise((void *)from, end - from, MADV_DONTNEED);
}

void file_map_close(struct file_map *m)
{
    if (m->bytes)
        munmap((void *)m->bytes, m->size);
    *m = (struct file_map){0};
}
