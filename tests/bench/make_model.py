#!/usr/bin/env python3
"""A llama of any size with random weights, as a GGUF file, for measuring starts and speed.

    make_model.py OUT.gguf [--type q4_k] [--layers 32] [--embd 4096] [--ff 11008] [--heads 32]
                  [--kv-heads 32] [--vocab 32000] [--context 4096] [--seed 1]

The defaults are the shape of Llama 2 7B (3.8 GB in Q4_K). Weights are random bits whose scales are
set so that values have about the size of a trained model's: what comes out is noise, but finite.
The tokenizer has the 256 bytes and one merge. Needs NumPy only; writes as it goes.
"""
import argparse
import struct

import numpy as np

# name: (GGUF's number, values of a block, bytes of it, where its f16 d lies, its standard
# deviation for d = 1, where an f16 minimum lies, the mean of q for d = 1 over that of the minimum)
TYPES = {
    "f32": (0, 1, 4),
    "f16": (1, 1, 2),
    "bf16": (30, 1, 2),
    "q4_0": (2, 32, 18, 0, 4.6),
    "q4_1": (3, 32, 20, 0, 4.6, 2, -7.5),
    "q5_0": (6, 32, 22, 0, 9.2),
    "q5_1": (7, 32, 24, 0, 9.2, 2, -15.5),
    "q8_0": (8, 32, 34, 0, 74),
    "q2_k": (10, 256, 84, 80, 12, 82, 1.5),
    "q3_k": (11, 256, 110, 108, 42),
    "q4_k": (12, 256, 144, 0, 210, 2, 7.5),
    "q5_k": (13, 256, 176, 0, 430, 2, 15.5),
    "q6_k": (14, 256, 210, 208, 1360),
    "iq4_nl": (20, 32, 18, 0, 70),
    "iq4_xs": (23, 256, 136, 0, 1290),
}
CHUNK = 32 << 20  # bytes that are made at a time


def random_rows(rng, kind, n_blocks, spread):
    """[n_blocks][block bytes], the values about `spread` wide."""
    fact = TYPES[kind]
    if fact[1] == 1:
        w = (rng.standard_normal(n_blocks, dtype=np.float32) * spread).astype(np.float32)
        if kind == "bf16":
            return (w.view(np.uint32) >> 16).astype(np.uint16)
        return w.astype(np.float16) if kind == "f16" else w
    blocks = rng.integers(0, 256, (n_blocks, fact[2]), dtype=np.uint8)
    d = spread / fact[4]
    fields = [(fact[3], d)] + ([(fact[5], d * fact[6])] if len(fact) > 5 else [])
    for at, value in fields:
        blocks[:, at:at + 2] = np.frombuffer(np.float16(value).tobytes(), np.uint8)
    return blocks


