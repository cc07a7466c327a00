/* Stand-ins for the calls of cuBLASLt that the backend makes, with NVIDIA's prototypes. They take
 * what we rely on and refuse the rest, as the library refuses what it does not have; what it would
 * read or write wrongly is reported. A product is done when its stream comes to it, k ascending. */
#include "cublas_calls.h"
#include "emu_control.h"
#include "runtime.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <set>
#include <string>
#include <vector>

struct product_desc {
    cublasComputeType_t compute;
    cudaDataType_t scale;
    int32_t trans_a, trans_b;
    uint32_t epilogue;
    const void *bias;
};
struct layout {
    cudaDataType_t type;
    uint64_t rows, cols;
    int64_t ld;
};
struct preference {
    uint64_t workspace;
    uint32_t reductions, alignment[4]; /* of A, B, C, D */
};
/* What a cublasLtMatmulAlgo_t holds: the product that it was chosen for */
struct way {
    uint32_t mark, epilogue;
    uint32_t type, rows, k, most;
    uint64_t workspace;
    uint32_t alignment;
};
static const uint32_t way_mark = 0xb1a5;
static_assert(sizeof(way) <= sizeof(cublasLtMatmulAlgo_t), "fits");

static emu_cublas_options options;
static int n_products;
static std::set<const void *> alive;

void emu_cublas(const emu_cublas_options *o)
{
    options = *o;
    n_products = 0;
}

int emu_cublas_products(void)
{
    return n_products;
}

int emu_cublas_alive(void)
{
    return (int)alive.size();
}

/* --- objects --- */

template <class T, class H> static cublasStatus_t make(H *handle, const T &value)
{
    T *made = new T(value);
    alive.insert(made);
    *handle = (H)made;
    return CUBLAS_STATUS_SUCCESS;
}

static bool is_alive(const void *p, const char *call)
{
    if (alive.count(p))
        return true;
    emu_report(std::string(call) + ": not an object of the library's");
    return false;
}

template <class T> static cublasStatus_t give(T *p, const char *call)
{
    if (!is_alive(p, call))
        return CUBLAS_STATUS_INVALID_VALUE;
    alive.erase(p);
    delete p;
    return CUBLAS_STATUS_SUCCESS;
}

template <class T> static cublasStatus_t take(T *to, const void *from, size_t size)
{
    if (size != sizeof *to)
        return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(to, from, size);
    return CUBLAS_STATUS_SUCCESS;
}

extern "C" {
cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle)
{
    return make(handle, 0);
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle)
{
    return give((int *)handle, "cublasLtDestroy");
}

size_t cublasLtGetVersion(void)
{
    return CUBLAS_VERSION;
}

