#include "log.h"

#include "utf8.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static enum log_level least_level = LOG_INFO;
static enum log_format line_format = LOG_TEXT;
static const char *const level_names[] = {"debug", "info", "warn", "error"};

void log_setup(enum log_level least, enum log_format format)
{
    least_level = least;
    line_format = format;
}

enum log_level log_least(void)
{
    return least_level;
}

enum log_format log_format_of_lines(void)
{
    return line_format;
}

/* Appends s to out (cap bytes, room kept for an ending), escaping what would break a line. */
static size_t escape(char *out, size_t at, size_t cap, const char *s)
{
    for (const char *end = s + strlen(s); s < end && at + 16 < cap;) {
        int n = utf8_char(s, (size_t)(end - s));
        unsigned char c = (unsigned char)*s;
        if (n == 0 || c < 0x20 || c == 0x7F) {
            at += (size_t)snprintf(out + at, cap - at,
                                   line_format == LOG_JSON ? "\\u%04x" : "\\x%02x", c);
            s++;
        } else {
            if (line_format == LOG_JSON && (c == '"' || c == '\\'))
                out[at++] = '\\';
            memcpy(out + at, s, (size_t)n);
            at += (size_t)n;
            s += n;
        }
    }
    return at;
}

void log_line(enum log_level level, const char *fmt, ...)
{
    if (level < least_level)
        return;
    char msg[2048], line[6400];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(msg, sizeof msg, fmt, ap);
    va_end(ap);

    struct timespec now;
    struct tm tm;
    char when[32];
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &tm);
    strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%S", &tm);

    const char *head = line_format == LOG_JSON
                           ? "{\"time\":\"%s.%03ldZ\",\"level\":\"%s\",\"message\":\""
                           : "%s.%03ldZ %-5s ";
    size_t n =
        (size_t)snprintf(line, sizeof line, head, when, now.tv_nsec / 1000000, level_names[level]);
    n = escape(line, n, sizeof line, msg);
    if (line_format == LOG_JSON) {
        line[n++] = '"';
        line[n++] = '}';
    }
    line[n++] = '\n';
    ssize_t wrote = write(STDERR_FILENO, line, n);
    (void)wrote; /* nobody is left to tell */
}
