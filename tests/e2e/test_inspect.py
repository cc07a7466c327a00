"""tokend inspect: what it says of GGUF files and Hugging Face directories, and what it warns of."""
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tokend import PROGRAM

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests/reference"))
import tiny_checkpoints  # noqa: E402

GEMMA = ROOT / "tests/data/gemma3.Q8_0.gguf"


def inspect(*args, **kwargs):
    return subprocess.run([PROGRAM, "inspect", *map(str, args)], capture_output=True, text=True,
                          timeout=60, **kwargs)


def inspected(path):
    run = inspect(path, "--json")
    got = json.loads(run.stdout)
    assert run.returncode == (0 if got["supported"] else 1), run.stderr
    return got


def checkpoint(folder, name, **more):
    """A tiny directory, and files beside its weights."""
    tiny_checkpoints.make(folder, name, 1)
    for file, text in more.items():
        (folder / name / file.replace("__", ".")).write_text(text)
    return folder / name


def test_a_gguf_file_is_described():
    got = inspected(GEMMA)
    assert got["architecture"] == "gemma3" and got["supported"]
    assert got["kind"] == "GGUF file"
    assert got["sizes"]["layers"] == 6 and got["sizes"]["head_dim"] == 32
    assert "a window of 32 tokens in 5 of 6 layers" in got["features"]
    assert got["kv_bytes_a_token"] == {"f16": 768, "f32": 1536}
    assert set(got["tensors"]) == {"F32", "Q8_0"}
    assert got["tokenizer"]["kind"] == "llama"
    assert {"id": 1, "text": "<eos>"} in got["ends"]


def test_what_cannot_be_loaded_is_not_supported(tmp_path):
    bad = GEMMA.read_bytes().replace(b"blk.1.attn_norm.weight", b"blk.1.attn_norm.weighs")
    (tmp_path / "renamed.gguf").write_bytes(bad)
    got = inspected(tmp_path / "renamed.gguf")
    assert not got["supported"] and "blk.1.attn_norm" in got["problem"]
    path = checkpoint(tmp_path, "qwen2moe")
    config = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps(config | {"moe_intermediate_size": config["moe_intermediate_size"] * 2}))
    got = inspected(path)
    assert not got["supported"] and "expected [" in got["problem"] and got["sizes"]["width"]


def test_a_file_cannot_talk_to_the_terminal(tmp_path):
    raw = GEMMA.read_bytes()
    assert b"<end_of_turn>" in raw
    (tmp_path / "evil.gguf").write_bytes(raw.replace(b"<eos>", b"\x1b[1mX"[:5]).replace(b"<bos>", b"\xff\x07\xc2\x9bq"))
    run = inspect(tmp_path / "evil.gguf")
    assert run.returncode == 0 and "\x1b" not in run.stdout and "\x9b" not in run.stdout and "\\x1b[1mX" in run.stdout
    inspected(tmp_path / "evil.gguf")


def test_the_same_is_printed_as_text():
    run = inspect(GEMMA)
    assert run.returncode == 0
    assert "architecture      gemma3\n" in run.stdout
    assert "heads 4, kv_heads 1, head_dim 32" in run.stdout


def test_a_directory_is_described(tmp_path):
    path = checkpoint(
        tmp_path, "qwen2moe",
        generation_config__json=json.dumps({"eos_token_id": [3, 5], "temperature": 0.7,
                                            "top_k": 20}),
        README__md="---\nlanguage: en\nlicense: apache-2.0\n---\nlicense: other\n",
        tokenizer_config__json=json.dumps({"bos_token": "<s>", "chat_template": [
            {"name": "default", "template": "{{ messages[0].content }}"},
            {"name": "tool_use", "template": "{{ messages[0].content }}{{ tools | tojson }}"}]}))
    got = inspected(path)
    assert got["kind"] == "Hugging Face directory" and got["model"] == "qwen2moe"
    assert "7 experts of 24, 3 a token" in got["features"] and "a shared expert" in got["features"]
    assert got["tensors"]["F32"]["tensors"] > 20
    assert [e["id"] for e in got["ends"]] == [3, 5]
    assert got["licence"] == "apache-2.0"
    assert got["sampling_defaults"] == {"temperature": 0.7, "top_k": 20}
    assert got["special_tokens"] == {"bos_token": "<s>"}
    assert [(t["name"], t["system_role"], t["tools"]) for t in got["templates"]] == [
        ("default", True, False), ("tool_use", True, True)]


