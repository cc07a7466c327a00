#include "output.h"

#include "utf8.h"

#include <errno.h>
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
