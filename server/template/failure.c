#include "template.h"

#include <stdio.h>
#include <string.h>

bool template_name_line(const struct rendered *failed, struct err *e)
{
    char line[32];
    const int n = snprintf(line, sizeof line, "line %d: ", failed->error_line);
    if (failed->error_line > 0 && strncmp(e->msg, line, (size_t)n) != 0)
        err_prefix(e, "line %d", failed->error_line);
    return false;
}

bool template_raised(const struct err *e)
{
    return e->code == ERR_INVALID && strncmp(e->msg, "line ", 5) != 0;
}
