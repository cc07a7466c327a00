/* rope_freqs.h: the frequencies of rotary embeddings and their scalings.
 *
 * Pure arithmetic, in double. Start with rope_default, then apply at most one kind of scaling.
 * Numbers are the caller's to check: factors and lengths are finite and above 0. */
#ifndef TOKEND_ROPE_FREQS_H
#define TOKEND_ROPE_FREQS_H

#include <stdbool.h>

enum { MODEL_MAX_ROPE_PAIRS = 512 };

struct rope_spec {
    int n_dims;                           /* turned dims of a head, even; 0: none */
    float mscale;                         /* of sin and cos */
    float inv_freq[MODEL_MAX_ROPE_PAIRS]; /* [n_dims / 2] pair i turns by position * inv_freq[i] */
};

/* inv_freq[i] = theta^(-2i / n_dims) (Su et al. 2021). n_dims at most 2 * MODEL_MAX_ROPE_PAIRS. */
void rope_default(struct rope_spec *, double theta, int n_dims);

/* Positions divided by `factor` (Chen et al. 2023). */
void rope_scale_linear(struct rope_spec *, double factor);

/* Each frequency divided by a factor of its own, [n_dims / 2]: Llama 3's, precomputed by GGUF's
 * converter, and the tables of LongRoPE. */
void rope_scale_by(struct rope_spec *, const float *factors);

/* Llama 3.1: wavelengths above original / low are stretched by `factor`, those below
 * original / high are not, and those between in part. */
void rope_scale_llama3(struct rope_spec *, double factor, double low, double high, double original);

/* YaRN (Peng et al. 2023): pairs that turn more than beta_fast times within the original context
 * stay, those below beta_slow are interpolated, and a ramp over the pairs lies between. */
struct rope_yarn {
    double theta; /* as given to rope_default */
    double factor, beta_fast, beta_slow;
    double original; /* context that the model was trained on */
    bool truncate;   /* the ramp's ends are whole pairs */
    double mscale;   /* of sin and cos; 0: rope_yarn_mscale(factor, 1) */
};
void rope_scale_yarn(struct rope_spec *, const struct rope_yarn *);

/* 0.1 * weight * ln(factor) + 1; 1 where factor is at most 1 */
double rope_yarn_mscale(double factor, double weight);

/* LongRoPE's mscale (Ding et al. 2024): sqrt(1 + ln(factor) / ln(original)); 1 where factor is
 * at most 1. `factor` is the context over the original one. */
double rope_longrope_mscale(double factor, double original);

#endif
