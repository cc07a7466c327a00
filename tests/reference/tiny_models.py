#!/usr/bin/env python3
"""Tiny random models of every architecture, in odd shapes, with the numbers that forward.py gives.

  tiny_models.py DIR [SEED]   writes DIR/NAME.TYPE.gguf and DIR/NAME.TYPE.gguf.golden.json

Each row of MODELS has features of its architecture that differ from the others': heads that do
not make up the width, head sizes of 80 and 96, vocabularies of no round size, windows shorter
than the prompts, one tensor for several, layers of two kinds. test_golden DIR compares.
"""
import json
import os
import sys

import gguf
import numpy as np

import forward

N_TOP = 20
PROMPTS = {"one": 1, "few": 7, "long": 75}  # windows are shorter than the last
GREEDY = 6


class Maker:
    """One model in the making: keys and tensors in the order that they are asked for."""

    def __init__(self, path, arch, rng, quantised, float_mlp):
        self.writer = gguf.GGUFWriter(path, arch)
        self.arch, self.rng, self.quantised, self.float_mlp = arch, rng, quantised, float_mlp

    def key(self, rest, value):
        key = f"{self.arch}.{rest}"
        add = {bool: self.writer.add_bool, int: self.writer.add_uint32, str: self.writer.add_string,
               float: self.writer.add_float32, list: self.writer.add_array}[type(value)]
        add(key, value)

    def matrix(self, name, rows, cols, gain=1.0, experts=None, plain=False):
        plain = plain or (self.float_mlp and ".ffn_" in name)
        shape = (rows, cols) if experts is None else (experts, rows, cols)
        w = (self.rng.standard_normal(shape) * gain / cols ** 0.5).astype(np.float32)
        if self.quantised and not plain and cols % 32 == 0:
            kind = gguf.GGMLQuantizationType.Q8_0
            self.writer.add_tensor(name, gguf.quants.quantize(w, kind), raw_dtype=kind)
        else:
            self.writer.add_tensor(name, w)

    def vector(self, name, shape, around=0.0, spread=0.3):
        w = around + spread * self.rng.standard_normal(shape)
        self.writer.add_tensor(name, w.astype(np.float32))

    def close(self):
        self.writer.write_header_to_file()
        self.writer.write_kv_data_to_file()
        self.writer.write_tensors_to_file()
        self.writer.close()


class Row:
    """A model: sizes, and which tensors it has. Anything not said is a llama's."""

    def __init__(self, arch, keys=None, **facts):
        self.arch, self.keys = arch, keys or {}
        self.vocab, self.embd, self.ff, self.layers = 101, 48, 56, 2
        self.heads, self.kv_heads, self.head_dim = 3, 1, 80
        self.tied = self.qkv_bias = self.o_bias = self.mlp_bias = self.out_bias = False
        self.layer_norm = self.norm_bias = self.parallel = self.ungated = False
        self.fused_qkv = self.fused_gate = self.post_norms = self.no_pre_norms = False
        self.qk_norm = None  # "head", "heads" or "all"
        self.sinks = False
        self.experts = self.used = self.expert_ff = self.shared_ff = 0
        self.expert_bias = self.shared_gate = self.experts_apart = False
        self.dense_layers = ()
        self.quantised = self.float_mlp = False
        self.eps = 1e-5
        self.context, self.max_model_len = 256, 0
        self.before_ffn = "ffn_norm"
        self.factors = {}  # tensors of rotary factors
        for name, value in facts.items():
            assert hasattr(self, name), name
            setattr(self, name, value)


YARN = {"rope.scaling.type": "yarn", "rope.scaling.factor": 4.0,
        "rope.scaling.original_context_length": 32}
LONGROPE = {"rope.scaling.original_context_length": 64, "rope.dimension_count": 36,
            "rope.scaling.attn_factor": 1.19}
FACTORS = {"rope_factors_short.weight": np.linspace(1, 1.3, 18),
           "rope_factors_long.weight": np.linspace(1.5, 5, 18)}
LAYER_NORM = {"layer_norm": True, "norm_bias": True}
GRANITE = {"embedding_scale": 3.0, "residual_scale": 0.4, "logit_scale": 0.7,
           "attention.scale": 0.2}

