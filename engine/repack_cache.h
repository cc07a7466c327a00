/* repack_cache.h: where the packed weights of a model are kept for the next start. */
#ifndef TOKEND_REPACK_CACHE_H
#define TOKEND_REPACK_CACHE_H

#include "err.h"

/* The file of a model (a file or a directory): next to or in it where `where` is "beside", else
 * in the directory `where`, under a name that no other path has. Freed by the caller; NULL: out of
 * memory. */
char *repack_cache_path(const char *where, const char *model, struct err *e);

#endif