const char *cublasLtGetStatusName(cublasStatus_t s)
{
    return s == CUBLAS_STATUS_SUCCESS            ? "CUBLAS_STATUS_SUCCESS"
           : s == CUBLAS_STATUS_NOT_SUPPORTED    ? "CUBLAS_STATUS_NOT_SUPPORTED"
           : s == CUBLAS_STATUS_EXECUTION_FAILED ? "CUBLAS_STATUS_EXECUTION_FAILED"
                                                 : "CUBLAS_STATUS_INVALID_VALUE";
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *d, cublasComputeType_t compute,
                                        cudaDataType_t scale)
{
    return make(d, product_desc{compute, scale, CUBLAS_OP_N, CUBLAS_OP_N, CUBLASLT_EPILOGUE_DEFAULT,
                                nullptr});
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t d)
{
    return give((product_desc *)d, "cublasLtMatmulDescDestroy");
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc,
                                              cublasLtMatmulDescAttributes_t a, const void *from,
                                              size_t size)
{
    product_desc *d = (product_desc *)desc;
    if (!is_alive(d, "cublasLtMatmulDescSetAttribute"))
        return CUBLAS_STATUS_INVALID_VALUE;
    if (a == CUBLASLT_MATMUL_DESC_TRANSA)
        return take(&d->trans_a, from, size);
    if (a == CUBLASLT_MATMUL_DESC_TRANSB)
        return take(&d->trans_b, from, size);
    if (a == CUBLASLT_MATMUL_DESC_EPILOGUE)
        return take(&d->epilogue, from, size);
    if (a == CUBLASLT_MATMUL_DESC_BIAS_POINTER)
        return take(&d->bias, from, size);
    emu_report("cublasLtMatmulDescSetAttribute: an attribute that the stand-in does not have");
    return CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *l, cudaDataType type,
                                          uint64_t rows, uint64_t cols, int64_t ld)
{
    return make(l, layout{type, rows, cols, ld});
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t l)
{
    return give((layout *)l, "cublasLtMatrixLayoutDestroy");
}

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t matrix,
                                                cublasLtMatrixLayoutAttribute_t a, const void *from,
                                                size_t size)
{
    layout *l = (layout *)matrix;
    if (!is_alive(l, "cublasLtMatrixLayoutSetAttribute"))
        return CUBLAS_STATUS_INVALID_VALUE;
    if (a == CUBLASLT_MATRIX_LAYOUT_ROWS)
        return take(&l->rows, from, size);
    if (a == CUBLASLT_MATRIX_LAYOUT_COLS)
        return take(&l->cols, from, size);
    if (a == CUBLASLT_MATRIX_LAYOUT_LD)
        return take(&l->ld, from, size);
    emu_report("cublasLtMatrixLayoutSetAttribute: an attribute that the stand-in does not have");
    return CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *p)
{
    return make(p, preference{0, CUBLASLT_REDUCTION_SCHEME_MASK, {256, 256, 256, 256}});
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t p)
{
    return give((preference *)p, "cublasLtMatmulPreferenceDestroy");
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t wish,
                                                    cublasLtMatmulPreferenceAttributes_t a,
                                                    const void *from, size_t size)
{
    preference *p = (preference *)wish;
    if (!is_alive(p, "cublasLtMatmulPreferenceSetAttribute"))
        return CUBLAS_STATUS_INVALID_VALUE;
    if (a == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES)
        return take(&p->workspace, from, size);
    if (a == CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK)
        return take(&p->reductions, from, size);
    for (int i = 0; i < 4; i++)
        if (a == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES + i)
            return take(&p->alignment[i], from, size);
    emu_report("cublasLtMatmulPreferenceSetAttribute: one that the stand-in does not have");
    return CUBLAS_STATUS_INVALID_VALUE;
}
}

/* --- what is supported --- */

/* As the library's table of types has it: two operands of one type, sums and result in float32 */
static bool has_types(const product_desc &d, const layout &a, const layout &b, const layout &c,
                      const layout &out)
{
    return (d.compute == CUBLAS_COMPUTE_32F || d.compute == CUBLAS_COMPUTE_32F_PEDANTIC) &&
           d.scale == CUDA_R_32F && a.type == b.type && c.type == CUDA_R_32F &&
           out.type == CUDA_R_32F &&
           (a.type == CUDA_R_32F || a.type == CUDA_R_16F || a.type == CUDA_R_16BF) &&
           (d.epilogue == CUBLASLT_EPILOGUE_DEFAULT || d.epilogue == CUBLASLT_EPILOGUE_BIAS);
}

static size_t type_bytes(cudaDataType_t t)
{
    return t == CUDA_R_32F ? 4 : 2;
}

static bool has_shapes(const product_desc &d, const layout &a, const layout &b, const layout &c,
                       const layout &out)
{
    return d.trans_a == CUBLAS_OP_T && d.trans_b == CUBLAS_OP_N && a.rows == b.rows &&
           a.cols == out.rows && b.cols == out.cols && c.rows == out.rows && c.cols == out.cols &&
           a.ld >= (int64_t)a.rows && b.ld >= (int64_t)b.rows && c.ld == out.ld &&
           out.ld >= (int64_t)out.rows && a.rows && a.cols && b.cols;
}

/* Columns must start where tensor cores' loads may. */
static bool has_strides(const layout &a, const layout &b)
{
    return a.ld * type_bytes(a.type) % 16 == 0 && b.ld * type_bytes(b.type) % 16 == 0;
}

