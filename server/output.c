#include "output.h"

#include "utf8.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <string.h>

bool output_flush(struct err *e)
{
    errno = 0;
    if (fflush(stdout) == 0 && !ferror(stdout))
        return true;
    if (errno == 0)
        errno = EIO;
    return err_errno(e, "standard output");
}

bool output_file(const char *what, const char *path, const struct buf *text, struct err *e)
{
    if (text->failed)
        return err_set(e, ERR_MEMORY, "%s %s: no memory for it", what, path);
    FILE *f = fopen(path, "wbe");
    bool ok = f && fwrite(text->data, 1, text->len, f) == text->len;
    ok = f && fclose(f) == 0 && ok;
    return ok || err_errno(e, "%s %s", what, path);
}

void output_text(FILE *f, const char *text)
{
    for (const char *s = text, *end = s + strlen(s); s < end;) {
        const int n = utf8_char(s, (size_t)(end - s));
        const unsigned char *c = (const unsigned char *)s;
        const bool c1 = n == 2 && c[0] == 0xC2 && c[1] < 0xA0; /* U+0080 to U+009F */
        if (n == 0 || c1 || *c < 0x20 || *c == 0x7F)
            fprintf(f, "\\x%02x", c1 ? c[1] : *c);
        else
            fwrite(s, 1, (size_t)n, f);
        s += n ? n : 1;
    }
}

void output_number(double v, char *out, size_t cap)
{
    char digits[32];
    const int n = snprintf(digits, sizeof digits, "%.0f", fabs(v));
    size_t at = 0;
    if (v < 0 && strcmp(digits, "0") != 0)
        out[at++] = '-';
    for (int i = 0; i < n && at + 2 < cap; i++) {
        out[at++] = digits[i];
        if ((n - i) % 3 == 1 && i + 1 < n)
            out[at++] = ',';
    }
    out[at] = '\0';
}

void output_error(const char *command, const char *fmt, ...)
{
    char message[2048];
    va_list args;
    va_start(args, fmt);
    vsnprintf(message, sizeof message, fmt, args);
    va_end(args);
    fprintf(stderr, "tokend %s: ", command);
    output_text(stderr, message);
    fputc('\n', stderr);
}
