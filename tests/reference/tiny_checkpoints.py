#!/usr/bin/env python3
"""The tiny models of tiny_models.py as Hugging Face directories: the same numbers are golden.

  tiny_checkpoints.py DIR [SEED]    writes DIR/NAME/{config.json,*.safetensors,golden.json}
  tiny_checkpoints.py --seeds DIR   writes the seeds of tests/fuzz/fuzz_safetensors.c

Each directory has what its architecture's checkpoints have: fused tensors, experts apart or
stacked, biases, norms less one, several shards, both spellings of config.json. Models that no
checkpoint can be are left out (HF below). Some more are quantised (OTHERS);
golden are the numbers of the rounded weights. test_golden_hf DIR compares.
"""
import copy
import json
import os
import struct
import sys
import tempfile

import gguf
import numpy as np

import tiny_models

YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}
LONG = {"type": "longrope", "short_factor": np.linspace(1, 1.3, 18).tolist(),
        "long_factor": np.linspace(1.5, 5, 18).tolist(), "attention_factor": 1.19}
GRANITE = {"embedding_multiplier": 3.0, "residual_multiplier": 0.4, "logits_scaling": 0.7,
           "attention_multiplier": 0.2, "hidden_act": "silu"}
FULL, SLIDING = "full_attention", "sliding_attention"

# name: (class, what config.json says beyond the sizes)
HF = {
    "llama": ("LlamaForCausalLM", {}),
    "llama_window": ("Mistral3ForConditionalGeneration", {"sliding_window": 21,
                                                          "rope_theta": 1e6}),
    "mixtral": ("MixtralForCausalLM", {"num_local_experts": 5, "num_experts_per_tok": 2,
                                       "intermediate_size": 40, "rope_theta": 1e4}),
    "qwen2": ("Qwen2ForCausalLM", {"rope_scaling": YARN, "sliding_window": 9,
                                   "use_sliding_window": False}),
    "qwen2moe": ("Qwen2MoeForCausalLM", {"num_experts": 7, "num_experts_per_tok": 3,
                                         "moe_intermediate_size": 24,
                                         "shared_expert_intermediate_size": 72}),
    "qwen3": ("Qwen3ForCausalLM", {"rope_parameters": {"rope_theta": 1e4,
                                                       "rope_type": "default"}}),
    "qwen3moe": ("Qwen3MoeForCausalLM", {"num_local_experts": 9, "num_experts_per_tok": 4,
                                         "moe_intermediate_size": 20, "norm_topk_prob": True,
                                         "mlp_only_layers": [1]}),
    "gemma": ("GemmaForCausalLM", {}),
    "gemma2": ("Gemma2ForCausalLM", {"sliding_window": 17, "attn_logit_softcapping": 2.0,
                                     "final_logit_softcapping": 5.0, "query_pre_attn_scalar": 80}),
    "gemma3": ("Gemma3ForConditionalGeneration", {
        "sliding_window": 17, "query_pre_attn_scalar": 80, "rope_theta": 1e6,
        "rope_local_base_freq": 5e3, "rope_scaling": {"rope_type": "linear", "factor": 8.0}}),
    "gemma3_pattern": ("Gemma3ForCausalLM", {
        "sliding_window": 17, "query_pre_attn_scalar": 80, "layer_types": [FULL, SLIDING],
        "rope_parameters": {FULL: {"rope_theta": 1e4, "rope_type": "default"},
                            SLIDING: {"rope_theta": 1e4, "rope_type": "default"}}}),
    "phi2": ("PhiForCausalLM", {"partial_rotary_factor": 0.4, "hidden_act": "gelu_new"}),
    "phi3_short": ("Phi3ForCausalLM", {"rope_scaling": LONG, "partial_rotary_factor": 0.45,
                                       "original_max_position_embeddings": 64}),
    "phi3_long": ("Phi3ForCausalLM", {"rope_scaling": LONG, "partial_rotary_factor": 0.45,
                                      "original_max_position_embeddings": 64}),
    "phi3_window": ("Phi3ForCausalLM", {"sliding_window": 19}),
    "olmo2": ("Olmo2ForCausalLM", {}),
    "olmo3": ("Olmo3ForCausalLM", {
        "sliding_window": 18, "rope_theta": 5e5, "rope_scaling": YARN,
        "layer_types": [SLIDING, SLIDING, FULL, SLIDING, FULL]}),
    "smollm3": ("SmolLM3ForCausalLM", {"rope_theta": 1e4, "no_rope_layers": [1, 1, 1, 0, 1]}),
    "granite": ("GraniteForCausalLM", GRANITE),
    "granitemoe_alone": ("GraniteMoeForCausalLM", {**GRANITE, "num_local_experts": 7,
                                                   "num_experts_per_tok": 3,
                                                   "intermediate_size": 24}),
    "starcoder2": ("Starcoder2ForCausalLM", {"sliding_window": 22}),
    "gptoss": ("GptOssForCausalLM", {
        "num_local_experts": 5, "num_experts_per_tok": 2, "intermediate_size": 24,
        "sliding_window": 16, "rope_parameters": {**YARN, "rope_theta": 1e4, "truncate": False}}),
    "commandr": ("CohereForCausalLM", {"logit_scale": 0.35, "use_qk_norm": True}),
    "cohere2": ("Cohere2ForCausalLM", {"logit_scale": 0.35, "sliding_window": 15,
                                       "sliding_window_pattern": 4}),
    "stablelm": ("StableLmForCausalLM", {"use_qkv_bias": True}),
    "stablelm_parallel": ("StableLmForCausalLM", {"use_parallel_residual": True,
                                                  "qk_layernorm": True}),
    "glm4": ("Glm4ForCausalLM", {"partial_rotary_factor": 0.5}),
}
SHARDS = {"llama": 3, "qwen3moe": 2}
PREFIX = {"gemma3": "language_model.model.", "llama_window": "model.language_model."}

