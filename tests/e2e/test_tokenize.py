"""`tokend tokenize` against the libraries whose files it reads, on random tokenizers and texts.

TOKEND_SEED repeats a run; it is printed when a test fails (tests/e2e.sh sets one)."""
import base64
import json
import os
import random
import struct
import subprocess

import pytest
import sentencepiece
import tiktoken
from tokenizers import Tokenizer

from tokend import PROGRAM

SEED = int(os.environ.get("TOKEND_SEED", random.SystemRandom().randrange(1 << 30)))
WORDS = ("the of and to in is that was he for it with as his on be at by had are but from or have an they which you "
         "were her all she there would their we him been has when who will more no if out so what said").split()
PIECES = [" ", "  ", "\n", "\r\n", "\t", "'s", "'S", ".", ",", "-", "_", "<", ">", "/", "0", "12", "345", "\u0663", "\u00b2",
          "\u2167", "\u00e9", "e\u0301", "\u0323\u0307", "\u00c5", "\ufb01", "\u00bd", "\u0130", "\u00df", "\u0391\u03a3",
          "\u4f60\u597d", "\u3042", "\uac00", "\u1100\u1161", "\U0001f600", "\U0001f468\u200d\U0001f469", "\u00a0", "\u3000",
          "\u201c", "\u2014", "\u2581", "a", "b", "ab", "abc", "B", "A"]
ALPHABET = list("abcdefghijklmnopqrstuvwxyzABC 0123.,\u2581\u00e9\u00e0e\u0301\u4f60\u597d\n\t")


def texts(rng, extra, n=150):
    out = [""]
    for i in range(n):
        kind = i % 4
        if kind == 0:
            out.append(" ".join(rng.choice(WORDS) for _ in range(rng.randrange(20))))
        elif kind == 1:
            out.append("".join(rng.choice(PIECES + extra) for _ in range(rng.randrange(30))))
        elif kind == 2:
            out.append(rng.choice(PIECES) * rng.randrange(40) + rng.choice(PIECES))
        else:
            out.append("".join(rng.choice(WORDS + PIECES + extra) for _ in range(rng.randrange(20))))
    return out


def tokenize(path, lines, *flags):
    r = subprocess.run([PROGRAM, "tokenize", path, *flags], capture_output=True, text=True,
                       input="".join(json.dumps({"text": t}) + "\n" for t in lines))
    assert r.returncode == 0, r.stderr or r.stdout[:500]
    return [json.loads(line)["ids"] for line in r.stdout.splitlines()]


def compare(path, lines, want, *flags):
    for text, ids, have in zip(lines, want, tokenize(path, lines, *flags), strict=True):
        assert have == ids, f"TOKEND_SEED={SEED}: {text!r}"


def byte_alphabet():
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    return [chr(b) if b in plain else chr(next(others)) for b in range(256)]


