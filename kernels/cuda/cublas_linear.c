/* cublas_linear.c: plans of products, and running them.
 *
 * The library's matrices are column-major. A weight [rows][stride] is the transpose of its
 * [stride x rows], x [n][stride] its [stride x n], out [n][rows] its [rows x n]:
 *   out = w^T * x, with k = stride, zeros beyond cols on both sides: every column is aligned. */
#include "cublas_linear.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cublas_calls.h"

enum {
    MAX_PLANS = 1024, /* a power of two; a model has about 5 shapes, each of them 14 sizes up to
                         4,096 rows, with a bias or without */
    ALIGNMENT = 256,  /* of all matrices, as the library takes for granted unless told */
};

enum plan_state { PLAN_FREE, PLAN_READY, PLAN_NONE /* the library has no way */ };
struct plan_key {
    enum dtype type;
    int rows, stride; /* of the weight */
    int most;         /* rows of x that the way was chosen for */
    bool biased;
};
struct plan {
    enum plan_state state;
    struct plan_key key;
    int n; /* rows of x that the layouts say */
    cublasLtMatmulDesc_t product;
    cublasLtMatrixLayout_t w, x, out;
    cublasLtMatmulAlgo_t way;
};

struct cublas {
    struct cublas_calls call;
    cublasLtHandle_t handle;
    cublasLtMatmulPreference_t preference;
    void *workspace;
    size_t workspace_bytes;
    char version[24];
    int max_rows, n_plans;
    struct plan plans[MAX_PLANS]; /* hashed by key, open addressing */
};

/* --- opening --- */

static bool check(const struct cublas *c, cublasStatus_t status, const char *what, struct err *e)
{
    return status == CUBLAS_STATUS_SUCCESS ||
           err_set(e, ERR_DEVICE, "cuBLASLt %s: %s: %s", c->version, what,
                   c->call.GetStatusName(status));
}

static bool start(struct cublas *c, struct err *e)
{
    const size_t v = c->call.GetVersion();
    snprintf(c->version, sizeof c->version, "%zu.%zu.%zu", v / 10000, v / 100 % 100, v % 100);
    return check(c, c->call.Create(&c->handle), "cublasLtCreate", e) &&
           check(c, c->call.MatmulPreferenceCreate(&c->preference),
                 "cublasLtMatmulPreferenceCreate", e);
}

/* The newest library that works: one that is newer than the driver does not. */
struct cublas *cublas_open(int max_rows, struct err *e)
{
    struct err each[CUBLAS_LIBRARIES] = {0};
    struct cublas *c = calloc(1, sizeof *c);
    if (!c) {
        err_set(e, ERR_MEMORY, "cuBLASLt: out of memory");
        return NULL;
    }
    c->max_rows = max_rows;
    for (int i = 0; i < CUBLAS_LIBRARIES; i++) {
        if (cublas_library_load(i, &c->call, &each[i]) && start(c, &each[i]))
            return c;
        c->handle = NULL; /* of this library */
        c->preference = NULL;
    }
    err_set(e, each[0].code,
            "%.200s; %.200s; cuBLAS of CUDA 12 or 13 is wanted, installed or in LD_LIBRARY_PATH",
            each[0].msg, each[1].msg);
    free(c);
    return NULL;
}

static void free_plan(struct cublas *c, struct plan *p)
{
    if (p->product)
        c->call.MatmulDescDestroy(p->product);
    const cublasLtMatrixLayout_t layouts[] = {p->w, p->x, p->out};
    for (int i = 0; i < 3; i++)
        if (layouts[i])
            c->call.MatrixLayoutDestroy(layouts[i]);
}

void cublas_close(struct cublas *c)
{
    if (!c)
        return;
    for (int i = 0; i < MAX_PLANS; i++)
        free_plan(c, &c->plans[i]);
    if (c->preference)
        c->call.MatmulPreferenceDestroy(c->preference);
    if (c->handle)
        c->call.Destroy(c->handle);
    free(c);
}

const char *cublas_version(const struct cublas *c)
{
    return c->version;
}

/* What NVIDIA recommends */
size_t cublas_workspace_wanted(int device_major)
{
    return (size_t)(device_major >= 9 ? 32 : 4) << 20;
}

void cublas_set_workspace(struct cublas *c, void *at, size_t bytes)
{
    c->workspace = at;
    c->workspace_bytes = bytes;
}