# --- names ---

COMMON = {"token_embd": "embed_tokens", "output_norm": "norm", "output": "lm_head",
          "attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj",
          "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
          "attn_qkv": "self_attn.qkv_proj", "attn_output": "self_attn.o_proj",
          "attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm",
          "attn_sinks": "self_attn.sinks", "ffn_norm": "post_attention_layernorm",
          "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
          "ffn_gate_inp": "mlp.gate", "ffn_gate_exps": "mlp.experts.*.gate_proj",
          "ffn_up_exps": "mlp.experts.*.up_proj", "ffn_down_exps": "mlp.experts.*.down_proj",
          "ffn_gate_shexp": "mlp.shared_expert.gate_proj",
          "ffn_up_shexp": "mlp.shared_expert.up_proj",
          "ffn_down_shexp": "mlp.shared_expert.down_proj",
          "ffn_gate_inp_shexp": "mlp.shared_expert_gate",
          "post_attention_norm": "post_attention_layernorm",
          "post_ffw_norm": "post_feedforward_layernorm"}
GEMMA = {"ffn_norm": "pre_feedforward_layernorm"}
OWN = {
    "MixtralForCausalLM": {"ffn_gate_inp": "block_sparse_moe.gate",
                           "ffn_gate_exps": "block_sparse_moe.experts.*.w1",
                           "ffn_up_exps": "block_sparse_moe.experts.*.w3",
                           "ffn_down_exps": "block_sparse_moe.experts.*.w2"},
    "Gemma2ForCausalLM": GEMMA, "Gemma3ForCausalLM": GEMMA,
    "Gemma3ForConditionalGeneration": GEMMA,
    "PhiForCausalLM": {"output_norm": "final_layernorm", "attn_output": "self_attn.dense",
                       "ffn_up": "mlp.fc1", "ffn_down": "mlp.fc2"},
    "Phi3ForCausalLM": {"ffn_up": "mlp.gate_up_proj"},
    "Starcoder2ForCausalLM": {"ffn_up": "mlp.c_fc", "ffn_down": "mlp.c_proj"},
    "GptOssForCausalLM": {"ffn_gate_inp": "mlp.router"},
    "GraniteMoeForCausalLM": {"ffn_gate_inp": "block_sparse_moe.router.layer"},
    "Glm4ForCausalLM": {"ffn_up": "mlp.gate_up_proj",
                        "post_attention_norm": "post_self_attn_layernorm",
                        "post_ffw_norm": "post_mlp_layernorm"},
    "StableLmForCausalLM": {"attn_q_norm": "self_attn.q_layernorm.norms.*",
                            "attn_k_norm": "self_attn.k_layernorm.norms.*"},
}
PAIRS = ("llama", "smollm3", "granite", "granitemoe")  # whose GGUF files have other rows of q and k