class Writer:
    def __init__(self, path, arch):
        self.file, self.arch = open(path, "wb"), arch
        self.keys, self.n_keys, self.tensors, self.offset = b"", 0, [], 0

    def string(self, text):
        return struct.pack("<Q", len(text.encode())) + text.encode()

    def key(self, name, value):
        def packed(v):
            if isinstance(v, str):
                return 8, self.string(v)
            return (6, struct.pack("<f", v)) if isinstance(v, float) else (5, struct.pack("<i", v))
        if isinstance(value, list):
            kind = packed(value[0])[0] if value else 8
            body = struct.pack("<IIQ", 9, kind, len(value)) + b"".join(packed(v)[1] for v in value)
        else:
            kind, data = packed(value)
            body = struct.pack("<I", kind) + data
        self.keys += self.string(name) + body
        self.n_keys += 1

    def tensor(self, name, kind, *dims):
        """dims as GGUF has them: columns first"""
        number, elems, size = TYPES[kind][:3]
        assert dims[0] % elems == 0, f"{name}: {dims[0]} columns are no multiple of {elems}"
        n = int(np.prod(dims)) // elems
        self.tensors.append((name, kind, dims, self.offset, n))
        self.offset += (n * size + 31) // 32 * 32
        return number

    def close(self, seed, spread):
        head = b"GGUF" + struct.pack("<IQQ", 3, len(self.tensors), self.n_keys) + self.keys
        for name, kind, dims, offset, _ in self.tensors:
            head += self.string(name) + struct.pack(f"<I{len(dims)}Q", len(dims), *dims)
            head += struct.pack("<IQ", TYPES[kind][0], offset)
        self.file.write(head + bytes(-len(head) % 32))
        pools = {}
        rng = np.random.default_rng(seed)
        for name, kind, dims, _, n in self.tensors:
            if len(dims) == 1:
                self.file.write(np.ones(n, np.float32).tobytes())
            else:
                self.write_matrix(rng, pools, kind, n, spread)
            self.file.write(bytes(-self.file.tell() % 32))
        self.file.close()

    def write_matrix(self, rng, pools, kind, n, spread):
        """A pool of random blocks is made once and read from a new place for every tensor."""
        size = TYPES[kind][2]
        if kind not in pools:
            pools[kind] = random_rows(rng, kind, CHUNK // size, spread).reshape(CHUNK // size, -1)
        while n > 0:
            at = int(rng.integers(0, len(pools[kind])))
            part = pools[kind][at:at + n]
            self.file.write(part.tobytes())
            n -= len(part)


def byte_names():
    """The characters that byte-level vocabularies write bytes as."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in plain]
    names = {b: chr(b) for b in plain} | {b: chr(256 + i) for i, b in enumerate(others)}
    return [names[b] for b in range(256)]


def write_keys(w, a):
    w.key("general.architecture", "llama")
    w.key("general.name", f"random {a.type}")
    for name, value in (("vocab_size", a.vocab), ("context_length", a.context),
                        ("embedding_length", a.embd), ("block_count", a.layers),
                        ("feed_forward_length", a.ff), ("attention.head_count", a.heads),
                        ("attention.head_count_kv", a.kv_heads),
                        ("rope.dimension_count", a.embd // a.heads),
                        ("attention.layer_norm_rms_epsilon", 1e-5)):
        w.key(f"llama.{name}", value)
    tokens = byte_names() + ["ab"] + [f"name{i}" for i in range(a.vocab - 258)] + ["<eos>"]
    w.key("tokenizer.ggml.model", "gpt2")
    w.key("tokenizer.ggml.pre", "gpt-2")
    w.key("tokenizer.ggml.tokens", tokens)
    w.key("tokenizer.ggml.token_type", [1] * (a.vocab - 1) + [3])
    w.key("tokenizer.ggml.merges", ["a b"])
    w.key("tokenizer.ggml.eos_token_id", a.vocab - 1)


def declare_tensors(w, a):
    kv = a.embd // a.heads * a.kv_heads
    w.tensor("token_embd.weight", a.type, a.embd, a.vocab)
    for i in range(a.layers):
        for name, cols, rows in (("attn_q", a.embd, a.embd), ("attn_k", a.embd, kv),
                                 ("attn_v", a.embd, kv), ("attn_output", a.embd, a.embd),
                                 ("ffn_gate", a.embd, a.ff), ("ffn_up", a.embd, a.ff),
                                 ("ffn_down", a.ff, a.embd)):
            w.tensor(f"blk.{i}.{name}.weight", a.type, cols, rows)
        for name in ("attn_norm", "ffn_norm"):
            w.tensor(f"blk.{i}.{name}.weight", "f32", a.embd)
    w.tensor("output_norm.weight", "f32", a.embd)
    w.tensor("output.weight", a.type, a.embd, a.vocab)


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    p.add_argument("out")
    p.add_argument("--type", choices=TYPES, default="q4_k")
    for name, value in (("layers", 32), ("embd", 4096), ("ff", 11008), ("heads", 32),
                        ("kv-heads", 32), ("vocab", 32000), ("context", 4096), ("seed", 1)):
        p.add_argument(f"--{name}", type=int, default=value)
    a = p.parse_args()
    w = Writer(a.out, "llama")
    write_keys(w, a)
    declare_tensors(w, a)
    w.close(a.seed, 1 / a.embd ** 0.5)


if __name__ == "__main__":
    main()
