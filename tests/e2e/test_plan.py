"""tokend plan: what a model needs of a device's memory, from its files or its configuration alone."""
import json
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from tokend import PROGRAM

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests/reference"))
import tiny_checkpoints  # noqa: E402

MiB = 1 << 20


def plan(*args):
    return subprocess.run([PROGRAM, "plan", *map(str, args)], capture_output=True, text=True, timeout=60)


def planned(*args):
    run = plan(*args, "--json")
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


def near(a, b):
    return abs(a - b) <= 0.05 * b


@pytest.mark.parametrize("model, params, token", [
    ("llama-2-7b", 6738415616, 524288), ("llama-2-13b", 13015864320, 819200), ("llama-2-70b", 68976648192, 327680)])
def test_llama_2_is_built_in(model, params, token):
    got = planned(model, "--len", 2048)
    assert got["parameters"] == params and got["weight_bytes"] == 2 * params
    assert got["kv_bytes_per_token"] == token and got["kv_bytes"] == 2048 * token


def test_ceilings_are_bandwidth_over_what_a_token_reads():
    numbers = ["--memory", 80, "--bandwidth", 2000]
    seven = planned("llama-2-7b", "--len", 2048, *numbers)
    assert near(seven["decode_ceiling_tokens_per_second"], 133) and near(seven["decode_step_seconds"], 7.5e-3)
    thirteen = planned("llama-2-13b", *numbers)  # an empty cache
    assert near(thirteen["decode_ceiling_tokens_per_second"], 77) and near(thirteen["decode_step_seconds"], 13e-3)
    batch = planned("llama-2-13b", "--batch", 8, "--len", 4096, *numbers)
    assert batch["kv_bytes"] == 8 * 4096 * 819200
    assert batch["decode_ceiling_tokens_per_second"] == pytest.approx(
        8 / ((batch["weight_bytes"] + batch["kv_bytes"]) / 2e12))
    assert planned("llama-2-13b", "--batch", 16, "--len", 8192, *numbers)["kv_bytes"] == 16 * 8192 * 819200


def test_devices_share_weights_and_heads():
    one = planned("llama-2-70b", "--device", "h100", "--len", 4096)
    four = planned("llama-2-70b", "--device", "h100", "--len", 4096, "--devices", 4)
    assert not one["fits"] and one["max_sequences"] == 0 and one["memory_of_each_device"]["left"] < 0
    assert four["fits"] and four["max_sequences"] > 10
    assert four["memory_of_each_device"]["weights"] == one["weight_bytes"] // 4
    assert four["memory_of_each_device"]["kv"] == one["kv_bytes"] // 4
    assert four["decode_step_seconds"] == pytest.approx(one["decode_step_seconds"] / 4)
    sixteen = planned("llama-2-70b", "--device", "h100", "--len", 4096, "--devices", 16)  # a KV head has two devices
    assert sixteen["memory_of_each_device"]["kv"] == one["kv_bytes"] // 8
    bad = plan("llama-2-70b", "--devices", 3)
    assert bad.returncode == 1 and "3 devices cannot share 64 heads over 8 KV heads" in bad.stderr


def test_a_gpu_may_be_described():
    got = planned("llama-2-7b", "--device", "gpu", "--memory", "24GiB", "--gpu-memory-utilization", "0.5")
    assert got["memory_of_each_device"]["kept_free"] == 12 << 30 and not got["fits"]
    assert "--device gpu: expected --memory" in plan("llama-2-7b", "--device", "gpu").stderr


def test_parts_are_the_whole_memory():
    got = planned("llama-2-7b", "--device", "rtx-4090", "--batch", 4, "--len", 1000)
    parts = got["memory_of_each_device"]
    assert sum(parts.values()) == got["device"]["memory_bytes"]
    assert parts["kv"] == 4 * 1008 * 524288 and got["kv_bytes"] == 4 * 1000 * 524288  # pages of 16 tokens
    more = planned("llama-2-7b", "--device", "rtx-4090", "--batch", got["max_sequences"], "--len", 1000)
    assert more["fits"]
    assert not planned("llama-2-7b", "--device", "rtx-4090", "--batch", got["max_sequences"] + 1, "--len", 1000)["fits"]


