/* cublas_none.c: cublas_linear.h of a build without cublasLt.h. */
#include "cublas_linear.h"

struct cublas *cublas_open(int max_rows, struct err *e)
{
    err_set(e, ERR_UNSUPPORTED, "this build had no cublasLt.h, which comes with cuBLAS");
    return NULL;
}

void cublas_close(struct cublas *c)
{
}

const char *cublas_version(const struct cublas *c)
{
    return "";
}

size_t cublas_workspace_wanted(int device_major)
{
    return 0;
}

void cublas_set_workspace(struct cublas *c, void *at, size_t bytes)
{
}

bool cublas_can(struct cublas *c, const struct cuda_linear *l, int n_rows)
{
    return false;
}

bool cublas_takes(struct cublas *c, const struct cuda_linear *l, int n_rows)
{
    return false;
}

bool cublas_linear(struct cublas *c, cudaStream_t s, const struct cuda_linear *l, const void *x,
                   int n_rows, struct err *e)
{
    return err_set(e, ERR_UNSUPPORTED, "this build had no cublasLt.h, which comes with cuBLAS");
}
