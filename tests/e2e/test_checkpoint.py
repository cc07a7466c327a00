"""A Hugging Face directory is served: its tokenizer, templates, ends and sampling defaults."""
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tokend import PROGRAM, Tokend

sys.path.insert(0, str(Path(__file__).parents[1] / "reference"))
import tiny_checkpoints  # noqa: E402

CORPUS = Path(os.environ.get("TOKEND_CORPUS", Path(__file__).parents[3] / "shared/golden"))
GOLDEN = sorted(p.parent for p in CORPUS.glob("models/*/golden.json"))
SPECIAL = ["<s>", "</s>", "<|user|>", "<|assistant|>"]
# Printable ASCII, a token a character; a space is "Ġ" to byte-level tokenizers.
VOCAB = [chr(c) for c in range(33, 127)] + ["\u0120"]
TEMPLATE = ("{{ bos_token }}{% for m in messages %}<|user|>{{ m.content }}{% endfor %}"
            "{% if add_generation_prompt %}<|assistant|>{% endif %}")


def ids(text):
    return [VOCAB.index("\u0120" if c == " " else c) for c in text]


def tokenizer():
    added = [{"id": len(VOCAB) + i, "content": t, "special": True, "normalized": False,
              "lstrip": False, "rstrip": False, "single_word": False}
             for i, t in enumerate(SPECIAL)]
    return {"version": "1.0", "added_tokens": added, "normalizer": None, "post_processor": None,
            "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False},
            "decoder": {"type": "ByteLevel"},
            "model": {"type": "BPE", "vocab": {t: i for i, t in enumerate(VOCAB)}, "merges": []}}


@pytest.fixture
def folder(tmp_path):
    tiny_checkpoints.make(tmp_path, "llama", 1)
    write(tmp_path / "llama", "tokenizer.json", tokenizer())
    write(tmp_path / "llama", "tokenizer_config.json",
          {"bos_token": "<s>", "eos_token": {"content": "</s>"}, "chat_template": TEMPLATE})
    return tmp_path / "llama"


def write(folder, name, value):
    (folder / name).write_text(json.dumps(value))


def complete(server, **body):
    r = server.http.post("/v1/completions", json={"prompt": ids("a b"), "max_tokens": 8, **body})
    assert r.status_code == 200, r.text
    return r.json()["choices"][0]


def test_a_chat_goes_through_its_template_and_tokenizer(folder):
    with Tokend(model=str(folder)) as server:
        assert server.name == "llama"
        r = server.http.post("/v1/chat/completions", json={
            "messages": [{"role": "user", "content": "a <s> b"}], "max_tokens": 1,
            "temperature": 0, "return_token_ids": True})
        n = len(VOCAB)
        assert r.json()["prompt_token_ids"] == [n, n + 2, *ids("a <s> b"), n + 3]


def post(server, path, **body):
    r = server.http.post(path, json=body)
    assert r.status_code == 200, r.text
    return r.json()


