/* reference.h: every operation of a step in plain C and double precision, as the papers write
 * it. Nothing here is shared with the code under test. Matrices are row-major. */
#ifndef TOKEND_REFERENCE_H
#define TOKEND_REFERENCE_H

#include <stdbool.h>
#include <stdint.h>

#include "backend.h"

/* Small reproducible random numbers: uniform in [-1, 1). */
float ref_random(uint64_t *state);

/* A matrix in the file's form of a type, made from random values, and what it means. */
struct ref_matrix {
    enum dtype type;
    int rows, cols;
    void *bytes;    /* as in a file */
    double *values; /* [rows][cols] */
};
struct ref_matrix ref_matrix_new(enum dtype, int rows, int cols, double scale, uint64_t *seed);
void ref_matrix_free(struct ref_matrix *);

/* Nearest value of a float type (ties to even), clamped to its finite range. */
double ref_round(enum dtype, double);

/* x[n] as a KV pool of INT8 or F8_E4M3 has it: codes, at most 127 or 448, times one scale, the bf16
 * that is not below max|x| / 127 or / 448, which is returned */
double ref_round_codes(enum dtype, double *x, int n);

/* y[rows] = m x */
void ref_linear(const struct ref_matrix *m, const double *x, double *y);
/* x as int8 blocks of 32 have it: q = nearest(x * 127 / max|x|), times max|x| / 127. */
void ref_quantise(const float *x, int n, double *out);
/* bias NULL: none */
void ref_norm(enum norm_kind, const float *x, const double *w, const double *bias, int n,
              double eps, double *out);
double ref_act(enum act_fn, double gate, double up); /* without a gate: up = 1 */
/* The n_used best of a row's logits, the first of equal ones, best first, and their shares */
void ref_route(const double *logits, int n_experts, int n_used, bool renormalise, int *chosen,
               double *share);
/* Turns one head in place. */
void ref_rotate(const struct rope_config *, int position, double *x);

/* One head of one query at position `pos`: k, v [pos + 1][head_dim]; sink NULL: none. */
void ref_attend(const struct attention_config *, int pos, const double *sink, const double *q,
                const double *k, const double *v, double *out);

#endif
