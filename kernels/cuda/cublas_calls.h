/* cublas_calls.h: the calls of cuBLASLt that we use, found at run time, so that the module works
 * where the library is not. */
#ifndef TOKEND_CUBLAS_CALLS_H
#define TOKEND_CUBLAS_CALLS_H

#include <cublasLt.h>

#ifdef __cplusplus
extern "C" {
#endif

#include "err.h"

#define CUBLAS_CALLS(CALL)                                                                         \
    CALL(Create)                                                                                   \
    CALL(Destroy)                                                                                  \
    CALL(GetVersion)                                                                               \
    CALL(GetStatusName)                                                                            \
    CALL(MatmulDescCreate)                                                                         \
    CALL(MatmulDescDestroy)                                                                        \
    CALL(MatmulDescSetAttribute)                                                                   \
    CALL(MatrixLayoutCreate)                                                                       \
    CALL(MatrixLayoutDestroy)                                                                      \
    CALL(MatrixLayoutSetAttribute)                                                                 \
    CALL(MatmulPreferenceCreate)                                                                   \
    CALL(MatmulPreferenceDestroy)                                                                  \
    CALL(MatmulPreferenceSetAttribute)                                                             \
    CALL(MatmulAlgoGetHeuristic)                                                                   \
    CALL(Matmul)

struct cublas_calls {
#define CALL(name) __typeof__(&cublasLt##name) name;
    CUBLAS_CALLS(CALL)
#undef CALL
};

enum { CUBLAS_LIBRARIES = 2 }; /* versions of the library that may serve, the newest first */
/* Loads library `which`, which stays so until the process ends. False and *e: there is none, or it
 * lacks a call. */
bool cublas_library_load(int which, struct cublas_calls *, struct err *e);

#ifdef __cplusplus
}
#endif

#endif
