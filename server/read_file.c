#include "read_file.h"

#include <stdio.h>

bool read_file(const char *path, size_t most, struct buf *out, struct err *e)
{
    enum { PIECE = 16384 };
    FILE *f = fopen(path, "rb");
    if (!f)
        return err_errno(e, "%s", path);
    const size_t before = out->len;
    size_t n = 1;
    char *at;
    while (n && out->len - before <= most && (at = buf_reserve(out, PIECE))) {
        n = fread(at, 1, PIECE, f);
        out->len += n;
    }
    bool ok = true;
    if (ferror(f))
        ok = err_errno(e, "%s", path);
    else if (out->failed)
        ok = err_set(e, ERR_MEMORY, "%s: out of memory", path);
    else if (out->len - before > most)
        ok = err_set(e, ERR_LIMIT, "%s: over %zu bytes", path, most);
    fclose(f);
    return ok;
}