MODELS = {
    "llama": Row("llama", {"rope.dimension_count": 80}),
    "llama_biases": Row("llama", {"rope.scaling.type": "linear", "rope.scaling.factor": 2.0},
                        heads=6, kv_heads=3, head_dim=8, qkv_bias=True, o_bias=True,
                        mlp_bias=True, tied=True, out_bias=True),
    "llama_factors": Row("llama", head_dim=96, factors={"rope_freqs.weight":
                                                        np.linspace(1, 8, 48)}),
    "llama_window": Row("llama", {"attention.sliding_window": 21, "rope.freq_base": 1e6}),
    "mixtral": Row("llama", experts=5, used=2, expert_ff=40),
    "mixtral_apart": Row("llama", experts=3, used=3, expert_ff=40, experts_apart=True),
    "qwen2": Row("qwen2", YARN, qkv_bias=True, tied=True),
    "qwen2moe": Row("qwen2moe", qkv_bias=True, experts=7, used=3, expert_ff=24, shared_ff=72,
                    shared_gate=True),
    "qwen3": Row("qwen3", qk_norm="head", head_dim=96),
    "qwen3_quantised": Row("qwen3", qk_norm="head", embd=64, ff=96, head_dim=32,
                           quantised=True),
    "qwen3moe": Row("qwen3moe", qk_norm="head", experts=9, used=4, expert_ff=20, layers=3,
                    dense_layers=(1,)),
    "qwen3moe_quantised": Row("qwen3moe", qk_norm="head", embd=64, head_dim=32, experts=6,
                              used=2, expert_ff=40, quantised=True),
    "gemma": Row("gemma", tied=True),
    "gemma2": Row("gemma2", {"attention.sliding_window": 17, "attn_logit_softcapping": 2.0,
                             "final_logit_softcapping": 5.0}, layers=3, post_norms=True, tied=True),
    "gemma3": Row("gemma3", {"attention.sliding_window": 17, "rope.freq_base": 1e6,
                             "rope.freq_base_swa": 5e3, "rope.scaling.type": "linear",
                             "rope.scaling.factor": 8.0}, layers=7, qk_norm="head",
                  post_norms=True, tied=True),
    "gemma3_pattern": Row("gemma3", {"attention.sliding_window": 17,
                                     "attention.sliding_window_pattern": [False, True]},
                          qk_norm="head", post_norms=True, tied=True),
    "phi2": Row("phi2", {"rope.dimension_count": 32}, **LAYER_NORM, ungated=True, parallel=True,
                kv_heads=3, fused_qkv=True, qkv_bias=True, o_bias=True, mlp_bias=True,
                out_bias=True),
    "phi3_short": Row("phi3", LONGROPE, fused_qkv=True, fused_gate=True, factors=FACTORS,
                      max_model_len=64),
    "phi3_long": Row("phi3", LONGROPE, fused_qkv=True, fused_gate=True, factors=FACTORS),
    "phi3_window": Row("phi3", {"attention.sliding_window": 19}, fused_qkv=True, fused_gate=True,
                       kv_heads=3, tied=True),
    "olmo2": Row("olmo2", no_pre_norms=True, post_norms=True, qk_norm="all"),
    "olmo2_quantised": Row("olmo2", no_pre_norms=True, post_norms=True, qk_norm="all", embd=64,
                           ff=96, head_dim=32, quantised=True),
    "olmo3": Row("olmo2", {**YARN, "attention.sliding_window": 18, "rope.freq_base": 5e5,
                           "attention.sliding_window_pattern": [True, True, False, True, False]},
                 no_pre_norms=True, post_norms=True, qk_norm="all", layers=5),
    "smollm3": Row("smollm3", layers=5, tied=True),
    "granite": Row("granite", GRANITE, tied=True, eps=0.1),
    "granite_still": Row("granite", {**GRANITE, "rope.scaling.finetuned": False}),
    "granitemoe": Row("granitemoe", GRANITE, experts=5, used=2, expert_ff=24, shared_ff=40),
    "granitemoe_alone": Row("granitemoe", GRANITE, experts=7, used=3, expert_ff=24),
    "starcoder2": Row("starcoder2", {"attention.sliding_window": 22}, **LAYER_NORM, ungated=True,
                      qkv_bias=True, o_bias=True, mlp_bias=True, tied=True),
    "gptoss": Row("gpt-oss", {**YARN, "attention.sliding_window": 16}, experts=5, used=2,
                  expert_ff=24, expert_bias=True, sinks=True, qkv_bias=True, o_bias=True,
                  layers=3, before_ffn="post_attention_norm"),
    "commandr": Row("command-r", {"logit_scale": 0.35}, layer_norm=True, parallel=True,
                    qk_norm="heads", heads=4, kv_heads=2, head_dim=12, tied=True),
    "commandr_mixed": Row("command-r", {"logit_scale": 0.35}, layer_norm=True, parallel=True,
                          embd=64, ff=96, head_dim=32, quantised=True, float_mlp=True, tied=True),
    "cohere2": Row("cohere2", {"logit_scale": 0.35, "attention.sliding_window": 15},
                   layer_norm=True, parallel=True, layers=5, tied=True),
    "stablelm": Row("stablelm", {"use_parallel_residual": False, "rope.dimension_count": 20},
                    **LAYER_NORM, qkv_bias=True),
    "stablelm_parallel": Row("stablelm", {"use_parallel_residual": True,
                                          "rope.dimension_count": 20},
                             **LAYER_NORM, parallel=True, qk_norm="heads"),
    "glm4": Row("glm4", {"rope.dimension_count": 40}, post_norms=True, qkv_bias=True,
                fused_gate=True),
}