static cublasStatus_t supported(const product_desc &d, const layout &a, const layout &b,
                                const layout &c, const layout &out)
{
    if (!has_shapes(d, a, b, c, out))
        return CUBLAS_STATUS_INVALID_VALUE;
    return has_types(d, a, b, c, out) && has_strides(a, b) ? CUBLAS_STATUS_SUCCESS
                                                           : CUBLAS_STATUS_NOT_SUPPORTED;
}

extern "C" cublasStatus_t cublasLtMatmulAlgoGetHeuristic(
    cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t la,
    cublasLtMatrixLayout_t lb, cublasLtMatrixLayout_t lc, cublasLtMatrixLayout_t ld,
    cublasLtMatmulPreference_t wish, int wanted, cublasLtMatmulHeuristicResult_t found[], int *n)
{
    const void *const all[] = {handle, desc, la, lb, lc, ld, wish};
    for (const void *p : all)
        if (!is_alive(p, "cublasLtMatmulAlgoGetHeuristic"))
            return CUBLAS_STATUS_INVALID_VALUE;
    const product_desc &d = *(const product_desc *)desc;
    const layout &a = *(const layout *)la, &b = *(const layout *)lb, &out = *(const layout *)ld;
    const preference &p = *(const preference *)wish;
    *n = 0;
    const cublasStatus_t status = supported(d, a, b, *(const layout *)lc, out);
    if (status != CUBLAS_STATUS_SUCCESS)
        return status;
    if (wanted < 1 || options.no_way)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    /* narrow results are cut along k, two sums each */
    uint64_t workspace = out.cols <= 64 ? out.rows * out.cols * 2 * sizeof(float) : 0;
    if (workspace > p.workspace || !(p.reductions & CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE))
        workspace = 0;
    const way w = {way_mark,         d.epilogue,       (uint32_t)a.type, (uint32_t)a.cols,
                   (uint32_t)a.rows, (uint32_t)b.cols, workspace,        p.alignment[0]};
    memset(found, 0, sizeof *found);
    memcpy(&found->algo, &w, sizeof w);
    found->workspaceSize = workspace;
    found->state = CUBLAS_STATUS_SUCCESS;
    found->wavesCount = 1;
    *n = 1;
    return CUBLAS_STATUS_SUCCESS;
}

/* --- products --- */

static float value_at(cudaDataType_t type, const void *values, size_t i)
{
    if (type == CUDA_R_32F)
        return ((const float *)values)[i];
    if (type == CUDA_R_16F)
        return __half2float(((const __half *)values)[i]);
    return __bfloat162float(((const __nv_bfloat16 *)values)[i]);
}

/* All that a product reads, as its call found it */
struct product {
    cudaDataType_t type;
    size_t m, n, k, lda, ldb, ldd;
    float alpha, beta;
    const void *a, *b;
    const float *bias, *c;
    float *d;
    void *workspace;
    size_t workspace_bytes;
};

static void multiply(const product &p)
{
    memset(p.workspace, 0xff, p.workspace_bytes); /* nobody else's meanwhile */
    std::vector<float> column(p.k);
    for (size_t j = 0; j < p.n; j++) {
        for (size_t k = 0; k < p.k; k++)
            column[k] = value_at(p.type, p.b, j * p.ldb + k);
        for (size_t i = 0; i < p.m; i++) {
            float sum = 0;
            for (size_t k = 0; k < p.k; k++)
                sum += value_at(p.type, p.a, i * p.lda + k) * column[k];
            sum *= p.alpha;
            if (p.beta != 0)
                sum += p.beta * p.c[j * p.ldd + i];
            p.d[j * p.ldd + i] = sum + (p.bias ? p.bias[i] : 0);
        }
    }
}

/* Whether memory is the device's, whole and aligned */
static bool is_there(const char *what, const void *p, size_t bytes, size_t alignment)
{
    bool whole;
    if (memory_at(p, bytes, &whole) == MEMORY_DEVICE && whole && (uintptr_t)p % alignment == 0)
        return true;
    emu_report(std::string("cublasLtMatmul: ") + what +
               " is not aligned, or not memory of the device to its end");
    return false;
}