/* --- plans --- */

static cudaDataType_t type_of(enum dtype t)
{
    return t == DTYPE_F32 ? CUDA_R_32F : t == DTYPE_F16 ? CUDA_R_16F : CUDA_R_16BF;
}

static bool make_layout(struct cublas *c, cublasLtMatrixLayout_t *layout, enum dtype type, int rows,
                        int cols)
{
    return c->call.MatrixLayoutCreate(layout, type_of(type), (uint64_t)rows, (uint64_t)cols,
                                      rows) == CUBLAS_STATUS_SUCCESS;
}

/* CUBLAS_COMPUTE_32F: sums in float32, F32 operands as they are; TF32 would be another. */
static bool make_product(struct cublas *c, struct plan *p)
{
    const cublasOperation_t transposed = CUBLAS_OP_T;
    const cublasLtEpilogue_t epilogue =
        p->key.biased ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
    return c->call.MatmulDescCreate(&p->product, CUBLAS_COMPUTE_32F, CUDA_R_32F) ==
               CUBLAS_STATUS_SUCCESS &&
           c->call.MatmulDescSetAttribute(p->product, CUBLASLT_MATMUL_DESC_TRANSA, &transposed,
                                          sizeof transposed) == CUBLAS_STATUS_SUCCESS &&
           c->call.MatmulDescSetAttribute(p->product, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue,
                                          sizeof epilogue) == CUBLAS_STATUS_SUCCESS;
}

/* Ways whose partial sums are float32, added in an order that is the same each time */
static bool prefer(struct cublas *c)
{
    const uint64_t bytes = c->workspace_bytes;
    const uint32_t reductions =
        CUBLASLT_REDUCTION_SCHEME_INPLACE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    return c->call.MatmulPreferenceSetAttribute(c->preference,
                                                CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes,
                                                sizeof bytes) == CUBLAS_STATUS_SUCCESS &&
           c->call.MatmulPreferenceSetAttribute(
               c->preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &reductions,
               sizeof reductions) == CUBLAS_STATUS_SUCCESS;
}

static bool choose_way(struct cublas *c, struct plan *p)
{
    cublasLtMatmulHeuristicResult_t found = {0};
    int n = 0;
    const cublasStatus_t status = c->call.MatmulAlgoGetHeuristic(
        c->handle, p->product, p->w, p->x, p->out, p->out, c->preference, 1, &found, &n);
    if (status != CUBLAS_STATUS_SUCCESS || n < 1 || found.state != CUBLAS_STATUS_SUCCESS ||
        found.workspaceSize > c->workspace_bytes)
        return false;
    p->way = found.algo;
    return true;
}

static bool make_layouts(struct cublas *c, struct plan *p)
{
    const struct plan_key *k = &p->key;
    return make_layout(c, &p->w, k->type, k->stride, k->rows) &&
           make_layout(c, &p->x, k->type, k->stride, k->most) &&
           make_layout(c, &p->out, DTYPE_F32, k->rows, k->most);
}

static void make_plan(struct cublas *c, struct plan *p, const struct plan_key *key)
{
    *p = (struct plan){.key = *key, .n = key->most};
    const bool ok = make_product(c, p) && make_layouts(c, p) && prefer(c) && choose_way(c, p);
    p->state = ok ? PLAN_READY : PLAN_NONE;
}

/* A way is chosen for the next of 1, 2, 3, 4, 6, 8, 12, 16, 24, … rows, and serves fewer, too. */
static int most_rows(int n)
{
    int64_t most = 1;
    while (most < n)
        most *= 2;
    return (int)(most / 4 * 3 >= n ? most / 4 * 3 : most);
}

static struct plan_key key_of(const struct cuda_linear *l, int i, int n_rows)
{
    return (struct plan_key){
        .type = l->w[i].type,
        .rows = l->w[i].rows,
        .stride = (l->w[i].cols + 31) / 32 * 32,
        .most = most_rows(n_rows),
        .biased = l->bias[i],
    };
}

static bool same_key(const struct plan_key *a, const struct plan_key *b)
{
    return a->type == b->type && a->rows == b->rows && a->stride == b->stride &&
           a->most == b->most && a->biased == b->biased;
}

