/* model_names.h: the names under which the API serves the model. All are valid UTF-8. */
#ifndef TOKEND_MODEL_NAMES_H
#define TOKEND_MODEL_NAMES_H

#include "err.h"

enum { MODEL_NAMES_MAX = 16 };

struct model_names {                       /* zeroed = empty; free with model_names_free */
    const char *list[MODEL_NAMES_MAX + 1]; /* NULL-terminated; the first is the one in replies */
    char *text;                            /* what they point into */
};

/* given: --served-model-name, names with commas between them, each taken as it is or refused.
 * NULL: the file's name without its ending (".": the directory's real one), where bytes that are no
 * UTF-8 become U+FFFD. */
bool model_names_read(struct model_names *, const char *given, const char *path, struct err *e);
void model_names_free(struct model_names *);

#endif