@pytest.mark.parametrize("template, warning", [
    (None, "no chat template"),
    ("{{ messages[0].content", "does not parse"),
    ("{{ raise_exception('no') }}", "fails: line 1: no"),
    ("{% for m in messages %}{% if m.role == 'user' %}{{ m.content }}{% endif %}{% endfor %}",
     "has no system role"),
])
def test_traps_are_warned_of(tmp_path, template, warning):
    more = {} if template is None else {"chat_template__jinja": template}
    got = inspected(checkpoint(tmp_path, "llama", **more))
    assert any(warning in w for w in got["warnings"]), got["warnings"]
    assert any("no token ends a generation" in w for w in got["warnings"])


def test_a_model_that_is_not_supported_is_described_too(tmp_path):
    path = checkpoint(tmp_path, "llama")
    config = json.loads((path / "config.json").read_text())
    config["architectures"] = ["DeepseekV3ForCausalLM"]
    (path / "config.json").write_text(json.dumps(config))
    got = inspected(path)
    assert not got["supported"] and "multi-head latent attention" in got["problem"]
    assert got["tensors"]["F32"]["tensors"] > 10


def test_what_is_no_model_is_told_what_is_wanted(tmp_path):
    weights = checkpoint(tmp_path, "llama_window") / "model.safetensors"
    (tmp_path / "empty").mkdir()
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch/pytorch_model.bin").write_bytes(b"x")
    (tmp_path / "torch/config.json").write_text('{"architectures": ["LlamaForCausalLM"]}')
    cases = {weights: "name the directory that it is in",
             tmp_path / "empty": "is not a model: expected a GGUF file, or a directory",
             tmp_path / "torch/pytorch_model.bin": "PyTorch files are not read",
             tmp_path / "none": "does not exist",
             "org/name": "nor in the Hugging Face cache of this machine"}
    for model, message in cases.items():
        run = inspect(model, env={**os.environ, "HF_HUB_CACHE": str(tmp_path)})
        assert run.returncode == 1 and message in run.stderr, (model, run.stderr)
    assert "PyTorch weights are not read" in inspected(tmp_path / "torch")["problem"]


def test_a_hub_name_is_looked_up_in_the_cache(tmp_path):
    repo = tmp_path / "hub/models--org--tiny.model"
    checkpoint(repo / "snapshots", "llama").rename(repo / "snapshots/abc123")
    (repo / "refs").mkdir()
    (repo / "refs/main").write_text("abc123")
    run = inspect("org/tiny.model", "--json", env={**os.environ, "HF_HOME": str(tmp_path),
                                                   "HF_HUB_CACHE": ""})
    assert run.returncode == 0, run.stderr
    assert json.loads(run.stdout)["model"] == "org/tiny.model"


@pytest.mark.parametrize("args", [[], ["a", "b"], ["--colour", "a"]])
def test_a_wrong_command_line_is_refused(args):
    run = inspect(*args)
    assert run.returncode == 2 and "inspect --help" in run.stderr


def test_a_scaling_that_does_not_reach_the_context_is_warned_of(tmp_path):
    path = checkpoint(tmp_path, "qwen2")
    config = json.loads((path / "config.json").read_text())
    config["max_position_embeddings"] = 4096
    (path / "config.json").write_text(json.dumps(config))
    assert "rope mismatch: 32 tokens stretched by 4 are less" in inspect(path).stderr