# --- writing a model ---

def write_keys(m, r):
    epsilon = "layer_norm_epsilon" if r.layer_norm else "layer_norm_rms_epsilon"
    for rest, value in {"block_count": r.layers, "context_length": r.context,
                        "embedding_length": r.embd, "feed_forward_length": r.ff,
                        "attention.head_count": r.heads, "attention.head_count_kv": r.kv_heads,
                        "attention." + epsilon: r.eps}.items():
        m.key(rest, value)
    if r.heads * r.head_dim != r.embd:
        m.key("attention.key_length", r.head_dim)
        m.key("attention.value_length", r.head_dim)
    if r.experts:
        m.key("expert_count", r.experts)
        m.key("expert_used_count", r.used)
        m.key("expert_feed_forward_length", r.expert_ff)
    for rest, value in r.keys.items():
        m.key(rest, value)


def write_norm(m, r, name):
    m.vector(name + ".weight", r.embd, around=1)
    if r.norm_bias:
        m.vector(name + ".bias", r.embd)


def write_linear(m, name, rows, cols, bias, gain=1.0):
    m.matrix(name + ".weight", rows, cols, gain)
    if bias:
        m.vector(name + ".bias", rows)


def write_attention(m, r, block):
    q, kv = r.heads * r.head_dim, r.kv_heads * r.head_dim
    if r.fused_qkv:
        write_linear(m, block + "attn_qkv", q + 2 * kv, r.embd, r.qkv_bias)
    else:
        for part, rows in ("q", q), ("k", kv), ("v", kv):
            write_linear(m, f"{block}attn_{part}", rows, r.embd, r.qkv_bias)
    write_linear(m, block + "attn_output", r.embd, q, r.o_bias)
    for part, heads in ("q", r.heads), ("k", r.kv_heads):
        shape = {"head": r.head_dim, "heads": (heads, r.head_dim),
                 "all": heads * r.head_dim}.get(r.qk_norm)
        if shape:
            m.vector(f"{block}attn_{part}_norm.weight", shape, around=1)
    if r.sinks:
        m.vector(block + "attn_sinks.weight", r.heads, spread=1)


def write_mlp(m, r, block, n_ff, suffix="", bias=False):
    if r.fused_gate:
        write_linear(m, block + "ffn_up", 2 * n_ff, r.embd, bias)
    else:
        for part in ("up",) if r.ungated else ("gate", "up"):
            write_linear(m, f"{block}ffn_{part}{suffix}", n_ff, r.embd, bias)
    write_linear(m, f"{block}ffn_down{suffix}", r.embd, n_ff, bias)