static unsigned hash_of(const struct plan_key *k)
{
    const unsigned of[] = {(unsigned)k->type, (unsigned)k->rows, (unsigned)k->stride,
                           (unsigned)k->most, (unsigned)k->biased};
    unsigned h = 2166136261u; /* FNV-1a, word by word */
    for (size_t i = 0; i < sizeof of / sizeof *of; i++)
        h = (h ^ of[i]) * 16777619u;
    return h ^ h >> 15;
}

/* The plan of this key, or where it would be */
static struct plan *find(struct cublas *c, const struct plan_key *key)
{
    unsigned at = hash_of(key) % MAX_PLANS;
    while (c->plans[at].state != PLAN_FREE && !same_key(&c->plans[at].key, key))
        at = (at + 1) % MAX_PLANS;
    return &c->plans[at];
}

static void add_plan(struct cublas *c, const struct plan_key *key)
{
    struct plan *p = find(c, key);
    if (p->state != PLAN_FREE || c->n_plans == MAX_PLANS - 1) /* one stays free: searches end */
        return;
    c->n_plans++;
    make_plan(c, p, key);
}

static int least_rows(enum dtype type)
{
    return type == DTYPE_F32 ? CUBLAS_LEAST_ROWS_F32 : CUBLAS_LEAST_ROWS;
}

/* The plan of matrix i; where there is none yet, it is made, and those for all other numbers of
 * rows with it. NULL: there is no room for more. */
static struct plan *plan_of(struct cublas *c, const struct cuda_linear *l, int i, int n_rows)
{
    struct plan_key key = key_of(l, i, n_rows);
    struct plan *p = find(c, &key);
    if (p->state != PLAN_FREE)
        return p;
    add_plan(c, &key);
    for (int n = least_rows(key.type); n <= c->max_rows; n = key.most + 1) {
        key.most = most_rows(n);
        add_plan(c, &key);
    }
    return p->state != PLAN_FREE ? p : NULL;
}

static bool is_aligned(const void *p)
{
    return (uintptr_t)p % ALIGNMENT == 0;
}

bool cublas_can(struct cublas *c, const struct cuda_linear *l, int n_rows)
{
    for (int i = 0; i < l->n_w; i++) {
        const struct plan *p = is_aligned(l->w[i].data) ? plan_of(c, l, i, n_rows) : NULL;
        if (!p || p->state != PLAN_READY)
            return false;
    }
    return true;
}

bool cublas_takes(struct cublas *c, const struct cuda_linear *l, int n_rows)
{
    return c && n_rows >= least_rows(l->w[0].type) && cublas_can(c, l, n_rows);
}

/* --- running --- */

static bool fit(struct cublas *c, struct plan *p, int n_rows, const float *bias, struct err *e)
{
    const uint64_t n = (uint64_t)n_rows;
    const bool same = p->n == n_rows;
    p->n = n_rows;
    return (same || (check(c,
                           c->call.MatrixLayoutSetAttribute(p->x, CUBLASLT_MATRIX_LAYOUT_COLS, &n,
                                                            sizeof n),
                           "rows of x", e) &&
                     check(c,
                           c->call.MatrixLayoutSetAttribute(p->out, CUBLASLT_MATRIX_LAYOUT_COLS, &n,
                                                            sizeof n),
                           "rows of a result", e))) &&
           (!bias || check(c,
                           c->call.MatmulDescSetAttribute(
                               p->product, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias),
                           "a bias", e));
}

bool cublas_linear(struct cublas *c, cudaStream_t s, const struct cuda_linear *l, const void *x,
                   int n_rows, struct err *e)
{
    const float alpha = 1, beta = l->into == INTO_ADD;
    assert(is_aligned(x) && (l->into == INTO_STORE || l->into == INTO_ADD));
    for (int i = 0; i < l->n_w; i++) {
        struct plan *p = plan_of(c, l, i, n_rows);
        assert(p && p->state == PLAN_READY && is_aligned(l->out[i]));
        if (!fit(c, p, n_rows, l->bias[i], e) ||
            !check(c,
                   c->call.Matmul(c->handle, p->product, &alpha, l->w[i].data, p->w, x, p->x, &beta,
                                  l->out[i], p->out, l->out[i], p->out, &p->way, c->workspace,
                                  c->workspace_bytes, s),
                   "cublasLtMatmul", e))
            return false;
    }
    return true;
}
