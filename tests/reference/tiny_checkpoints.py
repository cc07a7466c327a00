#!/usr/bin/env python3
"""The tiny models of tiny_models.py as Hugging Face directories: the same numbers are golden.

  tiny_checkpoints.py DIR [SEED]    writes DIR/NAME/{config.json,*.safetensors,golden.json}
  tiny_checkpoints.py --seeds DIR   writes the seeds of tests/fuzz/fuzz_safetensors.c

Each directory has what its architecture's checkpoints have: fused tensors, experts apart or
stacked, biases, norms less one, several shards, both spellings of config.json. Models that no
checkpoint can be are left out (HF below). Some more are quantised as AWQ, GPTQ and FP8 are (PACKED);
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
    for layer in range(r.layers if r.arch == "gpt-oss" else 0):
        out.update(gpt_oss_experts(tensors, layer))
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


# --- packed checkpoints: AWQ, GPTQ, FP8 ---

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
    n_groups = len(w) // GROUP
    scales, zeros = (np.empty((n_groups, w.shape[1]), np.float32) for _ in range(2))
    q = np.empty(w.shape)
    for g in range(n_groups):
        part = w[g_idx == g]
        scales[g] = ((part.max(0) - part.min(0)) / 15).astype(np.float16)
        zeros[g] = np.clip(np.round(-part.min(0) / scales[g]), 1, 15)
        q[g_idx == g] = np.clip(np.round(part / scales[g]) + zeros[g], 0, 15)
    return q, zeros, scales, ((q - zeros[g_idx]) * scales[g_idx]).T.astype(np.float32)


def gptq(w, rng, act=False):
    g_idx = np.arange(w.shape[1]) // GROUP
    if act:
        g_idx = rng.permutation(g_idx)
    q, zeros, scales, value = int4_of(w, g_idx)
    return value, {"qweight": words(q, 0), "qzeros": words(zeros - 1, 1),
                   "scales": scales.astype(np.float16), "g_idx": g_idx.astype(np.int32)}


def gptq_act(w, rng):
    value, parts = gptq(w, rng, act=True)
    return value.astype(np.float16).astype(np.float32), parts  # as tokend keeps them


def awq(w, _):
    q, zeros, scales, value = int4_of(w, np.arange(w.shape[1]) // GROUP)
    return value, {"qweight": words(q, 1, AWQ_ORDER), "qzeros": words(zeros, 1, AWQ_ORDER),
                   "scales": scales.astype(np.float16)}


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
    scale = np.float32(np.abs(w).max() / 448)  # one block of 128 by 128 holds all
    return fp8_with(w, scale, "weight_scale_inv", np.full((1, 1), scale, np.float32))


def fp8_with(w, scales, name, stored):
    values = e4m3_values()
    b = np.abs(w[..., None] / np.asarray(scales)[..., None] - values).argmin(-1).astype(np.uint8)
    value = (values[b].astype(np.float32) * scales).astype(np.float16)  # as tokend keeps them
    return value.astype(np.float32), {"weight": b.view(F8_TYPE), name: stored}


PACKED = {
    "int4_gptq": (gptq, {"quant_method": "gptq", "bits": 4, "group_size": GROUP}),
    "int4_awq": (awq, {"quant_method": "awq", "bits": 4, "group_size": GROUP, "version": "gemm"}),
    "gptq_act": (gptq_act, {"quant_method": "gptq", "bits": 4, "group_size": GROUP,
                            "desc_act": True}),
    "fp8_rows": (fp8_rows, {"quant_method": "compressed-tensors", "format": "float-quantized"}),
    "fp8_blocks": (fp8_blocks, {"quant_method": "fp8", "weight_block_size": [128, 128]}),
}


def make_packed(folder, name, seed):
    pack, quantisation = PACKED[name]
    r = tiny_models.Row("qwen3", qk_norm="head", embd=64, ff=96, heads=4, kv_heads=2, head_dim=32)
    packed = {}

    class Maker(tiny_models.Maker):
        def matrix(self, tensor, rows, cols, gain=1.0, experts=None, plain=False):
            w = (self.rng.standard_normal((rows, cols)) * gain / cols ** 0.5).astype(np.float32)
            if tensor.startswith("blk."):
                w, packed[named(tensor, COMMON)] = pack(w, self.rng)
            self.writer.add_tensor(tensor, w)

    usual, tiny_models.Maker = tiny_models.Maker, Maker
    tiny_models.MODELS[name], HF[name] = r, HF["qwen3"]
    try:
        make(folder, name, seed)
    finally:
        tiny_models.Maker = usual
        del HF[name], tiny_models.MODELS[name]
    add_packed(os.path.join(folder, name), packed, quantisation, name, r)


def add_packed(out, packed, quantisation, name, r):
    """Puts the packed tensors in the place of what make wrote."""
    path = os.path.join(out, "model.safetensors")
    with open(path, "rb") as f:
        n, = struct.unpack("<Q", f.read(8))
        header, data = json.loads(f.read(n)), f.read()
    tensors = {k: np.frombuffer(data[slice(*v["data_offsets"])], np.float32).reshape(v["shape"])
               for k, v in header.items() if k != "__metadata__"}
    for tensor, parts in packed.items():
        del tensors["model." + tensor]
        stem = "model." + tensor.removesuffix("weight")
        tensors.update({stem + part: w for part, w in parts.items()})
    write_safetensors(path, tensors)
    with open(os.path.join(out, "config.json")) as f:
        config = json.load(f)
    config["quantization_config"] = quantisation
    with open(os.path.join(out, "config.json"), "w") as f:
        json.dump(config, f, indent=1)


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
    for each in PACKED:
        make_packed(sys.argv[1], each, seed)
