"""A llama with the chat template of another model's GGUF file and the first tokens of its vocabulary,
but a few thousandths of its weights, which are random: for devices on which a real model takes minutes."""
import os
import sys

import gguf

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "bench"))
import make_model  # noqa: E402

VOCAB, EMBD, FF, LAYERS, HEADS, KV_HEADS = 4096, 64, 96, 2, 4, 2
SIZES = {
    "llama.vocab_size": VOCAB,
    "llama.block_count": LAYERS,
    "llama.embedding_length": EMBD,
    "llama.feed_forward_length": FF,
    "llama.attention.head_count": HEADS,
    "llama.attention.head_count_kv": KV_HEADS,
    "llama.rope.dimension_count": EMBD // HEADS,
}


def make(path, source):
    reader = gguf.GGUFReader(source)
    writer = make_model.Writer(path, "llama")
    changed = {**SIZES, **first_tokens(reader)}
    for name, field in reader.fields.items():
        if name in changed:
            writer.key(name, changed[name])
        elif not name.startswith("GGUF."):
            end = field.offset + sum(part.nbytes for part in field.parts)
            writer.keys += reader.data[field.offset:end].tobytes()
            writer.n_keys += 1
    declare_tensors(writer)
    writer.close(seed=1, spread=EMBD ** -0.5)


def first_tokens(reader):
    """Byte pairs were merged in the order of their ids, so what is left is whole."""
    key = "tokenizer.ggml."
    tokens = reader.fields[key + "tokens"].contents()[:VOCAB]
    known = set(tokens)
    merges = [m for m in reader.fields[key + "merges"].contents() if m.replace(" ", "") in known]
    return {key + "tokens": tokens, key + "merges": merges,
            key + "token_type": reader.fields[key + "token_type"].contents()[:VOCAB]}


def declare_tensors(writer):
    """Of two quantised types; the output is the embedding."""
    kv = EMBD // HEADS * KV_HEADS
    writer.tensor("token_embd.weight", "q8_0", EMBD, VOCAB)
    for i in range(LAYERS):
        for name, cols, rows in (("attn_q", EMBD, EMBD), ("attn_k", EMBD, kv), ("attn_v", EMBD, kv),
                                 ("attn_output", EMBD, EMBD), ("ffn_gate", EMBD, FF), ("ffn_up", EMBD, FF),
                                 ("ffn_down", FF, EMBD)):
            writer.tensor(f"blk.{i}.{name}.weight", "q4_1", cols, rows)
        for name in ("attn_norm", "ffn_norm"):
            writer.tensor(f"blk.{i}.{name}.weight", "f32", EMBD)
    writer.tensor("output_norm.weight", "f32", EMBD)


if __name__ == "__main__":
    make(*sys.argv[1:])
