#include "model_names.h"

#include "buf.h"
#include "model_path.h"
#include "utf8.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool has(const struct model_names *names, int count, const char *name)
{
    for (int i = 0; i < count; i++)
        if (!strcmp(names->list[i], name))
            return true;
    return false;
}

/* A name that comes twice, as where a manifest adds its alias to the default, is one. */
static bool split(struct model_names *names, const char *given, struct err *e)
{
    size_t n = strlen(given), good = utf8_check(given, n);
    if (good < n)
        return err_set(e, ERR_INVALID, "--served-model-name: expected UTF-8, byte %zu is not",
                       good);
    names->text = strdup(given);
    if (!names->text)
        return err_set(e, ERR_MEMORY, "out of memory");
    int count = 0;
    for (char *save, *p = strtok_r(names->text, ",", &save); p; p = strtok_r(NULL, ",", &save)) {
        if (has(names, count, p))
            continue;
        if (count == MODEL_NAMES_MAX)
            return err_set(e, ERR_LIMIT, "--served-model-name: expected at most %d names",
                           MODEL_NAMES_MAX);
        names->list[count++] = p;
    }
    return count > 0 || err_set(e, ERR_INVALID, "--served-model-name: expected at least one name");
}

/* The last part of a path names nothing: "." and the like. */
static bool is_nameless(const char *path)
{
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/')
        n--;
    size_t dots = n;
    while (dots > 0 && path[dots - 1] == '.')
        dots--;
    return n - dots > 0 && n - dots <= 2 && (dots == 0 || path[dots - 1] == '/');
}

static bool of_file(struct model_names *names, const char *path, struct err *e)
{
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/')
        n--;
    size_t start = model_path_is_hub_name(path) && access(path, F_OK) != 0 ? 0 : n;
    while (start > 0 && path[start - 1] != '/')
        start--;
    struct buf text = {0};
    char *last = strndup(path + start, n - start);
    if (!last)
        return err_set(e, ERR_MEMORY, "out of memory");
    utf8_replace_bad(&text, last);
    free(last);
    if (text.len > 5 && !strcmp(text.data + text.len - 5, ".gguf"))
        text.data[text.len - 5] = '\0';
    if (text.len == 0)
        buf_add_str(&text, "model");
    names->text = text.data;
    names->list[0] = text.data;
    return !text.failed || err_set(e, ERR_MEMORY, "out of memory");
}

bool model_names_read(struct model_names *names, const char *given, const char *path, struct err *e)
{
    *names = (struct model_names){0};
    char *real = !given && is_nameless(path) ? realpath(path, NULL) : NULL;
    const bool ok = given ? split(names, given, e) : of_file(names, real ? real : path, e);
    free(real);
    if (!ok)
        model_names_free(names);
    return ok;
}

void model_names_free(struct model_names *names)
{
    free(names->text);
    *names = (struct model_names){0};
}