static bool is_all_there(const product &p, size_t alignment)
{
    const size_t size = type_bytes(p.type);
    return is_there("A", p.a, ((p.m - 1) * p.lda + p.k) * size, alignment) &&
           is_there("B", p.b, ((p.n - 1) * p.ldb + p.k) * size, alignment) &&
           is_there("D", p.d, ((p.n - 1) * p.ldd + p.m) * sizeof(float), alignment) &&
           (p.beta == 0 || p.c == p.d ||
            is_there("C", p.c, ((p.n - 1) * p.ldd + p.m) * sizeof(float), alignment)) &&
           (!p.bias || is_there("the bias", p.bias, p.m * sizeof(float), 16)) &&
           (!p.workspace_bytes || is_there("the workspace", p.workspace, p.workspace_bytes, 256));
}

/* An algorithm may serve fewer columns than it was asked for, nothing else. */
static bool serves(const way &w, const product_desc &d, const product &p, size_t workspace)
{
    if (w.mark != way_mark || w.epilogue != d.epilogue || w.type != (uint32_t)p.type ||
        w.rows != p.m || w.k != p.k || w.most < p.n) {
        emu_report("cublasLtMatmul: the algorithm is of another product");
        return false;
    }
    if (w.workspace > workspace)
        emu_report("cublasLtMatmul: a workspace that is too small");
    return w.workspace <= workspace;
}

extern "C" cublasStatus_t cublasLtMatmul(
    cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void *alpha, const void *at_a,
    cublasLtMatrixLayout_t la, const void *at_b, cublasLtMatrixLayout_t lb, const void *beta,
    const void *at_c, cublasLtMatrixLayout_t lc, void *at_d, cublasLtMatrixLayout_t ld,
    const cublasLtMatmulAlgo_t *algo, void *workspace, size_t workspace_bytes, cudaStream_t stream)
{
    const void *const all[] = {handle, desc, la, lb, lc, ld};
    for (const void *p : all)
        if (!is_alive(p, "cublasLtMatmul"))
            return CUBLAS_STATUS_INVALID_VALUE;
    const product_desc &d = *(const product_desc *)desc;
    const layout &a = *(const layout *)la, &b = *(const layout *)lb, &out = *(const layout *)ld;
    const cublasStatus_t status = supported(d, a, b, *(const layout *)lc, out);
    if (status != CUBLAS_STATUS_SUCCESS)
        return status;
    way w;
    memcpy(&w, algo, sizeof w);
    const bool biased = d.epilogue == CUBLASLT_EPILOGUE_BIAS;
    const product p = {a.type,
                       out.rows,
                       out.cols,
                       a.rows,
                       (size_t)a.ld,
                       (size_t)b.ld,
                       (size_t)out.ld,
                       *(const float *)alpha,
                       *(const float *)beta,
                       at_a,
                       at_b,
                       biased ? (const float *)d.bias : nullptr,
                       (const float *)at_c,
                       (float *)at_d,
                       workspace,
                       w.workspace};
    if (biased && !d.bias)
        emu_report("cublasLtMatmul: a bias that nobody set");
    if ((biased && !d.bias) || !serves(w, d, p, workspace_bytes) || !is_all_there(p, w.alignment))
        return CUBLAS_STATUS_INVALID_VALUE;
    if (options.fail_at > 0 && --options.fail_at == 0)
        return CUBLAS_STATUS_EXECUTION_FAILED;
    n_products++;
    return runtime_enqueue(stream,
                           [p] {
                               multiply(p);
                               return cudaSuccess;
                           }) == cudaSuccess
               ? CUBLAS_STATUS_SUCCESS
               : CUBLAS_STATUS_EXECUTION_FAILED;
}

/* --- in place of dlopen --- */

bool cublas_library_load(int which, cublas_calls *calls, err *e)
{
    if (options.missing || which > 0)
        return err_set(e, ERR_NOT_FOUND, "the emulated library %d is missing", which);
#define CALL(name) calls->name = cublasLt##name;
    CUBLAS_CALLS(CALL)
#undef CALL
    return true;
}