def random_normalizer(rng):
    steps = [{"type": t} for t in ("NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents", "Nmt")] + [
        {"type": "Prepend", "prepend": "\u2581"},
        {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"},
        {"type": "Replace", "pattern": {"Regex": rng.choice([" {2,}", "\\s", "[aeiou]", "\\d+"])},
         "content": rng.choice(["", " ", "xy"])},
        {"type": "Strip", "strip_left": rng.random() < .5, "strip_right": rng.random() < .5}]
    chosen = [rng.choice(steps) for _ in range(rng.randrange(3))]
    return rng.choice([None, {"type": "Sequence", "normalizers": chosen}, rng.choice(steps)])


REGEXES = ["\\s+", "[0-9]", "\\p{L}+", " ?\\p{L}+|\\s+", "(?i:'s|'t)|\\w+|\\d", "\\p{N}{1,3}+", "[^\\s\\w]+", "^\\s|\\s$",
           "\\b[ab]", "a{2,}|b{,2}c", "\\h+", "(?=[A-Z])", "[[:alpha:]]+", "\\s+(?!\\S)|\\s+", "x|(?<=a)b", "\\s+$"]


def random_pre_tokenizer(rng, byte_level):
    def behavior():
        return rng.choice(["Isolated", "Removed", "MergedWithPrevious", "MergedWithNext", "Contiguous"])

    steps = []
    for _ in range(rng.randrange(3)):
        steps.append(rng.choice([
            {"type": "Split", "pattern": {"Regex": rng.choice(REGEXES)}, "behavior": behavior(), "invert": rng.random() < .3},
            {"type": "Split", "pattern": {"String": rng.choice([" ", "a", "ab", "."])}, "behavior": behavior(),
             "invert": rng.random() < .3},
            {"type": "Digits", "individual_digits": rng.random() < .5},
            {"type": "Punctuation", "behavior": behavior()},
            {"type": "Whitespace"}, {"type": "WhitespaceSplit"}, {"type": "BertPreTokenizer"},
            {"type": "CharDelimiterSplit", "delimiter": "-"},
            {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": rng.choice(["always", "first", "never"]),
             "split": rng.random() < .5}]))
    if byte_level:
        steps.append({"type": "ByteLevel", "add_prefix_space": rng.random() < .4, "trim_offsets": True,
                      "use_regex": rng.random() < .5})
    return {"type": "Sequence", "pretokenizers": steps} if steps else None


def random_bpe(rng, byte_level, vocab):
    merges, pool = [], [c for c in vocab if len(c) == 1]
    common = [c for c in "abce\u2581\u0120 0" if c in vocab]
    for _ in range(60):
        pair = [rng.choice(common + pool[-20:]), rng.choice(common + pool[-20:])]
        both = "".join(pair)
        if both not in vocab and len(both) <= 8:
            vocab[both] = len(vocab)
            merges.append(pair)
            pool.append(both)
    return {"type": "BPE", "dropout": None, "unk_token": None if byte_level or rng.random() < .4 else "<unk>",
            "continuing_subword_prefix": None, "end_of_word_suffix": None, "fuse_unk": rng.random() < .5,
            "ignore_merges": rng.random() < .3, "vocab": vocab, "merges": merges}


def random_unigram(rng, vocab):
    pieces = {"<unk>": 0.0}
    pieces.update((c, 0.0 if c.startswith("<0x") else -rng.randrange(4, 24) / 4) for c in vocab if c != "<unk>")
    for _ in range(80):
        pieces.setdefault("".join(rng.choice("abces\u2581 0") for _ in range(rng.randrange(2, 6))), -rng.randrange(48) / 4)
    return {"type": "Unigram", "unk_id": 0, "vocab": list(map(list, pieces.items()))}


def random_tokenizer(rng):
    kind = rng.choice(["bytes", "characters", "unigram"])
    characters = byte_alphabet() if kind == "bytes" else [c for c in dict.fromkeys(ALPHABET) if rng.random() < .9]
    vocab = {c: i for i, c in enumerate(characters)}
    fallback = kind != "bytes" and rng.random() < .5
    more = [] if kind == "bytes" else ["<unk>"]
    for name in more + [f"<0x{b:02X}>" for b in range(256 * fallback)]:
        vocab[name] = len(vocab)
    model = random_unigram(rng, vocab) if kind == "unigram" else random_bpe(rng, kind == "bytes", vocab)
    model["byte_fallback"] = fallback
    names = rng.sample(["<s>", "</s>", "<|im_end|>", "[MASK]", "ab", "  ", "word", "<x y>", "\u00c9", "\n\n"], rng.randrange(6))
    flags = ("single_word", "lstrip", "rstrip", "normalized", "special")
    added = [{"id": len(model["vocab"]) + i, "content": name, **{f: rng.random() < .3 for f in flags}}
             for i, name in enumerate(names)]
    for a in added:
        a["normalized"] &= a["content"].strip() != ""  # one that a step strips to nothing
        a["special"] &= a["content"][0] in "<["  # here plain text never merges into one
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added,
            "normalizer": random_normalizer(rng), "pre_tokenizer": random_pre_tokenizer(rng, kind == "bytes"),
            "post_processor": None, "decoder": None, "model": model}


@pytest.mark.parametrize("i", range(24))
def test_tokenizer_json_gives_the_ids_of_the_library(i, tmp_path):
    rng = random.Random(f"{SEED} {i}")
    made = random_tokenizer(rng)
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(made), encoding="utf-8")
    reference = Tokenizer.from_file(str(path))
    lines = texts(rng, [a["content"] for a in made["added_tokens"]])
    try:
        want = [reference.encode(t).ids for t in lines]
    except BaseException as e:  # the library's own faults
        pytest.skip(f"the library fails: {e}")
    compare(path, lines, want)
    reference.encode_special_tokens = True
    compare(path, lines, [reference.encode(t).ids for t in lines], "--no-parse-special")


def varint(n):
    out = b""
    while n > 127:
        out, n = out + bytes([n & 127 | 128]), n >> 7
    return out + bytes([n])


def field(number, value):
    if isinstance(value, float):
        return varint(number << 3 | 5) + struct.pack("<f", value)
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def random_sentencepiece(rng):
    normal, unknown, control, user, unused, byte = range(1, 7)
    pieces = {"<unk>": (0.0, unknown), "<s>": (0.0, control), "</s>": (0.0, control)}
    fallback = rng.random() < .5
    if fallback:
        pieces.update((f"<0x{b:02X}>", (0.0, byte)) for b in range(256))
    for c in "abcdefghijklmnopqrstuvwxyz\u2581.,01\u00e9\u4f60":
        if rng.random() < .9:
            pieces[c] = (-rng.random() * 8, normal)
    for _ in range(120):
        name = "".join(rng.choice("abces\u25810t") for _ in range(rng.randrange(2, 6)))
        pieces.setdefault(name, (-rng.random() * 12, rng.choices([normal, user, unused], [20, 1, 1])[0]))
    trainer = field(3, rng.choice([1, 2])) + field(35, int(fallback))
    normalizer = (field(1, b"identity") + field(3, rng.randrange(2)) + field(4, rng.randrange(2)) + field(5, 1))
    listed = b"".join(field(1, field(1, name.encode()) + field(2, score) + field(3, kind))
                      for name, (score, kind) in pieces.items())
    return listed + field(2, trainer) + field(3, normalizer)