def turned_back(w, heads):
    """Rows of a head as checkpoints have them: first halves, then second ones, of each pair."""
    return w.reshape(heads, -1, 2, *w.shape[1:]).swapaxes(1, 2).reshape(w.shape)


def split_qkv(tensors, r):
    """Phi 2's GGUF files fuse what its checkpoints keep apart."""
    q, kv = r.heads * r.head_dim, r.kv_heads * r.head_dim
    for name in [n for n in tensors if "attn_qkv" in n]:
        w = tensors.pop(name)
        for part, piece in zip("qkv", np.split(w, [q, q + kv])):
            tensors[name.replace("qkv", part)] = piece


def gpt_oss_experts(tensors, layer):
    """Gate and up take turns in the columns of one tensor, [experts][in][out]."""
    block, out = f"blk.{layer}.ffn_", f"layers.{layer}.mlp.experts."
    gate, up, down = (tensors.pop(f"{block}{p}_exps.weight") for p in ("gate", "up", "down"))
    both = np.stack([gate, up], axis=2).reshape(len(gate), -1, gate.shape[2])
    yield out + "gate_up_proj", both.swapaxes(1, 2)
    yield out + "down_proj", down.swapaxes(1, 2)
    gate, up, down = (tensors.pop(f"{block}{p}_exps.bias") for p in ("gate", "up", "down"))
    yield out + "gate_up_proj_bias", np.stack([gate, up], axis=2).reshape(len(gate), -1)
    yield out + "down_proj_bias", down


def granite_experts(tensors, layer):
    """Gate and up are the halves of one tensor, [experts][out][in]."""
    block, out = f"blk.{layer}.ffn_", f"layers.{layer}.block_sparse_moe."
    gate, up, down = (tensors.pop(f"{block}{p}_exps.weight") for p in ("gate", "up", "down"))
    yield out + "input_linear.weight", np.concatenate([gate, up], axis=1)
    yield out + "output_linear.weight", down


def named(name, names):
    """"blk.3.attn_q.bias" as a checkpoint calls it, without prefix."""
    part, suffix = name.rsplit(".", 1)
    if part.startswith("blk."):
        _, layer, part = part.split(".", 2)
        part = f"layers.{layer}.{names[part]}"
    else:
        part = names[part]
    return part if part.endswith("sinks") else f"{part}.{suffix}"


