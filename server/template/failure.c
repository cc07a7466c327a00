#include "template.h"

bool template_name_line(const struct rendered *failed, struct err *e)
{
    if (failed->raised)
        err_prefix(e, "line %d", failed->error_line);
    return false;
}