def test_types_change_bytes():
    f16 = planned("llama-2-7b", "--len", 2048)
    int8 = planned("llama-2-7b", "--len", 2048, "--kv-cache-dtype", "int8")
    assert int8["kv_bytes_per_token"] == f16["kv_bytes_per_token"] * (128 + 2) // 256
    fp8 = planned("llama-2-7b", "--len", 2048, "--kv-cache-dtype", "fp8")
    assert fp8["kv_bytes_per_token"] == int8["kv_bytes_per_token"] and fp8["kv_cache_dtype"] == "F8_E4M3"
    q4 = planned("llama-2-7b", "--quantization", "q4_0")
    assert 4.4 < 8 * q4["weight_bytes"] / q4["parameters"] < 4.7


@pytest.mark.parametrize("name", sorted(tiny_checkpoints.HF))
def test_a_configuration_alone_says_what_its_checkpoint_does(tmp_path, name):
    tiny_checkpoints.make(tmp_path, name, 1)
    whole = planned(tmp_path / name)
    alone = tmp_path / "alone"
    alone.mkdir()
    config = json.loads((tmp_path / name / "config.json").read_text())
    text = config.get("text_config", config)
    text.setdefault("vocab_size", tiny_checkpoints_vocab(tmp_path / name))
    config.pop("torch_dtype", None)
    config["dtype"] = "float32"
    (alone / "config.json").write_text(json.dumps(config))
    for path in alone, alone / "config.json":
        got = planned(path)
        assert got["parameters"] == whole["parameters"]
        assert got["kv_bytes_per_token"] in (whole["kv_bytes_per_token"], 2 * whole["kv_bytes_per_token"])
        assert got["active_parameters"] == whole["active_parameters"]


def tiny_checkpoints_vocab(folder):
    run = subprocess.run([PROGRAM, "inspect", str(folder), "--json"], capture_output=True, text=True, timeout=60)
    return json.loads(run.stdout)["sizes"]["vocabulary"]


def test_a_model_file_is_planned_with_its_own_types():
    got = planned(ROOT / "tests/data/gemma3.Q8_0.gguf")
    assert got["kv_cache_dtype"] == "F16" and got["kv_bytes_per_token"] == 768
    assert got["device"]["name"] == "cpu" and got["device"]["memory_bytes"] > 256 * MiB
    assert got["decode_ceiling_tokens_per_second"] is None


def test_the_text_has_a_bar_and_the_picture_is_svg(tmp_path):
    run = plan("llama-2-13b", "--device", "a100-80g", "--batch", 8, "--len", 4096, "--svg", tmp_path / "a.svg")
    assert run.returncode == 0 and "25.0 GiB" in run.stdout and "24.2 GiB" in run.stdout
    bar = next(line for line in run.stdout.splitlines() if line.startswith("  ["))
    assert bar.count("W") == 19 and bar.count("K") == 20 and len(bar) == 68
    texts = [t.text for t in ElementTree.parse(tmp_path / "a.svg").getroot().iter("{http://www.w3.org/2000/svg}text")]
    assert "llama-2-13b, 8 x 4096 tokens" in texts and "25.0 GiB" in texts


@pytest.mark.parametrize("args, says", [
    (["llama-2-7b", "--device", "a1000"], "--device a1000: expected cpu or one of t4"),
    (["llama-2-7b", "--memory", "x"], "--memory x"),
    (["llama-2-7b", "--bandwidth", "-1"], "expected a number above 0"),
    (["llama-2-7b", "--batch", "0"], "--batch 0"),
    (["llama-2-7b", "--wrong", "1"], "unknown flag --wrong"),
    (["llama-2-7b", "--len"], "--len: expected a value"),
    (["llama-2-7b", "--batch", "1048576", "--len", "1073741824"], "out of all range"),
    (["no-such-model"], "does not exist"),
    ([], "expected a MODEL"),
    (["/dev/null.json"], "does not exist"),
])
def test_what_is_wrong_is_said(args, says):
    run = plan(*args)
    assert run.returncode in (1, 2) and says in run.stderr and run.stdout == ""


def test_a_hostile_configuration_is_refused(tmp_path):
    good = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 64, "intermediate_size": 64,
            "num_hidden_layers": 2, "num_attention_heads": 2, "vocab_size": 100, "max_position_embeddings": 64}
    path = tmp_path / "config.json"
    for change in ({"hidden_size": 10**18}, {"vocab_size": None}, {"num_attention_heads": -1}, {"model_type": "x",
                   "architectures": ["X"]}, {"quantization_config": {"quant_method": "magic"}}, {"num_hidden_layers": []}):
        path.write_text(json.dumps(good | change))
        run = plan(path)
        assert run.returncode == 1 and len(run.stderr) > 20, change
    path.write_text(json.dumps(good))
    assert planned(path)["parameters"] > 0