def checkpoint(path, name, r):
    """The tensors of a GGUF file as a checkpoint has them."""
    kind = HF[name][0]
    names = {**COMMON, **OWN.get(kind, {})}
    if r.arch == "gpt-oss":
        names["post_attention_norm"] = COMMON["ffn_norm"]
    tensors = {t.name: np.array(t.data).reshape(t.shape[::-1])
               for t in gguf.GGUFReader(path).tensors if not t.name.startswith("rope_")}
    out = {}
    if kind == "PhiForCausalLM":
        split_qkv(tensors, r)
    stacked = {"gpt-oss": gpt_oss_experts, "granitemoe": granite_experts}.get(r.arch)
    for layer in range(r.layers if stacked else 0):
        out.update(stacked(tensors, layer))
    for old, w in tensors.items():
        if r.arch in PAIRS and (".attn_q." in old or ".attn_k." in old):
            w = turned_back(w, r.heads if ".attn_q." in old else r.kv_heads)
        if r.arch.startswith("gemma") and "norm" in old:
            w = w - 1
        if old.endswith("ffn_gate_inp_shexp.weight"):
            w = w.reshape(1, -1)
        new = named(old, names)
        if "*" in new:
            out.update({new.replace("*", str(i)): w[i] for i in range(len(w))})
        else:
            out[new] = w
    prefix = PREFIX.get(name, "model.")
    head = "language_model." if prefix.startswith("language_model.") else ""
    return {(head if n.startswith("lm_head") else prefix) + n: w for n, w in out.items()}


# --- files ---

F8_TYPE = np.dtype([("f8", "u1")])
TYPES = {np.dtype(np.float32): "F32", np.dtype(np.uint8): "U8", np.dtype(np.float16): "F16",
         np.dtype(np.int32): "I32", F8_TYPE: "F8_E4M3"}


def safetensors(tensors):
    header, at, data = {"__metadata__": {"format": "pt"}}, 0, []
    for name, w in tensors.items():
        raw = np.ascontiguousarray(w).tobytes()
        header[name] = {"dtype": TYPES[w.dtype], "shape": list(w.shape), "data_offsets": [at, at + len(raw)]}
        at += len(raw)
        data.append(raw)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + b"".join(data)


def write_safetensors(path, tensors):
    with open(path, "wb") as f:
        f.write(safetensors(tensors))


def write_weights(folder, tensors, n_shards):
    if n_shards == 1:
        write_safetensors(os.path.join(folder, "model.safetensors"), tensors)
        return
    where = {}
    for i in range(n_shards):
        name = f"model-{i + 1:05}-of-{n_shards:05}.safetensors"
        part = {n: tensors[n] for k, n in enumerate(tensors) if k % n_shards == i}
        write_safetensors(os.path.join(folder, name), part)
        where.update(dict.fromkeys(part, name))
    with open(os.path.join(folder, "model.safetensors.index.json"), "w") as f:
        json.dump({"metadata": {"total_size": 0}, "weight_map": where}, f)


def config_of(name, r):
    kind, more = HF[name]
    eps = ({"layer_norm_eps": r.eps, "norm_epsilon": r.eps} if r.layer_norm
           else {"rms_norm_eps": r.eps})
    config = {"hidden_size": r.embd, "num_hidden_layers": r.layers, "num_attention_heads": r.heads,
              "num_key_value_heads": r.kv_heads, "head_dim": r.head_dim, "vocab_size": r.vocab,
              "intermediate_size": r.ff, "max_position_embeddings": r.context,
              "tie_word_embeddings": r.tied, "torch_dtype": "float32", **eps, **more}
    if kind in ("LlamaForCausalLM", "Glm4ForCausalLM", "GptOssForCausalLM"):
        config["attention_bias"] = r.qkv_bias
    if kind.endswith("ForConditionalGeneration"):
        config = {"text_config": config, "vision_config": {}}
    return {"architectures": [kind], **config}


def make(folder, name, seed):
    r = tiny_models.MODELS[name]
    out = os.path.join(folder, name)
    os.makedirs(out)
    with tempfile.TemporaryDirectory() as d:
        tiny_models.make(d, name, seed)
        path = os.path.join(d, f"{name}.F32.gguf")
        write_weights(out, checkpoint(path, name, r), SHARDS.get(name, 1))
        os.rename(path + ".golden.json", os.path.join(out, "golden.json"))
    with open(os.path.join(out, "config.json"), "w") as f:
        json.dump(config_of(name, r), f, indent=1)


# --- packed checkpoints: AWQ, GPTQ, FP8, MXFP4 ---

