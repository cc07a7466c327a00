/* log.h: lines on standard error, as text or as JSON objects.
 *
 * Any thread may log: a line is built whole and written with one write(2), so lines never
 * mix. Bytes that are not valid UTF-8, and control characters, are escaped. Set up once, at
 * start, before other threads run. */
#ifndef TOKEND_LOG_H
#define TOKEND_LOG_H

enum log_level { LOG_DEBUG, LOG_INFO, LOG_WARN, LOG_ERROR };
enum log_format { LOG_TEXT, LOG_JSON };

void log_setup(enum log_level least, enum log_format format);
/* What was set up, for a shared library that has its own copy of this */
enum log_level log_least(void);
enum log_format log_format_of_lines(void);

#define log_debug(...) log_line(LOG_DEBUG, __VA_ARGS__)
#define log_info(...) log_line(LOG_INFO, __VA_ARGS__)
#define log_warn(...) log_line(LOG_WARN, __VA_ARGS__)
#define log_error(...) log_line(LOG_ERROR, __VA_ARGS__)

void log_line(enum log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
