#include "output.h"

#include <errno.h>
#include <stdio.h>

bool output_flush(struct err *e)
{
    errno = 0;
    if (fflush(stdout) == 0 && !ferror(stdout))
        return true;
    if (errno == 0)
        errno = EIO;
    return err_errno(e, "standard output");
}