GROUP = 32
AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)  # the output that each nibble of a word has


def words(q, axis, order=range(8)):
    """Eight numbers below 16 along the axis become a 32-bit word, the first of `order` lowest."""
    q = np.moveaxis(q, axis, -1)
    q = q.reshape(*q.shape[:-1], -1, 8).astype(np.uint32)
    packed = sum(q[..., which] << np.uint32(4 * i) for i, which in enumerate(order))
    return np.moveaxis(packed.astype(np.uint32).view(np.int32), -1, axis)


def int4_of(w, g_idx):
    """q [in][out], zeros and scales [group][out], and the values that they stand for."""
    w = w.T
    n_groups = g_idx.max() + 1
    scales, zeros = (np.empty((n_groups, w.shape[1]), np.float32) for _ in range(2))
    q = np.empty(w.shape)
    for g in range(n_groups):
        part = w[g_idx == g]
        scales[g] = ((part.max(0) - part.min(0)) / 15).astype(np.float16)
        zeros[g] = np.clip(np.round(-part.min(0) / scales[g]), 1, 15)
        q[g_idx == g] = np.clip(np.round(part / scales[g]) + zeros[g], 0, 15)
    return q, zeros, scales, ((q - zeros[g_idx]) * scales[g_idx]).T.astype(np.float32)


def groups(w, group):
    return np.arange(w.shape[1]) // (group if group > 0 else w.shape[1])


def gptq(w, rng, group=GROUP, act=False):
    g_idx = groups(w, group)
    if act:
        g_idx = rng.permutation(g_idx)
    q, zeros, scales, value = int4_of(w, g_idx)
    return value, {"qweight": words(q, 0), "qzeros": words(zeros - 1, 1),
                   "scales": scales.astype(np.float16), "g_idx": g_idx.astype(np.int32)}


def gptq_act(w, rng):
    value, parts = gptq(w, rng, act=True)
    return value.astype(np.float16).astype(np.float32), parts  # as tokend keeps them


def awq(w, _, group=GROUP):
    q, zeros, scales, value = int4_of(w, groups(w, group))
    return value, {"qweight": words(q, 1, AWQ_ORDER), "qzeros": words(zeros, 1, AWQ_ORDER),
                   "scales": scales.astype(np.float16)}


def awq_whole(w, rng):
    """One group for all inputs of an output, which end within a block of 32."""
    value, parts = awq(w, rng, -1)
    return value.astype(np.float16).astype(np.float32), parts  # as tokend keeps them


def e4m3_values():
    """What each byte of F8_E4M3 stands for; the two of NaN are far away."""
    b = np.arange(256)
    exponent, mantissa = b >> 3 & 15, b & 7
    v = np.where(exponent, (8 + mantissa) * 2.0 ** (exponent - 10), mantissa * 2.0 ** -9)
    v = np.where(b & 128, -v, v)
    v[[127, 255]] = 1e9
    return v


def fp8_rows(w, _):
    scales = (np.abs(w).max(1, keepdims=True) / 448).astype(np.float32)
    return fp8_with(w, scales, "weight_scale", scales)


