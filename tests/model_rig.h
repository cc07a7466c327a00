/* model_rig.h: whatever file through loading and one step, as the engine would do it: a tiny
 * model to start from, and a run that must end in finite time with an error or with logits.
 * No test framework: the fuzzer uses it too. */
#ifndef TOKEND_MODEL_RIG_H
#define TOKEND_MODEL_RIG_H

#include "gguf_build.h"
#include "model.h"
#include "model_file.h"

#include <stdio.h>
#include <stdlib.h>

enum { MODEL_RIG_ROWS = 6 }; /* tokens of the step: enough for a tile of attention */

struct model_sizes {
    uint32_t n_vocab, n_embd, n_ff, n_heads, n_kv_heads, head_dim;
    bool biases;
};

static const struct model_sizes model_tiny = {32, 32, 64, 2, 1, 16, true};

/* A tensor with room behind it for the widest type. */
static inline void build_roomy(struct gguf_build *b, const char *name, uint32_t type, uint64_t d0,
                               uint64_t d1)
{
    const uint64_t dims[2] = {d0, d1};
    build_tensor_raw(b, name, type, d1 ? 2 : 1, dims, b->data_bytes);
    b->data_bytes += (d0 * (d1 ? d1 : 1) * 8 + 31) / 32 * 32;
}

/* A llama of one layer; matrices of ggml's type `type`, the rest F32; data all zeros. */
static inline void build_model(struct gguf_build *b, const struct model_sizes *s, uint32_t type)
{
    const uint32_t q = s->n_heads * s->head_dim, kv = s->n_kv_heads * s->head_dim;
    build_str(b, "general.architecture", "llama");
    build_u32(b, "llama.block_count", 1);
    build_u32(b, "llama.context_length", 64);
    build_u32(b, "llama.embedding_length", s->n_embd);
    build_u32(b, "llama.feed_forward_length", s->n_ff);
    build_u32(b, "llama.attention.head_count", s->n_heads);
    build_u32(b, "llama.attention.head_count_kv", s->n_kv_heads);
    build_u32(b, "llama.attention.key_length", s->head_dim);
    build_u32(b, "llama.attention.value_length", s->head_dim);
    build_f32(b, "llama.attention.layer_norm_rms_epsilon", 1e-5f);
    const struct {
        const char *name;
        uint32_t d0, d1;
        bool is_bias;
    } tensors[] = {
        {"token_embd.weight", s->n_embd, s->n_vocab, false},
        {"output_norm.weight", s->n_embd, 0, false},
        {"output.weight", s->n_embd, s->n_vocab, false},
        {"blk.0.attn_norm.weight", s->n_embd, 0, false},
        {"blk.0.attn_q.weight", s->n_embd, q, false},
        {"blk.0.attn_k.weight", s->n_embd, kv, false},
        {"blk.0.attn_v.weight", s->n_embd, kv, false},
        {"blk.0.attn_output.weight", q, s->n_embd, false},
        {"blk.0.ffn_norm.weight", s->n_embd, 0, false},
        {"blk.0.ffn_gate.weight", s->n_embd, s->n_ff, false},
        {"blk.0.ffn_up.weight", s->n_embd, s->n_ff, false},
        {"blk.0.ffn_down.weight", s->n_ff, s->n_embd, false},
        {"blk.0.attn_q.bias", q, 0, true},
        {"blk.0.attn_k.bias", kv, 0, true},
        {"blk.0.attn_v.bias", kv, 0, true},
        {"blk.0.attn_output.bias", s->n_embd, 0, true},
        {"blk.0.ffn_gate.bias", s->n_ff, 0, true},
        {"blk.0.ffn_up.bias", s->n_ff, 0, true},
        {"blk.0.ffn_down.bias", s->n_embd, 0, true},
        {"rope_freqs.weight", s->head_dim / 2, 0, false},
    };
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++)
        if (!tensors[i].is_bias || s->biases)
            build_roomy(b, tensors[i].name, tensors[i].d1 ? type : 0, tensors[i].d0, tensors[i].d1);
    build_file(b);
}

/* Gives every value the bits of 1.0: as F32 all, as other types some number or other. */
static inline void fill_model(struct gguf_build *b)
{
    const uint32_t one = 0x3F800000;
    unsigned char *file = (unsigned char *)b->file.data;
    for (uint64_t at = b->file.len - b->data_bytes; at + sizeof one <= b->file.len;
         at += sizeof one)
        memcpy(file + at, &one, sizeof one);
}

static inline void model_rig_step(struct backend *b, struct model *m, int n_vocab)
{
    struct err e;
    struct step_inputs *in = b->ops->step_begin(b);
    for (int i = 0; i < MODEL_RIG_ROWS; i++) {
        in->ids[i] = i * 7 % n_vocab;
        in->positions[i] = in->kv_slots[i] = i;
        in->adapters[i] = -1;
    }
    in->seqs[0] = (struct step_seq){0, MODEL_RIG_ROWS, 0};
    in->page_tables[0] = 0;
    in->logit_rows[0] = MODEL_RIG_ROWS - 1;
    in->n_rows = MODEL_RIG_ROWS;
    in->n_seqs = in->n_logits = 1;
    model_forward(m);
    if (!b->ops->submit(b, &e))
        abort();
    float sum = 0;
    for (int i = 0; i < n_vocab; i++)
        sum += model_logits(m, 0)[i];
    volatile float read = sum; /* so that every logit is */
    (void)read;
}

/* One step of a model with these weights; false and *e where they are refused. Pages are small and
 * one: a model's size is bounded by its file's alone. */
static inline bool model_rig_compute(const struct model_spec *s, const struct weights *w,
                                     struct err *e)
{
    const struct backend_config bc = {1, MODEL_RIG_ROWS, 1, 1, 1};
    struct model *m = NULL;
    struct backend *b = backend_cpu_open(&bc, e);
    if (!b)
        return false;
    struct kv_config kv = model_kv_config(s, 16, DTYPE_F16);
    kv.n_pages = 1;
    uint64_t bytes;
    const bool checked = model_check(w, s, &bytes, NULL, e);
    bool ok = b->ops->kv_open(b, &kv, e) && (m = model_load(b, w, s, 16, e));
    if (ok && !checked)
        abort(); /* `inspect` would have said that it cannot be loaded */
    if (ok)
        model_rig_step(b, m, s->n_vocab);
    model_free(m);
    b->ops->close(b);
    return ok;
}

/* The same of a GGUF file. */
static inline bool model_rig_run(const void *bytes, size_t n, struct err *e)
{
    struct model_file *f = model_file_open_memory(bytes, n, e);
    const struct model_spec *s = f ? model_file_spec(f, e) : NULL;
    bool ok = s && model_rig_compute(s, model_file_weights(f, e), e);
    model_file_close(f);
    return ok;
}

#endif
