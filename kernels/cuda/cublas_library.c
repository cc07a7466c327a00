/* cublas_library.c: cuBLASLt by dlopen. */
#include "cublas_calls.h"

#include <dlfcn.h>
#include <string.h>

static bool find(void *library, const char *file, const char *name, void *call, struct err *e)
{
    void *symbol = dlsym(library, name);
    if (!symbol)
        return err_set(e, ERR_UNSUPPORTED, "%s has no %s", file, name);
    memcpy(call, &symbol, sizeof symbol); /* ISO C has no cast to a pointer of a function */
    return true;
}

bool cublas_library_load(int which, struct cublas_calls *calls, struct err *e)
{
    static const char *const files[CUBLAS_LIBRARIES] = {"libcublasLt.so.13", "libcublasLt.so.12"};
    const char *file = files[which];
    void *library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return err_set(e, ERR_NOT_FOUND, "%s", dlerror());
#define CALL(name)                                                                                 \
    if (!find(library, file, "cublasLt" #name, &calls->name, e))                                   \
        return false;
    CUBLAS_CALLS(CALL)
#undef CALL
    return true;
}
