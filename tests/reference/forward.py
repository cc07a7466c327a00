#!/usr/bin/env python3
"""A plain reference forward pass of the GGUF files that tokend computes, in NumPy.

Everything is float32 over the dequantised weights; activations are not quantised, there is no
KV cache (every step computes the whole sequence again), and nothing is shared with tokend's
code. What a tensor's presence says (biases, norms, experts, sinks) is not said again by ARCH.
Needs numpy and gguf, and tokenizers for writing.

  forward.py check MODEL.gguf GOLDEN.json   compares with another reference's golden file
  forward.py write MODEL.gguf OUT.json      writes the golden file of its prompts below

How two files of tests/data were made (their fields are those of the golden files):
  forward.py write SmolLM2-135M-Instruct.Q4_1.gguf tests/data/smollm2.golden.json
  forward.py write gemma-3-270m-q4_k_m.gguf tests/data/gemma3-270m.golden.json
"""
import json
import math
import sys

import gguf
import numpy as np

GREEDY_TOKENS = 16
NEAR_TIE = 0.02

SENTENCE = "The capital of Italy is Rome. The capital of France is"
LLAMA_PROMPTS = {
    "sentence": SENTENCE,
    "chat": "<|im_start|>system\nYou are a helpful assistant who answers in one sentence."
            "<|im_end|>\n<|im_start|>user\nMy garden gets little sun and the soil is heavy clay."
            " Which vegetables could I plant there in early spring, and how often"
            " should I water them?<|im_end|>\n"
            "<|im_start|>assistant\n",
}
# The answer to the second one runs past the window of 512 tokens.
GEMMA3_PROMPTS = {
    "sentence": SENTENCE,
    "counting": " ".join(f"Line {i}: {i} times {i + 3} is {i * (i + 3)}." for i in range(1, 31)),
}

# What GGUF files do not say. pairs: rotation of neighbours (2i, 2i + 1), not of halves.
# windows: "all", or of so many layers the last sees everything.
ARCH = {
    "llama": {"pairs": True, "windows": "all"},
    "qwen2": {}, "qwen3": {},
    "qwen2moe": {"renormalise": False}, "qwen3moe": {},
    "gemma": {"act": "gelu", "embedding": "sqrt"},
    "gemma2": {"act": "gelu", "embedding": "sqrt", "windows": 2, "caps": (50.0, 30.0)},
    "gemma3": {"act": "gelu", "embedding": "sqrt", "windows": 6, "local": 10000.0},
    "phi2": {"norm": "layer", "act": "gelu", "gated": False, "parallel": True},
    "phi3": {"windows": "all"},
    "olmo2": {"windows": 4, "local": None},
    "smollm3": {"pairs": True, "still": 4},
    "granite": {"pairs": True, "divides": True}, "granitemoe": {"pairs": True, "divides": True},
    "starcoder2": {"norm": "layer", "act": "gelu", "gated": False, "windows": "all"},
    "gpt-oss": {"act": "clamped", "windows": 2, "yarn_whole": False},
    "command-r": {"norm": "layer", "pairs": True, "parallel": True},
    "cohere2": {"norm": "layer", "pairs": True, "parallel": True, "windows": 4,
                "still": "windowless"},
    "stablelm": {"norm": "layer"},
    "glm4": {"pairs": True},
}


# --- parts ---

def silu(x):
    return x / (1 + np.exp(-x))


def gelu(x):
    inner = np.float32((2 / np.pi) ** 0.5) * (x + np.float32(0.044715) * x ** 3)
    return x * np.float32(0.5) * (1 + np.tanh(inner))


def clamped_swiglu(gate, up):
    gate, up = np.minimum(gate, np.float32(7)), np.clip(up, np.float32(-7), np.float32(7))
    return gate / (1 + np.exp(np.float32(-1.702) * gate)) * (up + 1)


def softmax(x):
    p = np.exp(x - x.max(axis=-1, keepdims=True))
    return p / p.sum(axis=-1, keepdims=True)