def write_experts(m, r, block):
    m.matrix(block + "ffn_gate_inp.weight", r.experts, r.embd, gain=2, plain=True)
    if r.expert_bias:
        m.vector(block + "ffn_gate_inp.bias", r.experts)
    for part, rows, cols in (("gate", r.expert_ff, r.embd), ("up", r.expert_ff, r.embd),
                             ("down", r.embd, r.expert_ff)):
        if r.experts_apart:
            for e in range(r.experts):
                m.matrix(f"{block}ffn_{part}.{e}.weight", rows, cols)
            continue
        m.matrix(f"{block}ffn_{part}_exps.weight", rows, cols, experts=r.experts)
        if r.expert_bias:
            m.vector(f"{block}ffn_{part}_exps.bias", (r.experts, rows))
    if r.shared_ff:
        write_mlp(m, r, block, r.shared_ff, "_shexp")
    if r.shared_gate:
        m.vector(block + "ffn_gate_inp_shexp.weight", r.embd)


def write_layer(m, r, i):
    block = f"blk.{i}."
    if not r.no_pre_norms:
        write_norm(m, r, block + "attn_norm")
        if not r.parallel:
            write_norm(m, r, block + r.before_ffn)
    if r.post_norms:
        m.vector(block + "post_attention_norm.weight", r.embd, around=1)
        m.vector(block + "post_ffw_norm.weight", r.embd, around=1)
    write_attention(m, r, block)
    if r.experts and i not in r.dense_layers:
        write_experts(m, r, block)
    else:
        write_mlp(m, r, block, r.ff, bias=r.mlp_bias)


def write_model(path, r, rng):
    m = Maker(path, r.arch, rng, r.quantised, r.float_mlp)
    write_keys(m, r)
    m.matrix("token_embd.weight", r.vocab, r.embd, gain=r.embd ** 0.5 if not r.tied else 2.5)
    write_norm(m, r, "output_norm")
    if not r.tied:
        m.matrix("output.weight", r.vocab, r.embd, gain=2.5)
    if r.out_bias:
        m.vector("output.bias", r.vocab)
    for name, factors in r.factors.items():
        m.writer.add_tensor(name, factors.astype(np.float32))
    for i in range(r.layers):
        write_layer(m, r, i)
    m.close()


# --- golden numbers ---

def golden_prompt(model, name, ids):
    rows = model.logits(ids, 0)
    row, lse = rows[-1], forward.logsumexp(rows)
    best = np.argsort(-row, kind="stable")[:N_TOP]
    p = {"name": name, "ids": ids, "top": [[int(i), float(row[i])] for i in best],
         "logsumexp": float(lse[-1]), "greedy": forward.greedy(model, ids, GREEDY)}
    if len(ids) > 1:
        p["prompt_logprobs"] = [float(rows[i, t] - lse[i]) for i, t in enumerate(ids[1:])]
    return p


def apart(model, path):
    """The experts of a file that has a tensor for each, as forward.py knows them."""
    for i in range(model.layers):
        for part in ("gate", "up", "down"):
            names = [f"blk.{i}.ffn_{part}.{e}.weight" for e in range(model.own("expert_count"))]
            if names[0] in model.tensors:
                model.tensors[f"blk.{i}.ffn_{part}_exps.weight"] = np.stack(
                    [model.tensors[n] for n in names])


def make(folder, name, seed):
    r = MODELS[name]
    rng = np.random.default_rng([seed, *name.encode()])
    path = os.path.join(folder, f"{name}.{'Q8_0' if r.quantised else 'F32'}.gguf")
    write_model(path, r, rng)
    model = forward.Model(path, r.max_model_len or None)
    if r.experts_apart:
        apart(model, path)
    longest = r.max_model_len - GREEDY if r.max_model_len else r.context
    prompts = [golden_prompt(model, p, rng.integers(0, r.vocab, min(n, longest)).tolist())
               for p, n in PROMPTS.items()]
    with open(path + ".golden.json", "w") as f:
        json.dump({"name": name, "reference": "tests/reference/forward.py", "seed": seed,
                   "max_model_len": r.max_model_len, "prompts": prompts}, f)


def make_all(folder, seed=1):
    for name in MODELS:
        make(folder, name, seed)


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        raise SystemExit(__doc__)
    make_all(sys.argv[1], int(sys.argv[2]) if len(sys.argv) == 3 else 1)
