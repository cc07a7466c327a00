/* spec_rig.h: files of any architecture, read as a spec or refused. Include after test.h. */
#ifndef TOKEND_SPEC_RIG_H
#define TOKEND_SPEC_RIG_H

#include "model_spec.h"
#include "variant_build.h"

#include <math.h>

/* Opens what was built; the file lives as long as v->b. */
static inline struct gguf *open_variant(struct variant *v)
{
    struct err e;
    build_variant(v);
    struct gguf *g = build_open(&v->b, &e);
    if (!g)
        fail_msg("%s", e.msg);
    return g;
}

static inline void accepted(struct variant *v, struct model_spec *s)
{
    struct err e;
    struct gguf *g = open_variant(v);
    if (!model_spec_from_gguf(g, s, &e))
        fail_msg("%s", e.msg);
    gguf_close(g);
    build_free(&v->b);
}

static inline void refused(struct variant *v, enum err_code code, const char *part)
{
    struct err e = {0};
    struct model_spec s;
    struct gguf *g = open_variant(v);
    assert_false(model_spec_from_gguf(g, &s, &e));
    assert_contains(e.msg, part);
    assert_contains(e.msg, "(memory): ");
    assert_int_equal(e.code, code);
    gguf_close(g);
    build_free(&v->b);
    memset(v, 0, sizeof *v);
}

/* Pair i turns by theta^(-2i / n_dims) / factor. */
static inline void assert_turns(const struct rope_spec *r, int pair, double theta, double factor)
{
    const double want = pow(theta, -2.0 * pair / r->n_dims) / factor;
    if (!(fabs((double)r->inv_freq[pair] / want - 1) < 1e-6))
        fail_msg("pair %d turns by %g, expected %g", pair, (double)r->inv_freq[pair], want);
}

#endif
