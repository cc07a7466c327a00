#include "architectures.h"

#include <stdio.h>
#include <string.h>

static const struct architecture architectures[] = {
    /* Llama 1 to 3, Mistral; with experts, Mixtral */
    {.name = "llama",
     .rope_style = ROPE_NORMAL,
     .window = WINDOW_ALL,
     .experts = MAYBE,
     .router_renormalise = true},
    {.name = "qwen2", .rope_style = ROPE_NEOX},
    {.name = "qwen2moe",
     .rope_style = ROPE_NEOX,
     .experts = ALWAYS,
     .shared_expert = ALWAYS,
     .shared_gate = true},
    {.name = "qwen3", .rope_style = ROPE_NEOX, .qk_norm = ALWAYS},
    {.name = "qwen3moe",
     .rope_style = ROPE_NEOX,
     .qk_norm = ALWAYS,
     .experts = ALWAYS,
     .router_renormalise = true},
    /* Norm weights of Gemma lie in GGUF files as 1 + w. */
    {.name = "gemma", .act = ACT_GELU_TANH, .rope_style = ROPE_NEOX, .scales_embedding = true},
    {.name = "gemma2",
     .act = ACT_GELU_TANH,
     .rope_style = ROPE_NEOX,
     .post_norms = true,
     .scales_embedding = true,
     .layers_scaled_by_width = 46,
     .window = WINDOW_PATTERN,
     .window_every = 2,
     .window_default = 4096,
     .soft_caps = true,
     .attention_soft_cap = 50,
     .logit_soft_cap = 30},
    {.name = "gemma3",
     .act = ACT_GELU_TANH,
     .rope_style = ROPE_NEOX,
     .qk_norm = ALWAYS,
     .post_norms = true,
     .scales_embedding = true,
     .layers_scaled_by_width = 62,
     .window = WINDOW_PATTERN,
     .window_every = 6,
     .rope_local = true,
     .rope_local_default = 10000,
     .soft_caps = true},
    {.name = "phi2",
     .norm = NORM_LAYER,
     .norm_bias = true,
     .parallel = true,
     .act = ACT_GELU_TANH,
     .ungated = true,
     .rope_style = ROPE_NEOX},
    {.name = "phi3", .rope_style = ROPE_NEOX, .window = WINDOW_ALL},
    /* Olmo 3 is an olmo2 with windows. */
    {.name = "olmo2",
     .rope_style = ROPE_NEOX,
     .no_pre_norms = true,
     .post_norms = true,
     .qk_norm = ALWAYS,
     .qk_norm_span = QK_NORM_ALL,
     .window = WINDOW_MAY_PATTERN,
     .window_every = 4,
     .rope_local = true},
    {.name = "smollm3", .rope_style = ROPE_NORMAL, .no_rope_every = 4},
    {.name = "granite", .rope_style = ROPE_NORMAL, .logit_scale = SCALE_DIVIDES},
    {.name = "granitemoe",
     .rope_style = ROPE_NORMAL,
     .logit_scale = SCALE_DIVIDES,
     .experts = ALWAYS,
     .router_renormalise = true,
     .shared_expert = MAYBE},
    {.name = "starcoder2",
     .norm = NORM_LAYER,
     .norm_bias = true,
     .act = ACT_GELU_TANH,
     .ungated = true,
     .rope_style = ROPE_NEOX,
     .window = WINDOW_ALL},
    /* Softmax over the chosen logits is softmax over all, made to sum to 1. */
    {.name = "gpt-oss",
     .act = ACT_SWIGLU_CLAMPED,
     .rope_style = ROPE_NEOX,
     .yarn_in_part_of_pairs = true,
     .window = WINDOW_PATTERN,
     .window_every = 2,
     .sinks = true,
     .experts = ALWAYS,
     .router_renormalise = true,
     .expert_biases = true},
    {.name = "command-r",
     .norm = NORM_LAYER,
     .parallel = true,
     .qk_norm = MAYBE,
     .qk_norm_span = QK_NORM_HEADS,
     .rope_style = ROPE_NORMAL,
     .logit_scale = SCALE_MULTIPLIES},
    {.name = "cohere2",
     .norm = NORM_LAYER,
     .parallel = true,
     .rope_style = ROPE_NORMAL,
     .window = WINDOW_PATTERN,
     .window_every = 4,
     .rope_windowed_only = true,
     .logit_scale = SCALE_MULTIPLIES},
    {.name = "stablelm",
     .norm = NORM_LAYER,
     .norm_bias = true,
     .may_be_parallel = true,
     .qk_norm = MAYBE,
     .qk_norm_span = QK_NORM_HEADS,
     .rope_style = ROPE_NEOX},
    {.name = "glm4", .rope_style = ROPE_NORMAL, .post_norms = true},
};
enum { N_ARCHITECTURES = sizeof architectures / sizeof *architectures };

static const char *const mla[] = {"deepseek2", "deepseek3",     "deepseek32",
                                  "minicpm3",  "kimi-linear",   "plm",
                                  "glm-dsa",   "longcat-flash", "mistral4"};

static bool is(const char *name, size_t len, const char *known)
{
    return strlen(known) == len && memcmp(name, known, len) == 0;
}

const struct architecture *architecture_find(const char *name, size_t len)
{
    for (int i = 0; i < N_ARCHITECTURES; i++)
        if (is(name, len, architectures[i].name))
            return &architectures[i];
    return NULL;
}

const char *architecture_refused(const char *name, size_t len)
{
    for (size_t i = 0; i < sizeof mla / sizeof *mla; i++)
        if (is(name, len, mla[i]))
            return "multi-head latent attention (MLA)";
    return NULL;
}

struct architecture_list architecture_names(void)
{
    struct architecture_list l;
    size_t at = 0;
    for (int i = 0; i < N_ARCHITECTURES && at < sizeof l.text; i++)
        at += (size_t)snprintf(l.text + at, sizeof l.text - at, "%s%s", i ? ", " : "",
                               architectures[i].name);
    return l;
}

void architecture_apply(const struct architecture *a, struct model_spec *s)
{
    snprintf(s->architecture, sizeof s->architecture, "%s", a->name);
    s->norm = a->norm;
    s->norm_bias = a->norm_bias;
    s->pre_norms = !a->no_pre_norms;
    s->post_norms = a->post_norms;
    s->parallel = a->parallel;
    s->qk_norm = a->qk_norm == ALWAYS;
    s->qk_norm_span = a->qk_norm_span;
    s->qk_norm_kind = a->norm;
    s->act = a->act;
    s->gated = !a->ungated;
    s->rope_style = a->rope_style;
    s->attention_sinks = a->sinks;
    s->router_renormalise = a->router_renormalise;
    s->router_bias = s->expert_bias = a->expert_biases;
    s->shared_gate = a->shared_gate;
    s->embedding_scale = s->residual_scale = s->logit_scale = 1;
}
