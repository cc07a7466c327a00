/* cuda_module.h: the CUDA backend, which lies in a library of its own (backend_module.h), so that
 * the program runs where neither CUDA nor a GPU is.
 *
 * The library is the file that TOKEND_CUDA_MODULE names; else tokend-cuda.so beside the program, or
 * in LIBDIR/tokend. Once loaded it stays so until the process ends. */
#ifndef TOKEND_CUDA_MODULE_H
#define TOKEND_CUDA_MODULE_H

#include "backend.h"

/* Whether backend_cuda_open has a GPU to open; false and *e: why not (no library, no driver, no
 * GPU, too old a one). */
bool cuda_module_usable(struct err *e);
struct backend *backend_cuda_open(const struct backend_config *, struct err *e);

#endif