def fp8_blocks(w, _):
    """Blocks of 128 by 128; the last ones of a row or column are smaller."""
    rows, cols = (-(-n // 128) for n in w.shape)
    stored = np.empty((rows, cols), np.float32)
    for r in range(rows):
        for c in range(cols):
            part = w[128 * r:128 * (r + 1), 128 * c:128 * (c + 1)]
            stored[r, c] = np.abs(part).max() / 448
    scales = stored.repeat(128, 0)[:w.shape[0]].repeat(128, 1)[:, :w.shape[1]]
    return fp8_with(w, scales, "weight_scale_inv", stored)


def fp8_with(w, scales, name, stored):
    values = e4m3_values()
    b = np.empty(w.shape, np.uint8)
    for i, row in enumerate(np.broadcast_to(scales, w.shape)):
        b[i] = np.abs(w[i, :, None] / row[:, None] - values).argmin(-1)
    value = (values[b].astype(np.float32) * scales).astype(np.float16)  # as tokend keeps them
    return value.astype(np.float32), {"weight": b.view(F8_TYPE), name: stored}


INT4 = {"bits": 4, "group_size": GROUP}
AWQ = {"quant_method": "awq", "version": "gemm", **INT4}
BLOCKS = {"quant_method": "fp8", "weight_block_size": [128, 128]}
ROWS = {"quant_method": "compressed-tensors", "format": "float-quantized"}
QWEN = {"embd": 64, "ff": 96, "heads": 4, "kv_heads": 2, "head_dim": 32}
PHI = {"embd": 96, "ff": 64, "heads": 3, "kv_heads": 1, "head_dim": 32}
# name: how, what config.json says, whose architecture, the sizes
PACKED = {
    "int4_gptq": (gptq, {"quant_method": "gptq", **INT4}, "qwen3", QWEN),
    "int4_awq": (awq, AWQ, "qwen3", QWEN),
    "int4_awq_fused": (awq, AWQ, "phi3_window", PHI),
    "awq_odd": (awq_whole, {**AWQ, "group_size": -1}, "phi3_window",
                {"embd": 40, "ff": 56, "heads": 3, "kv_heads": 1, "head_dim": 24}),
    "gptq_act": (gptq_act, {"quant_method": "gptq", "desc_act": True, **INT4}, "qwen3", QWEN),
    "gptq_act_fused": (gptq_act, {"quant_method": "gptq", "desc_act": True, **INT4},
                       "phi3_window", PHI),
    "fp8_rows": (fp8_rows, ROWS, "qwen3", QWEN),
    "fp8_blocks": (fp8_blocks, BLOCKS, "qwen3", QWEN),
    "fp8_odd_blocks": (fp8_blocks, BLOCKS, "qwen3",
                       {"embd": 133, "ff": 259, "heads": 5, "kv_heads": 1, "head_dim": 54}),
    "fp8_odd_rows": (fp8_rows, ROWS, "qwen3",
                     {"embd": 45, "ff": 67, "heads": 3, "kv_heads": 3, "head_dim": 22}),
    "fp8_fused": (fp8_rows, ROWS, "phi3_window",
                  {"embd": 90, "ff": 61, "heads": 3, "kv_heads": 1, "head_dim": 30}),
}


def row_of(base, sizes):
    r = copy.copy(tiny_models.MODELS[base])
    for key, value in sizes.items():
        setattr(r, key, value)
    return r


def make_rounded(folder, name, base, r, seed, matrix):
    """Makes a model of the row whose matrices are as matrix(tensor, w, rng) returns them."""
    class Maker(tiny_models.Maker):
        def matrix(self, tensor, rows, cols, gain=1.0, experts=None, plain=False):
            shape = (rows, cols) if experts is None else (experts, rows, cols)
            w = (self.rng.standard_normal(shape) * gain / cols ** 0.5).astype(np.float32)
            self.writer.add_tensor(tensor, matrix(tensor, w, self.rng))

    usual, tiny_models.Maker = tiny_models.Maker, Maker
    tiny_models.MODELS[name], HF[name] = r, HF[base]
    try:
        make(folder, name, seed)
    finally:
        tiny_models.Maker = usual
        del HF[name], tiny_models.MODELS[name]


def make_packed(folder, name, seed):
    pack, quantisation, base, sizes = PACKED[name]
    names, packed = {**COMMON, **OWN.get(HF[base][0], {})}, {}

    def matrix(tensor, w, rng):
        if tensor.startswith("blk."):
            w, packed[named(tensor, names)] = pack(w, rng)
        return w

    make_rounded(folder, name, base, row_of(base, sizes), seed, matrix)
    tensors = read_safetensors(os.path.join(folder, name))
    for tensor, parts in packed.items():
        del tensors["model." + tensor]
        stem = "model." + tensor.removesuffix("weight")
        tensors.update({stem + part: w for part, w in parts.items()})
    rewrite(os.path.join(folder, name), tensors, quantisation)


def read_safetensors(folder):
    with open(os.path.join(folder, "model.safetensors"), "rb") as f:
        n, = struct.unpack("<Q", f.read(8))
        header, data = json.loads(f.read(n)), f.read()
    return {k: np.frombuffer(data[slice(*v["data_offsets"])], np.float32).reshape(v["shape"])
            for k, v in header.items() if k != "__metadata__"}


def rewrite(folder, tensors, quantisation):
    write_safetensors(os.path.join(folder, "model.safetensors"), tensors)
    path = os.path.join(folder, "config.json")
    with open(path) as f:
        config = json.load(f)
    config["quantization_config"] = quantisation
    with open(path, "w") as f:
        json.dump(config, f, indent=1)


FP4 = np.array([0, .5, 1, 1.5, 2, 3, 4, 6])


def mxfp4(w):
    """Codes [..., blocks, 32] and exponents [..., blocks] of the rows; exact for what it made."""
    w = w.reshape(*w.shape[:-1], -1, 32)
    exponent = np.floor(np.log2(np.abs(w).max(-1))) - 2
    code = np.abs(np.abs(w)[..., None] / 2.0 ** exponent[..., None, None] - FP4).argmin(-1)
    return code | np.where(w < 0, 8, 0), exponent


def mxfp4_rounded(tensor, w, _):
    if "_exps." not in tensor:
        return w
    code, exponent = mxfp4(w)
    value = np.where(code & 8, -1, 1) * FP4[code & 7] * 2.0 ** exponent[..., None]
    return value.reshape(w.shape).astype(np.float32)


def make_mxfp4(folder, name, seed):
    """gpt-oss with its experts in four bits, neighbours in one byte, the first of them lower."""
    r = row_of("gptoss", {"embd": 96, "expert_ff": 64, "heads": 4, "kv_heads": 2, "head_dim": 24})
    more = {**HF["gptoss"][1], "intermediate_size": 64}
    HF["gptoss_sizes"] = "GptOssForCausalLM", more
    try:
        make_rounded(folder, name, "gptoss_sizes", r, seed, mxfp4_rounded)
    finally:
        del HF["gptoss_sizes"]
    tensors = read_safetensors(os.path.join(folder, name))
    for tensor in [n for n in tensors if n.endswith("_proj") and ".experts." in n]:
        code, exponent = mxfp4(tensors.pop(tensor).swapaxes(1, 2))
        tensors[tensor + "_blocks"] = (code[..., ::2] | code[..., 1::2] << 4).astype(np.uint8)
        tensors[tensor + "_scales"] = (exponent + 127).astype(np.uint8)
    rewrite(os.path.join(folder, name), tensors, {"quant_method": "mxfp4"})


# Makers by name, of those that make() does not make.
OTHERS = {**dict.fromkeys(PACKED, make_packed), "gptoss_mxfp4": make_mxfp4}


# --- seeds of the fuzzer ---

SEEDS = ("llama", "mixtral", "qwen2moe", "gemma3", "phi2", "phi3_long", "gptoss", "commandr",
         "stablelm_parallel", "glm4")


def as_mxfp4(tensors, rng):
    for name in [n for n in tensors if n.endswith("_proj") and ".experts." in n]:
        experts, cols, rows = tensors.pop(name).shape
        shape = (experts, rows, cols // 32)
        tensors[name + "_blocks"] = rng.integers(0, 256, (*shape, 16), dtype=np.uint8)
        tensors[name + "_scales"] = rng.integers(120, 130, shape, dtype=np.uint8)


def write_seed(folder, name, mxfp4=False):
    r = copy.copy(tiny_models.MODELS[name])
    small = 32 if mxfp4 else 8
    r.vocab, r.embd, r.ff, r.layers, r.heads, r.kv_heads, r.head_dim = 3, small, 8, 2, 2, 1, 4
    r.experts, r.used = (2 if r.experts else 0), (1 if r.experts else 0)
    r.expert_ff, r.shared_ff = (small if r.experts else 0), (4 if r.shared_ff else 0)
    rng = np.random.default_rng(1)
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, "m.gguf")
        tiny_models.write_model(path, r, rng)
        tensors = checkpoint(path, name, r)
    if mxfp4:
        as_mxfp4(tensors, rng)
    config = config_of(name, r)
    own = config.get("text_config", config)
    own.pop("layer_types", None)
    for key, value in {"num_experts": r.experts, "num_local_experts": r.experts,
                       "num_experts_per_tok": r.used, "moe_intermediate_size": r.expert_ff,
                       "shared_expert_intermediate_size": r.shared_ff}.items():
        if key in own:
            own[key] = value
    if r.experts and "moe_intermediate_size" not in own:
        own["intermediate_size"] = r.expert_ff
    if "rope_scaling" in own and "short_factor" in own["rope_scaling"]:
        del own["rope_scaling"]
    with open(os.path.join(folder, name + ("_mxfp4" if mxfp4 else "")), "wb") as f:
        f.write(json.dumps(config).encode() + b"\0" + safetensors(tensors))


def write_packed_seed(folder, method, rng):
    """A llama of one layer and width 8 with any numbers."""
    n, layer = 8, "model.layers.0."
    tensors = {"model.embed_tokens.weight": rng.standard_normal((3, n)).astype(np.float32),
               "lm_head.weight": rng.standard_normal((3, n)).astype(np.float32)}
    for norm in ("model.norm", layer + "input_layernorm", layer + "post_attention_layernorm"):
        tensors[norm + ".weight"] = np.ones(n, np.float32)
    for part in ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj",
                 "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"):
        stem = layer + part
        if method == "fp8":
            data = rng.integers(0, 120, (n, n), dtype=np.uint8)
            tensors[stem + ".weight"] = data.view(F8_TYPE)
            tensors[stem + ".weight_scale"] = np.ones((n, 1), np.float32)
            continue
        shape = (n, 1) if method == "awq" else (1, n)
        tensors[stem + ".qweight"] = rng.integers(0, 2 ** 31, shape, dtype=np.int32)
        tensors[stem + ".qzeros"] = rng.integers(0, 2 ** 31, (1, 1), dtype=np.int32)
        tensors[stem + ".scales"] = np.ones((1, n), np.float16)
        if method == "gptq":
            tensors[stem + ".g_idx"] = np.zeros(n, np.int32)
    config = {"model_type": "llama", "hidden_size": n, "num_attention_heads": 1, "vocab_size": 3,
              "num_hidden_layers": 1, "intermediate_size": n,
              "quantization_config": {"quant_method": method, "bits": 4, "group_size": n}}
    with open(os.path.join(folder, "llama_" + method), "wb") as f:
        f.write(json.dumps(config).encode() + b"\0" + safetensors(tensors))


def write_seeds(folder):
    os.makedirs(folder, exist_ok=True)
    for method in ("awq", "fp8", "gptq"):
        write_packed_seed(folder, method, np.random.default_rng(1))
    for name in SEEDS:
        write_seed(folder, name)
    write_seed(folder, "gptoss", mxfp4=True)


if __name__ == "__main__":
    if len(sys.argv) == 3 and sys.argv[1] == "--seeds":
        write_seeds(sys.argv[2])
        raise SystemExit
    if len(sys.argv) not in (2, 3):
        raise SystemExit(__doc__)
    seed = int(sys.argv[2]) if len(sys.argv) == 3 else 1
    for each in list(HF):
        make(sys.argv[1], each, seed)
    for each, maker in OTHERS.items():
        maker(sys.argv[1], each, seed)
