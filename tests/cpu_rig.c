#include "cpu_rig.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "test.h"

static const char *const isas[] = {"generic", "avx2",    "avxvnni", "avx512",
                                   "vnni256", "vnni",    "bf16",    "amx",
                                   "amx_emulated", "neon", "dotprod", "i8mm"};

void for_each_isa(void (*test)(const char *isa))
{
    for (size_t i = 0; i < sizeof isas / sizeof *isas; i++) {
        struct backend_config c = {1, 1, 1, 1, 1};
        struct err e;
        setenv("TOKEND_ISA", isas[i], 1);
        struct backend *b = backend_cpu_open(&c, &e);
        if (!b) {
            print_message("%s: not run (%s)\n", isas[i], e.msg);
            continue;
        }
        b->ops->close(b);
        test(isas[i]);
    }
    unsetenv("TOKEND_ISA");
}

bool rig_emulated(void)
{
    return getenv("TOKEND_EMULATED") != NULL;
}

static struct backend *open_config(const char *isa, const struct backend_config *c)
{
    struct err e = {0};
    setenv("TOKEND_ISA", isa, 1);
    struct backend *b = backend_cpu_open(c, &e);
    if (!b)
        fail_msg("%s: %s", isa, e.msg);
    return b;
}

struct backend *rig_open(const char *isa, int threads, int max_rows, int max_seqs, int max_pages)
{
    return open_config(isa,
                       &(struct backend_config){threads, max_rows, max_seqs, max_pages, max_rows});
}

struct backend *rig_open_tight(const char *isa, int threads, int max_rows, int max_seqs,
                               int max_pages)
{
    return open_config(
        isa, &(struct backend_config){threads, max_rows, max_seqs, max_pages, max_rows, 1});
}

struct backend *rig_open_fine(const char *isa, int threads, int max_rows, int max_seqs,
                              int max_pages)
{
    return open_config(isa, &(struct backend_config){.threads = threads,
                                                     .max_rows = max_rows,
                                                     .max_seqs = max_seqs,
                                                     .max_pages = max_pages,
                                                     .max_logits = max_rows,
                                                     .fine_activations = true});
}

struct weight *rig_weight(struct backend *b, const struct ref_matrix *m)
{
    struct err e = {0};
    struct weight *w = b->ops->weight_load(b, m->type, m->rows, m->cols, m->bytes, &e);
    if (!w)
        fail_msg("weight: %s", e.msg);
    return w;
}

struct activation *rig_activation(struct backend *b, int width, const struct weight *reader,
                                  bool logit_rows)
{
    struct err e = {0};
    struct activation *a = b->ops->activation_new(b, width, reader, logit_rows, &e);
    if (!a)
        fail_msg("activation: %s", e.msg);
    return a;
}

struct table rig_table(struct backend *b, int n, int width, double scale, uint64_t *seed)
{
    struct table t = {ref_matrix_new(DTYPE_F32, n, width, scale, seed), NULL};
    t.weight = rig_weight(b, &t.values);
    return t;
}

void rig_one_sequence(struct backend *b, int n, int start, const int32_t *pages, int n_pages,
                      int block_size)
{
    struct step_inputs *in = b->ops->step_begin(b);
    in->n_rows = in->n_logits = n;
    in->n_seqs = 1;
    in->seqs[0] = (struct step_seq){0, n, start};
    for (int i = 0; i < n; i++) {
        int pos = start + i;
        in->ids[i] = in->positions[i] = pos;
        in->logit_rows[i] = i;
        in->adapters[i] = -1;
        in->kv_slots[i] = pages ? pages[pos / block_size] * block_size + pos % block_size : 0;
    }
    if (pages)
        memcpy(in->page_tables, pages, (size_t)n_pages * sizeof *pages);
}

void rig_submit(struct backend *b)
{
    struct err e = {0};
    if (!b->ops->submit(b, &e))
        fail_msg("submit: %s", e.msg);
}

void assert_near(const char *what, const float *a, const double *b, int n, double atol, double rtol)
{
    for (int i = 0; i < n; i++)
        if (!(fabs(a[i] - b[i]) <= atol + rtol * fabs(b[i])))
            fail_msg("%s: value %d is %.9g, expected %.9g", what, i, a[i], b[i]);
}