def yarn(theta, dims, factor, original, fast, slow, whole_pairs):
    """Peng et al. 2023: pairs that turn fast stay, slow ones are interpolated."""
    def pair(turns):
        return dims * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(theta))
    low, high = pair(fast), pair(slow)
    if whole_pairs:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, dims - 1)
    if low == high:
        high += 0.001
    kept = 1 - np.clip((np.arange(dims // 2) - low) / (high - low), 0, 1)
    inv = theta ** (-np.arange(0, dims, 2, dtype=np.float64) / dims)
    return inv * kept + inv / factor * (1 - kept)


class Model:
    """context: what the model is run with; above the original one LongRoPE has other factors."""

    def __init__(self, path, context=None):
        reader = gguf.GGUFReader(path)
        self.fields = reader.fields
        self.arch = self.key("general.architecture")
        if self.arch not in ARCH:
            raise SystemExit(f"{path}: only the architectures {', '.join(ARCH)}")
        self.facts = ARCH[self.arch]
        self.tensors = {t.name: gguf.quants.dequantize(t.data, t.tensor_type).astype(np.float32)
                        for t in reader.tensors}
        self.layers = self.own("block_count")
        self.heads = self.own("attention.head_count")
        self.kv_heads = self.own("attention.head_count_kv", self.heads)
        self.embd = self.own("embedding_length")
        self.head_dim = self.own("attention.key_length", self.embd // self.heads)
        rms = self.own("attention.layer_norm_rms_epsilon")
        self.eps = np.float32(self.own("attention.layer_norm_epsilon", rms) if rms is None else rms)
        self.context = context or self.own("context_length")
        self.parallel = self.own("use_parallel_residual", self.facts.get("parallel", False))
        self.read_scales()
        self.read_windows()
        self.mscale = 1.0
        self.inv_freq = self.frequencies()
        theta = self.own("rope.freq_base", 10000.0)
        local = self.facts.get("local", 0) or theta
        self.local_freq = self.powers(self.own("rope.freq_base_swa", local))

    def key(self, name, default=None):
        return self.fields[name].contents() if name in self.fields else default

    def own(self, name, default=None):
        return self.key(f"{self.arch}.{name}", default)

    def read_scales(self):
        by_width = {"gemma2": 46, "gemma3": 62}.get(self.arch) == self.layers
        dim = self.embd // self.heads if by_width else self.head_dim
        self.score_scale = np.float32(self.own("attention.scale") or dim ** -0.5)
        sqrt = self.facts.get("embedding") == "sqrt"
        self.embedding_scale = np.float32(self.embd ** 0.5 if sqrt
                                          else self.own("embedding_scale", 1.0))
        self.residual_scale = np.float32(self.own("residual_scale", 1.0))
        scale = self.own("logit_scale", 1.0)
        self.logit_scale = np.float32(1 / scale if self.facts.get("divides") else scale)
        caps = self.facts.get("caps", (0.0, 0.0))
        self.score_cap = np.float32(self.own("attn_logit_softcapping", caps[0]))
        self.logit_cap = np.float32(self.own("final_logit_softcapping", caps[1]))

    def read_windows(self):
        """self.window, and for each layer whether it has one."""
        every = self.facts.get("windows")
        self.window = self.own("attention.sliding_window", 0) if every else 0
        pattern = self.own("attention.sliding_window_pattern", every)
        if not self.window:
            pattern = [False] * self.layers
        elif pattern == "all":
            pattern = [True] * self.layers
        elif not isinstance(pattern, list):
            pattern = [i % pattern != pattern - 1 for i in range(self.layers)]
        self.windowed = pattern

    # --- rotary embedding ---

    def rope_dims(self):
        return self.own("rope.dimension_count", self.head_dim)

    def powers(self, theta):
        dims = self.rope_dims()
        return theta ** (-np.arange(0, dims, 2, dtype=np.float64) / dims)

    def frequencies(self):
        theta, kind = self.own("rope.freq_base", 10000.0), self.own("rope.scaling.type", "linear")
        factor = self.own("rope.scaling.factor", 1.0)
        original = self.own("rope.scaling.original_context_length", self.own("context_length"))
        stretch = self.own("rope.scaling.yarn_attn_factor", self.own("rope.scaling.attn_factor"))
        if "rope_factors_long.weight" in self.tensors:
            which = "long" if self.context > original else "short"
            s = self.own("context_length") / original
            self.mscale = stretch or (math.sqrt(1 + math.log(s) / math.log(original))
                                      if s > 1 else 1.0)
            return self.powers(theta) / self.tensors[f"rope_factors_{which}.weight"]
        if kind == "yarn":
            self.mscale = stretch or 0.1 * math.log(factor) + 1
            return yarn(theta, self.rope_dims(), factor, original,
                        self.own("rope.scaling.yarn_beta_fast", 32.0),
                        self.own("rope.scaling.yarn_beta_slow", 1.0),
                        self.facts.get("yarn_whole", True))
        inv = self.powers(theta) / (factor if kind == "linear" else 1)
        return inv / self.tensors.get("rope_freqs.weight", 1)

    def turns(self, layer):
        still = self.facts.get("still")
        if self.facts.get("divides") and not self.own("rope.scaling.finetuned", True):
            return False
        if still == "windowless":
            return self.windowed[layer]
        return not still or layer % still != still - 1

    def rotate(self, x, layer):
        """x: [tokens][heads][head_dim]"""
        if not self.turns(layer):
            return x
        local = "local" in self.facts and self.windowed[layer]
        inv_freq, mscale = (self.local_freq, 1.0) if local else (self.inv_freq, self.mscale)
        angle = np.outer(np.arange(len(x)), inv_freq)[:, None, :]
        cos, sin = (f(angle).astype(np.float32) * np.float32(mscale) for f in (np.cos, np.sin))
        half = len(inv_freq)
        first, second = ((slice(0, 2 * half, 2), slice(1, 2 * half, 2)) if self.facts.get("pairs")
                         else (slice(half), slice(half, 2 * half)))
        out = x.copy()
        out[..., first] = x[..., first] * cos - x[..., second] * sin
        out[..., second] = x[..., first] * sin + x[..., second] * cos
        return out

    # --- norms and products ---

    def has(self, name):
        return name + ".weight" in self.tensors

    def linear(self, x, name):
        y = x @ self.tensors[name + ".weight"].T
        bias = self.tensors.get(name + ".bias")
        return y if bias is None else y + bias

    def norm(self, x, name):
        """x itself where there is no such norm."""
        if not self.has(name):
            return x
        if self.facts.get("norm") == "layer":
            x = x - x.mean(axis=-1, keepdims=True)
        y = x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + self.eps)
        return y * self.tensors[name + ".weight"] + self.tensors.get(name + ".bias", 0)

    def head_norm(self, x, name):
        """x: [tokens][heads][head_dim]. The weights' shape says over what the norm goes."""
        if not self.has(name):
            return x
        w = self.tensors[name + ".weight"]
        if w.ndim == 1 and w.size != self.head_dim:
            return self.norm(x.reshape(len(x), -1), name).reshape(x.shape)
        return self.norm(x, name)

    # --- attention ---

    def queries_keys_values(self, x, block):
        n, q, kv = len(x), self.heads * self.head_dim, self.kv_heads * self.head_dim
        if self.has(block + "attn_qkv"):
            parts = np.split(self.linear(x, block + "attn_qkv"), [q, q + kv], axis=-1)
        else:
            parts = [self.linear(x, block + "attn_" + k) for k in "qkv"]
        return [p.reshape(n, -1, self.head_dim) for p in parts]

    def visible(self, n, windowed):
        """[n][n]: may the query (row) see the key?"""
        mask = np.tri(n, dtype=bool)
        return mask & ~np.tri(n, k=-self.window, dtype=bool) if windowed else mask

    def weights_of(self, q, k, block, layer):
        scores = np.einsum("qhd,khd->hqk", q, k) * self.score_scale
        if self.score_cap:
            scores = self.score_cap * np.tanh(scores / self.score_cap)
        scores = np.where(self.visible(len(q), self.windowed[layer]), scores, np.float32(-np.inf))
        if not self.has(block + "attn_sinks"):
            return softmax(scores)
        sinks = self.tensors[block + "attn_sinks.weight"]
        sinks = np.broadcast_to(sinks[:, None, None], scores.shape[:2] + (1,))
        return softmax(np.concatenate([scores, sinks], axis=-1))[..., :-1]

    def attention(self, x, block, layer):
        q, k, v = self.queries_keys_values(x, block)
        q = self.rotate(self.head_norm(q, block + "attn_q_norm"), layer)
        k = self.rotate(self.head_norm(k, block + "attn_k_norm"), layer)
        group = self.heads // self.kv_heads
        k, v = np.repeat(k, group, axis=1), np.repeat(v, group, axis=1)
        out = np.einsum("hqk,khd->qhd", self.weights_of(q, k, block, layer), v)
        return self.linear(out.reshape(len(x), -1), block + "attn_output")

    # --- feed-forward ---

    def activate(self, gate, up):
        act = self.facts.get("act", "silu")
        if act == "clamped":
            return clamped_swiglu(gate, up)
        return {"silu": silu, "gelu": gelu}[act](gate) * up

    def mlp(self, x, block, suffix=""):
        up = self.linear(x, block + "ffn_up" + suffix)
        if not self.facts.get("gated", True):
            middle = gelu(up)
        elif self.has(block + "ffn_gate" + suffix):
            middle = self.activate(self.linear(x, block + "ffn_gate" + suffix), up)
        else:
            middle = self.activate(*np.split(up, 2, axis=-1))
        return self.linear(middle, block + "ffn_down" + suffix)

    def expert(self, x, block, e):
        def product(y, part):
            bias = self.tensors.get(f"{block}ffn_{part}_exps.bias")
            y = y @ self.tensors[f"{block}ffn_{part}_exps.weight"][e].T
            return y if bias is None else y + bias[e]
        return product(self.activate(product(x, "gate"), product(x, "up")), "down")

    def experts(self, x, block):
        p = softmax(self.linear(x, block + "ffn_gate_inp"))
        best = np.argsort(-p, axis=-1, kind="stable")[:, :self.own("expert_used_count")]
        out = np.zeros_like(x)
        for row in range(len(x)):
            weights = p[row, best[row]]
            if self.facts.get("renormalise", True):
                weights = weights / weights.sum()
            for e, w in zip(best[row], weights):
                out[row] += w * self.expert(x[row], block, e)
        return out + self.shared_expert(x, block)

    def shared_expert(self, x, block):
        if not self.has(block + "ffn_up_shexp"):
            return 0
        gate = 1
        if self.has(block + "ffn_gate_inp_shexp"):
            w = self.tensors[block + "ffn_gate_inp_shexp.weight"].reshape(-1, 1)
            gate = 1 / (1 + np.exp(-(x @ w)))
        return gate * self.mlp(x, block, "_shexp")

    def feed_forward(self, x, block):
        has_experts = self.has(block + "ffn_gate_inp")
        return self.experts(x, block) if has_experts else self.mlp(x, block)

    # --- the whole ---

    def layer(self, x, i):
        block, r = f"blk.{i}.", self.residual_scale
        # gpt-oss calls the norm before its experts the one behind attention.
        before_ffn = block + ("post_attention_norm" if self.arch == "gpt-oss" else "ffn_norm")
        normed = self.norm(x, block + "attn_norm")
        y = self.attention(normed, block, i)
        if self.parallel:
            return x + r * (y + self.feed_forward(normed, block))
        x = x + r * (y if self.arch == "gpt-oss" else self.norm(y, block + "post_attention_norm"))
        y = self.feed_forward(self.norm(x, before_ffn), block)
        return x + r * self.norm(y, block + "post_ffw_norm")

    def logits(self, ids, first=-1):
        """Logits of the positions from `first` on, [positions][vocab]."""
        x = self.tensors["token_embd.weight"][ids] * self.embedding_scale
        for i in range(self.layers):
            x = self.layer(x, i)
        x = self.norm(x[first:], "output_norm")
        head = "output" if self.has("output") else "token_embd"
        logits = x @ self.tensors[head + ".weight"].T + self.tensors.get("output.bias", 0)
        logits = logits * self.logit_scale
        return self.logit_cap * np.tanh(logits / self.logit_cap) if self.logit_cap else logits


def logsumexp(logits):
    top = logits.max(axis=-1, keepdims=True).astype(np.float64)
    return np.log(np.exp(logits - top).sum(axis=-1)) + top[..., 0]


def greedy(model, ids, n):
    ids, start = list(ids), len(ids)
    margins, logprobs = [], []
    for _ in range(n):
        row = model.logits(ids)[0]
        second, best = np.partition(row, -2)[-2:]
        ids.append(int(row.argmax()))
        margins.append(float(best) - float(second))
        logprobs.append(float(best - logsumexp(row)))
    near = next((i for i, m in enumerate(margins) if m < NEAR_TIE), None)
    return {"ids": ids[start:], "margins": margins, "logprobs": logprobs, "first_near_tie": near}


# --- comparing ---

def teacher_forced(model, ids, continuation):
    rows = model.logits(ids + continuation, len(ids) - 1)[:-1]
    return rows[np.arange(len(rows)), continuation] - logsumexp(rows)


def check_prompt(model, p):
    """The largest difference from the golden prompt p; greedy ids must be equal."""
    row = model.logits(p["ids"])[0]
    diffs = [abs(row[i] - logit) for i, logit in p["top"]]
    diffs.append(abs(logsumexp(row) - p["logsumexp"]))
    if "prompt_logprobs" in p:
        got = teacher_forced(model, p["ids"][:1], p["ids"][1:])
        diffs += list(abs(got - np.array(p["prompt_logprobs"])))
    if "continuation" in p:
        got = teacher_forced(model, p["ids"], p["continuation"]["ids"])
        diffs += list(abs(got - np.array(p["continuation"]["logprobs"])))
    g = p["greedy"]
    sure = len(g["ids"]) if g["first_near_tie"] is None else g["first_near_tie"]
    got = greedy(model, p["ids"], sure)
    diffs += list(abs(np.array(got["logprobs"]) - np.array(g["logprobs"][:sure])))
    return float(max(diffs)), got["ids"] == g["ids"][:sure]


def check(model_path, golden_path):
    model, worst = Model(model_path), 0.0
    with open(golden_path) as f:
        prompts = json.load(f)["prompts"]
    for p in prompts:
        diff, same = check_prompt(model, p)
        print(f"{p['name']:14} largest difference {diff:.2e}, greedy ids {'equal' if same else 'DIFFER'}")
        worst = max(worst, diff if same else float("inf"))
    if not worst < 1e-3:
        raise SystemExit(f"{golden_path}: off by {worst}, at most 1e-3 is right")


# --- writing ---

def gemma_encoder(model):
    """SentencePiece's merging, the best score first, of all the text at once; BOS first."""
    tokens, scores = model.key("tokenizer.ggml.tokens"), model.key("tokenizer.ggml.scores")
    ids = {s: i for i, s in enumerate(tokens)}

    def encode(text):
        parts = list(text.replace(" ", "\u2581"))
        while True:
            pairs = [(-scores[ids[a + b]], i) for i, (a, b) in enumerate(zip(parts, parts[1:]))
                     if a + b in ids]
            if not pairs:
                return [model.key("tokenizer.ggml.bos_token_id")] + [ids[p] for p in parts]
            at = min(pairs)[1]
            parts[at:at + 2] = [parts[at] + parts[at + 1]]
    return encode


def encoder(model):
    """The file's byte-level BPE, with digits apart ("smollm"), or Gemma's."""
    if model.arch == "gemma3":
        return gemma_encoder(model)
    import tokenizers
    from tokenizers import models, pre_tokenizers
    if model.key("tokenizer.ggml.pre") != "smollm":
        raise SystemExit("only the pre-tokenizer of SmolLM2 is known here")
    tokens = model.key("tokenizer.ggml.tokens")
    merges = [tuple(m.split(" ")) for m in model.key("tokenizer.ggml.merges")]
    t = tokenizers.Tokenizer(models.BPE({s: i for i, s in enumerate(tokens)}, merges))
    t.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(True), pre_tokenizers.ByteLevel(add_prefix_space=False)])
    types = model.key("tokenizer.ggml.token_type")
    t.add_special_tokens([s for s, kind in zip(tokens, types) if kind == 3])
    return lambda text: t.encode(text).ids


def golden_prompt(model, name, text, ids):
    row = model.logits(ids)[0]
    best = np.argsort(-row, kind="stable")[:20]
    return {"name": name, "text": text, "ids": ids,
            "top": [[int(i), float(row[i])] for i in best],
            "margin": float(row[best[0]]) - float(row[best[1]]),
            "logsumexp": float(logsumexp(row)),
            "greedy": greedy(model, ids, GREEDY_TOKENS)}


def write(model_path, out_path):
    model = Model(model_path)
    encode = encoder(model)
    texts = GEMMA3_PROMPTS if model.arch == "gemma3" else LLAMA_PROMPTS
    prompts = [golden_prompt(model, name, text, encode(text)) for name, text in texts.items()]
    golden = {"format": 1, "name": model.key("general.name"), "compute": "float32",
              "reference": "tests/reference/forward.py", "near_tie": NEAR_TIE, "prompts": prompts}
    with open(out_path, "w") as f:
        f.write(json.dumps(golden, indent=1) + "\n")


if __name__ == "__main__":
    commands = {"check": check, "write": write}
    if len(sys.argv) != 4 or sys.argv[1] not in commands:
        raise SystemExit(__doc__)
    commands[sys.argv[1]](*sys.argv[2:])