@pytest.mark.parametrize("i", range(24))
def test_a_sentencepiece_model_gives_the_ids_of_the_library(i, tmp_path):
    rng = random.Random(f"{SEED} sentencepiece {i}")
    path = tmp_path / "tokenizer.model"
    path.write_bytes(random_sentencepiece(rng))
    reference = sentencepiece.SentencePieceProcessor(model_file=str(path))
    lines = texts(rng, ["<s>", "<unk>"])
    compare(path, lines, [reference.encode(t) for t in lines], "--no-parse-special")


def test_a_directory_with_a_sentencepiece_model_has_the_settings_tokens_too(tmp_path):
    rng = random.Random(f"{SEED} directory")
    model = random_sentencepiece(rng)
    (tmp_path / "tokenizer.model").write_bytes(model)
    n = sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / "tokenizer.model")).get_piece_size()
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(
        {"tokenizer_class": "LlamaTokenizer", "bos_token": "<s>", "eos_token": "<|end|>",
         "added_tokens_decoder": {str(n + 1): {"content": "<|end|>", "special": True}}}))
    bos = tokenize(tmp_path, [""])[0]
    assert len(bos) == 1
    assert tokenize(tmp_path, ["<|end|><s>"]) == [bos + [n + 1] + bos]


def test_ranks_give_the_ids_of_tiktoken(tmp_path):
    rng = random.Random(f"{SEED} ranks")
    tokens = [bytes([b]) for b in range(256)]
    while len(tokens) < 1500:
        joined = rng.choice(tokens[-300:] + [w.encode() for w in WORDS] + tokens[32:127]) + rng.choice(tokens[32:127])
        if joined not in tokens and len(joined) < 12:
            tokens.append(joined)
    path = tmp_path / "ranks.tiktoken"
    path.write_text("".join(f"{base64.b64encode(t).decode()} {i}\n" for i, t in enumerate(tokens)))
    lines = texts(rng, [])
    pattern = (r"""'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$"""
               r"""|\s*[\r\n]|\s+(?!\S)|\s""")
    reference = tiktoken.Encoding("test", pat_str=pattern, special_tokens={"<|endoftext|>": 100257},
                                  mergeable_ranks={t: i for i, t in enumerate(tokens)})
    compare(path, lines, [reference.encode_ordinary(t) for t in lines], "--encoding", "cl100k_base", "--no-parse-special")


def test_a_line_that_fails_gives_an_error_and_the_others_their_ids(tmp_path):
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}, "added_tokens": []}))
    r = subprocess.run([PROGRAM, "tokenize", path], capture_output=True, text=True,
                       input='{"text": "aa"}\nnonsense\n{"txt": 1}\n{"text": "a"}\n')
    lines = [json.loads(line) for line in r.stdout.splitlines()]
    assert r.returncode == 1
    assert [line.get("ids") for line in lines] == [[0, 0], None, None, [0]]
    assert all(line["error"] for line in lines[1:3])


def test_a_hub_name_is_found_in_the_cache(tmp_path):
    snapshot = tmp_path / "models--acme--tiny" / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    (snapshot / "tokenizer.json").write_text(json.dumps({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}}))
    run = lambda name: subprocess.run([PROGRAM, "tokenize", name], capture_output=True, text=True, input='{"text": "a"}',
                                      env={**os.environ, "HF_HUB_CACHE": str(tmp_path)})
    assert json.loads(run("acme/tiny").stdout) == {"ids": [0]}
    r = run("acme/other")
    assert r.returncode == 1 and "hf download acme/other" in r.stderr


@pytest.mark.parametrize("change, named", [
    ({"model": {"type": "WordPiece", "vocab": {"a": 0}}}, "WordPiece"),
    ({"normalizer": {"type": "Shout"}}, "Shout"),
    ({"pre_tokenizer": {"type": "UnicodeScripts"}}, "UnicodeScripts"),
    ({"pre_tokenizer": {"type": "Split", "pattern": {"Regex": "[a&&b]"}, "behavior": "Isolated"}}, "[a&&b]"),
    ({"decoder": {"type": "CTC"}}, "CTC"),
    ({"post_processor": {"type": "Pair"}}, "Pair"),
    ({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": [], "dropout": 0.1}}, "dropout"),
])
def test_what_is_not_known_is_refused_by_name(change, named, tmp_path):
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}, **change}))
    r = subprocess.run([PROGRAM, "tokenize", path], capture_output=True, text=True, input="")
    assert r.returncode == 1
    assert named in r.stderr
