#!/usr/bin/env python3
"""A plain reference forward pass of a llama or gemma3 GGUF file, in NumPy.

Everything is float32 over the dequantised weights; activations are not quantised, there is no
KV cache (every step computes the whole sequence again), and nothing is shared with tokend's
code. Needs numpy and gguf, and tokenizers for writing.

  forward.py check MODEL.gguf GOLDEN.json   compares with another reference's golden file
  forward.py write MODEL.gguf OUT.json      writes the golden file of its prompts below

How two files of tests/data were made (their fields are those of the golden files):
  forward.py write SmolLM2-135M-Instruct.Q4_1.gguf tests/data/smollm2.golden.json
  forward.py write gemma-3-270m-q4_k_m.gguf tests/data/gemma3-270m.golden.json
"""
import json
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


class Model:
    def __init__(self, path):
        reader = gguf.GGUFReader(path)
        self.fields = reader.fields
        self.arch = self.key("general.architecture")
        if self.arch not in ("llama", "gemma3"):
            raise SystemExit(f"{path}: only the architectures llama and gemma3")
        self.gemma = self.arch == "gemma3"
        self.tensors = {t.name: gguf.quants.dequantize(t.data, t.tensor_type).astype(np.float32)
                        for t in reader.tensors}
        self.layers = self.own("block_count")
        self.heads = self.own("attention.head_count")
        self.kv_heads = self.own("attention.head_count_kv", self.heads)
        embd = self.own("embedding_length")
        self.head_dim = self.own("attention.key_length", embd // self.heads)
        self.eps = np.float32(self.own("attention.layer_norm_rms_epsilon"))
        self.embedding_scale = np.float32(embd ** 0.5 if self.gemma else 1)
        self.window = self.own("attention.sliding_window") if self.gemma else None
        self.inv_freq = self.inverse_frequencies()

    def key(self, name, default=None):
        return self.fields[name].contents() if name in self.fields else default

    def own(self, name, default=None):
        return self.key(f"{self.arch}.{name}", default)

    def is_windowed(self, layer):
        """Gemma 3: five layers with a window, then one that sees everything."""
        return self.gemma and layer % 6 != 5

    def inverse_frequencies(self):
        """Of layers that see everything, and of windowed ones."""
        dims = self.own("rope.dimension_count", self.head_dim)
        exponents = -np.arange(0, dims, 2, dtype=np.float64) / dims
        inv = self.own("rope.freq_base", 10000.0) ** exponents
        if self.own("rope.scaling.type", "none") == "linear":
            inv /= self.own("rope.scaling.factor", 1.0)
        if "rope_freqs.weight" in self.tensors:
            inv /= self.tensors["rope_freqs.weight"]
        return inv, self.own("rope.freq_base_swa", 10000.0) ** exponents

    def linear(self, x, name):
        y = x @ self.tensors[name + ".weight"].T
        bias = self.tensors.get(name + ".bias")
        return y if bias is None else y + bias

    def norm(self, x, name):
        scale = 1 / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + self.eps)
        return x * scale * self.tensors[name + ".weight"]

    def rotate(self, x, windowed):
        """x: [tokens][heads][head_dim]; pairs (2i, 2i + 1), as GGUF stores llama, or
        (i, i + n/2)."""
        inv_freq = self.inv_freq[windowed]
        angle = np.outer(np.arange(len(x)), inv_freq)[:, None, :]
        cos, sin = np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32)
        half = len(inv_freq)
        first, second = (slice(half), slice(half, 2 * half)) if self.gemma else (
            slice(0, 2 * half, 2), slice(1, 2 * half, 2))
        out = x.copy()
        out[..., first] = x[..., first] * cos - x[..., second] * sin
        out[..., second] = x[..., first] * sin + x[..., second] * cos
        return out

    def visible(self, n, windowed):
        """[n][n]: may the query (row) see the key?"""
        mask = np.tri(n, dtype=bool)
        return mask & ~np.tri(n, k=-self.window, dtype=bool) if windowed else mask

    def attention(self, x, block, windowed):
        n = len(x)
        q = self.linear(x, block + "attn_q").reshape(n, self.heads, self.head_dim)
        k = self.linear(x, block + "attn_k").reshape(n, self.kv_heads, self.head_dim)
        v = self.linear(x, block + "attn_v").reshape(n, self.kv_heads, self.head_dim)
        if self.gemma:
            q, k = self.norm(q, block + "attn_q_norm"), self.norm(k, block + "attn_k_norm")
        q, k = self.rotate(q, windowed), self.rotate(k, windowed)
        group = self.heads // self.kv_heads
        k, v = np.repeat(k, group, axis=1), np.repeat(v, group, axis=1)
        scores = np.einsum("qhd,khd->hqk", q, k) / np.float32(self.head_dim ** 0.5)
        scores = np.where(self.visible(n, windowed), scores, np.float32(-np.inf))
        p = np.exp(scores - scores.max(axis=-1, keepdims=True))
        p /= p.sum(axis=-1, keepdims=True)
        out = np.einsum("hqk,khd->qhd", p, v).reshape(n, self.heads * self.head_dim)
        return self.linear(out, block + "attn_output")

    def activation(self, x):
        if not self.gemma:
            return x / (1 + np.exp(-x))
        inner = np.float32((2 / np.pi) ** 0.5) * (x + np.float32(0.044715) * x ** 3)
        return x * np.float32(0.5) * (1 + np.tanh(inner))

    def mlp(self, x, block):
        gate = self.activation(self.linear(x, block + "ffn_gate"))
        return self.linear(gate * self.linear(x, block + "ffn_up"), block + "ffn_down")

    def post_norm(self, x, name):
        return self.norm(x, name) if self.gemma else x

    def logits(self, ids, first=-1):
        """Logits of the positions from `first` on, [positions][vocab]."""
        x = self.tensors["token_embd.weight"][ids] * self.embedding_scale
        for i in range(self.layers):
            block = f"blk.{i}."
            y = self.attention(self.norm(x, block + "attn_norm"), block, self.is_windowed(i))
            x = x + self.post_norm(y, block + "post_attention_norm")
            y = self.mlp(self.norm(x, block + "ffn_norm"), block)
            x = x + self.post_norm(y, block + "post_ffw_norm")
        x = self.norm(x[first:], "output_norm")
        head = "output" if "output.weight" in self.tensors else "token_embd"
        return self.linear(x, head)


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
    if model.gemma:
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
    texts = GEMMA3_PROMPTS if model.gemma else LLAMA_PROMPTS
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
