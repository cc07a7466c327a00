/* cpu_rig.h: a CPU backend for tests, and rows of numbers put into its activations.
 *
 * Activations are opaque; what can be put into one exactly is an embedding of float32 rows. */
#ifndef TOKEND_CPU_RIG_H
#define TOKEND_CPU_RIG_H

#include "backend.h"
#include "reference.h"

/* Calls test(isa) for every instruction set of this build and machine; says which do not run. */
void for_each_isa(void (*test)(const char *isa));

/* TOKEND_EMULATED: this processor is emulated, so that the largest shapes would take minutes. */
bool rig_emulated(void);

/* Opens with set `isa` or fails the test. `max_pages` of one sequence. */
struct backend *rig_open(const char *isa, int threads, int max_rows, int max_seqs, int max_pages);
/* With as little memory for attention's partial results as can be: a row at a time. */
struct backend *rig_open_tight(const char *isa, int threads, int max_rows, int max_seqs,
                               int max_pages);

/* With two planes of activations */
struct backend *rig_open_fine(const char *isa, int threads, int max_rows, int max_seqs,
                              int max_pages);

struct weight *rig_weight(struct backend *, const struct ref_matrix *);
struct activation *rig_activation(struct backend *, int width, const struct weight *reader,
                                  bool logit_rows);
/* A float32 table of n random rows, and where its values are. */
struct table {
    struct ref_matrix values;
    struct weight *weight;
};
struct table rig_table(struct backend *, int n, int width, double scale, uint64_t *seed);

/* Fills the inputs for one sequence of n rows at positions start …, ids = positions, its pages
 * being `pages`; logits of all rows. */
void rig_one_sequence(struct backend *, int n, int start, const int32_t *pages, int n_pages,
                      int block_size);
void rig_submit(struct backend *);

/* Fails the test, saying where, unless |a - b| <= atol + rtol |b| for all n. */
void assert_near(const char *what, const float *a, const double *b, int n, double atol,
                 double rtol);

#endif