def test_prompts_have_what_its_post_processor_adds_and_chats_what_the_template_writes(folder):
    begin, end, user, answer = range(len(VOCAB), len(VOCAB) + 4)
    wants = [{"SpecialToken": {"id": "<|user|>", "type_id": 0}}, {"SpecialToken": {"id": "<s>", "type_id": 0}},
             {"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "</s>", "type_id": 0}}]
    write(folder, "tokenizer.json", {**tokenizer(), "post_processor": {
        "type": "TemplateProcessing", "single": wants, "pair": [], "special_tokens": {
            t: {"id": t, "ids": [len(VOCAB) + SPECIAL.index(t)], "tokens": [t]}
            for t in ("<|user|>", "<s>", "</s>")}}})
    whole = [user, begin, *ids("ab"), end]
    with Tokend(model=str(folder)) as server:
        for text in ("ab", "<|user|><s>ab", "<|user|><s>ab</s>"):
            r = complete(server, prompt=text, max_tokens=1, return_token_ids=True)
            assert r["prompt_token_ids"] == whole, text
        assert post(server, "/tokenize", prompt="ab")["tokens"] == whole
        assert post(server, "/tokenize", prompt="ab", add_special_tokens=False)["tokens"] == ids("ab")
        chat = {"messages": [{"role": "user", "content": "ab"}]}
        written = [begin, user, *ids("ab"), answer]
        assert post(server, "/tokenize", **chat)["tokens"] == written
        r = post(server, "/v1/chat/completions", **chat, max_tokens=1, return_token_ids=True)
        assert r["prompt_token_ids"] == written


@pytest.mark.skipif(not GOLDEN, reason=f"no golden models in {CORPUS} (TOKEND_CORPUS says where)")
@pytest.mark.parametrize("folder", GOLDEN, ids=lambda p: p.name)
def test_a_text_has_the_tokens_of_the_reference(folder):
    golden = json.loads((folder / "golden.json").read_text())
    prompt = next(p for p in golden["prompts"] if p["name"] == "short")
    with Tokend(model=str(folder)) as server:
        assert post(server, "/tokenize", prompt=prompt["text"])["tokens"] == prompt["ids"]
        r = post(server, "/v1/completions", prompt=prompt["text"], max_tokens=1)
        assert r["usage"]["prompt_tokens"] == len(prompt["ids"])


def test_its_ends_end_an_answer(folder):
    with Tokend(model=str(folder)) as server:
        first = complete(server, temperature=0, return_token_ids=True)
        assert first["finish_reason"] == "length"
    write(folder, "generation_config.json", {"eos_token_id": [90, first["token_ids"][2]]})
    with Tokend(model=str(folder)) as server:
        again = complete(server, temperature=0, return_token_ids=True)
        assert again["finish_reason"] == "stop"
        assert len(again["token_ids"]) == 1 + first["token_ids"].index(first["token_ids"][2])


def test_its_sampling_defaults_are_the_servers(folder):
    write(folder, "generation_config.json", {"top_k": 1, "temperature": 0.9})

    def answers(*flags):
        with Tokend(*flags, model=str(folder)) as server:
            return {complete(server, max_tokens=24)["text"] for _ in range(4)}
    assert len(answers()) == 1
    assert len(answers("--generation-config", "none")) > 1


def test_a_default_that_cannot_be_meant_is_ignored(folder):
    write(folder, "generation_config.json", {
        "do_sample": "yes", "top_p": 1.1, "repetition_penalty": 0, "min_p": "x", "top_k": 1e300,
        "temperature": 0.25})
    with Tokend(model=str(folder)) as server:
        assert "top_p is 1.1, expected 0 to 1: ignored" in server.output()
        assert "sampling defaults of the model's generation_config.json: temperature 0.25 (" in (
            server.output())
        assert complete(server)["finish_reason"] == "length"


@pytest.mark.parametrize("tools, prompt", [(None, "plain"), ([{"type": "function"}], "tools")])
def test_render_takes_the_template_that_is_for_tools(folder, tmp_path, tools, prompt):
    write(folder, "tokenizer_config.json", {"chat_template": [
        {"name": "default", "template": "plain"}, {"name": "tool_use", "template": "tools"}]})
    write(tmp_path, "context.json", {"messages": [], "tools": tools})
    run = subprocess.run([PROGRAM, "render", "--model", folder, "--context",
                          tmp_path / "context.json"], capture_output=True, text=True, timeout=60)
    assert (run.returncode, run.stdout) == (0, prompt), run.stderr


def test_without_a_tokenizer_prompts_are_ids(folder):
    (folder / "tokenizer.json").unlink()
    with Tokend(model=str(folder)) as server:
        assert "prompts must be token ids" in server.output()
        assert complete(server)["finish_reason"] == "length"


@pytest.mark.parametrize("name", ["int4_awq", "fp8_rows"])
def test_packed_checkpoints_are_exact_as_float32(tmp_path, name):
    tiny_checkpoints.make_packed(tmp_path, name, 1)
    golden = json.loads((tmp_path / name / "golden.json").read_text())["prompts"][1]
    with Tokend("--dtype", "float32", model=str(tmp_path / name)) as server:
        got = complete(server, prompt=golden["ids"], max_tokens=1, temperature=0, logprobs=5,
                       return_tokens_as_token_ids=True)
    want = {f"token_id:{i}": logit - golden["logsumexp"] for i, logit in golden["top"][:5]}
    assert got["logprobs"]["top_logprobs"][0] == pytest.approx(want, abs=1e-3)


def test_dtype_and_quantization_exclude_each_other(folder):
    run = subprocess.run([PROGRAM, "serve", folder, "--dtype", "float32", "--quantization", "q8_0"],
                         capture_output=True, text=True, timeout=60)
    assert run.returncode == 1 and "exclude each other" in run.stdout + run.stderr
