"""--device: the server on the CUDA backend, run by the emulated module of tests/cuda_emu, answers as
on the CPU; a device that fails; what auto and cuda say where there is no GPU."""
import json
import os
import re
import subprocess

import httpx
import pytest
from tokend import PROGRAM, Tokend, events, free_port

MODULE = os.path.join(os.path.dirname(PROGRAM), "tests/cuda_emu/tokend-cuda-emu.so")
SMALL = os.path.join(os.path.dirname(__file__), "../data/llama3.F16.gguf")
FLAGS = ("--kv-cache-memory", "2MiB", "--max-model-len", "128", "--max-num-seqs", "4",
         "--max-num-batched-tokens", "32", "--threads", "1")
emulated = pytest.mark.skipif(not os.path.exists(MODULE), reason=f"no {MODULE}: needs CUDA's headers")


def ask(server, stream):
    return server.http.post("/v1/completions", json={
        "model": server.name, "prompt": list(range(3, 30)), "max_tokens": 6, "temperature": 0,
        "logprobs": 2, "ignore_eos": True, "stream": stream})


def streamed(server):
    """Tokens, and their log probabilities"""
    r = ask(server, True)
    assert r.status_code == 200, r.text
    parts = [e["choices"][0]["logprobs"] for e in events(r.text) if e["choices"]]
    parts = [p for p in parts if p]
    return sum((p["tokens"] for p in parts), []), sum((p["token_logprobs"] for p in parts), [])


@emulated
def test_the_emulated_device_streams_what_the_cpu_does(monkeypatch):
    monkeypatch.setenv("TOKEND_CUDA_MODULE", MODULE)
    with Tokend(*FLAGS, "--device", "cuda", model=SMALL) as server:
        assert "on cuda: emulated GPU" in server.output()
        tokens, logprobs = streamed(server)
        assert server.all_pages_are_back()
    with Tokend(*FLAGS, "--device", "cpu", model=SMALL) as server:
        cpu_tokens, cpu_logprobs = streamed(server)
    assert tokens == cpu_tokens and len(tokens) == 6
    assert all(abs(a - b) < 0.02 for a, b in zip(logprobs, cpu_logprobs))


@emulated
def test_batch_invariance_is_told_and_changes_last_bits_alone(monkeypatch):
    monkeypatch.setenv("TOKEND_CUDA_MODULE", MODULE)
    answers = {}
    for flag in "--batch-invariant", "--no-batch-invariant":
        with Tokend(*FLAGS, "--device", "cuda", flag, model=SMALL) as server:
            answers[flag] = streamed(server)
            says_yes = "batch invariance: yes" in server.output()
            assert says_yes == (flag == "--batch-invariant"), server.output()
            assert ("cuBLASLt" in server.output()) == (not says_yes)
    (tokens, logprobs), (other, others) = answers.values()
    assert tokens == other and all(abs(a - b) < 0.02 for a, b in zip(logprobs, others))


@emulated
def test_auto_says_that_a_gpu_is_there_and_stays_on_the_cpu(monkeypatch):
    monkeypatch.setenv("TOKEND_CUDA_MODULE", MODULE)
    with Tokend(*FLAGS, model=SMALL) as server:
        assert "device: cpu (a GPU is there" in server.output() and "on cpu: " in server.output()


@emulated
def test_pages_get_what_is_left_of_the_device(monkeypatch):
    monkeypatch.setenv("TOKEND_CUDA_MODULE", MODULE)
    with Tokend("--max-model-len", "128", "--gpu-memory-utilization", "0.1", "--device", "cuda",
                model=SMALL) as server:
        pages = server.metric("tokend:pages")
        assert 50 << 20 < pages * 16 * 384 < 103 << 20, server.output()


def cuda(monkeypatch, **variables):
    monkeypatch.setenv("TOKEND_CUDA_MODULE", MODULE)
    for name, value in variables.items():
        monkeypatch.setenv("TOKEND_EMU_" + name, str(value))


@emulated
def test_what_the_device_takes_in_the_first_steps_is_left_to_it(monkeypatch):
    """Its kernels take memory when they first run, and the pool all that is left."""
    cuda(monkeypatch, MEMORY=128, KERNEL_MEMORY=1024)
    with Tokend(*FLAGS[2:], "--gpu-memory-utilization", "1", "--device", "cuda", model=SMALL) as server:
        pages = server.metric("tokend:pages")
        assert 40 << 20 < pages * 16 * 384 < 90 << 20, server.output()
        assert streamed(server)[0]
        for n in 1, 3, 8, 27:
            r = server.http.post("/v1/completions", json={"prompt": [[5] * n] * 4, "max_tokens": 3})
            assert r.status_code == 200, r.text


@emulated
def test_a_device_that_fails_is_told_and_ends_the_program(monkeypatch):
    cuda(monkeypatch, FAULT=400)
    with Tokend(*FLAGS, "--device", "cuda", "--enforce-eager", model=SMALL) as server:
        assert server.http.get("/health").status_code == 200
        r = server.http.post("/v1/completions", json={"prompt": [5] * 9, "max_tokens": 60, "ignore_eos": True})
        assert r.status_code >= 500 and "the device failed" in r.text, r.text
        assert server.process.wait(20) != 0
        assert "CUDA: operation" in server.output() and "cudaErrorLaunchFailure" in server.output()


def start(*flags):
    r = subprocess.run([PROGRAM, "serve", SMALL, "--port", str(free_port()), *flags],
                       capture_output=True, text=True, timeout=60)
    return r.returncode, r.stderr


@pytest.mark.parametrize("module, says", [("/nowhere/x.so", "No such file"), (SMALL, "invalid ELF header")])
def test_cuda_without_its_module_is_refused_and_auto_goes_on(monkeypatch, module, says):
    monkeypatch.setenv("TOKEND_CUDA_MODULE", module)
    code, log = start("--device", "cuda")
    assert code != 0 and "--device cuda: " in log and says in log
    with Tokend(*FLAGS, model=SMALL) as server:
        assert "device: cpu (no cuda: " in server.output() and says in server.output()


@emulated
@pytest.mark.parametrize("n", [1, 2, 40, 120, 172, 200, 260, 400])
def test_a_fault_at_any_time_ends_what_runs_and_the_program(monkeypatch, n):
    """At the first launch, in the first steps, in a prompt, while tokens are drawn"""
    cuda(monkeypatch, FAULT=n)
    port = free_port()
    with subprocess.Popen([PROGRAM, "serve", SMALL, "--port", str(port), *FLAGS, "--device", "cuda"],
                          stderr=subprocess.PIPE, text=True) as p:
        up = False
        for line in p.stderr:
            if "listening on" in line:
                up = True
                break
            last = line
        if not up:
            assert p.wait(20) == 1 and "CUDA: " in last, last
            return
        url = f"http://127.0.0.1:{port}"
        try:
            r = httpx.post(url + "/v1/completions", timeout=60, json={
                "prompt": list(range(3, 30)), "max_tokens": 60, "ignore_eos": True})
            assert r.status_code >= 500 and "the device failed" in r.text, r.text
            assert httpx.get(url + "/health").status_code == 503
        except httpx.TransportError:
            pass  # it has ended already
        assert p.wait(20) == 1
        assert "the device failed: CUDA: " in p.stderr.read()


@emulated
def test_memory_that_is_not_there_is_told_whenever_it_is_asked_for(monkeypatch):
    ends = []
    for n in range(1, 10):
        monkeypatch.setenv("TOKEND_CUDA_MODULE", MODULE)
        monkeypatch.setenv("TOKEND_EMU_MALLOC_FAULT", str(n))
        with subprocess.Popen([PROGRAM, "serve", SMALL, "--port", str(free_port()), *FLAGS, "--device", "cuda"],
                              stderr=subprocess.PIPE, text=True) as p:
            last = next((line for line in p.stderr if "listening on" in line or " error " in line), "")
            if "listening on" in last:
                p.terminate()
            ends.append((p.wait(20), last))
    failed = [line for _, line in ends if "listening on" not in line]
    assert len(failed) >= 4 and all("of the GPU's memory are wanted, of which" in line for line in failed), failed
    assert all(code == (0 if "listening on" in line else 1) for code, line in ends), ends


@emulated
def test_a_module_of_another_version_is_refused(monkeypatch, tmp_path):
    version = subprocess.run([PROGRAM, "--version"], capture_output=True, check=True).stdout.split()[1]
    with open(MODULE, "rb") as f:
        library = f.read()
    assert library.count(b"\0" + version + b"\0") == 1
    stale = tmp_path / "stale.so"
    stale.write_bytes(library.replace(b"\0" + version + b"\0", b"\0" + b"9" * len(version) + b"\0"))
    monkeypatch.setenv("TOKEND_CUDA_MODULE", str(stale))
    code, log = start("--device", "cuda")
    assert code != 0 and f"{stale}: it was not built with this program" in log, log


@emulated
def test_the_repack_cache_is_told_to_have_no_effect(monkeypatch, tmp_path):
    cuda(monkeypatch)
    with Tokend(*FLAGS, "--device", "cuda", "--repack-cache", str(tmp_path / "nowhere"), model=SMALL) as server:
        assert "--repack-cache has no effect" in server.output()


@emulated
def test_what_does_not_fit_the_gpu_is_refused_with_what_would(monkeypatch):
    monkeypatch.setenv("TOKEND_CUDA_MODULE", MODULE)
    code, log = start("--device", "cuda", "--kv-cache-memory", "2GiB")
    assert code != 0 and "the GPU's memory that may be used" in log and "at most" in log
    code, log = start("--device", "cuda", "--gpu-memory-utilization", "0.001")
    assert code != 0 and "--gpu-memory-utilization" in log


@emulated
def test_a_context_that_does_not_fit_the_gpu_is_refused_and_the_one_that_is_told_fits(monkeypatch):
    cuda(monkeypatch, MEMORY=32)
    flags = ("--device", "cuda", "--max-num-seqs", "2", "--max-num-batched-tokens", "16", "--gpu-memory-utilization")
    code, log = start(*flags, "0.2", "--max-model-len", "1024")
    assert code != 0 and re.search(r"weights need \d+\.\d MiB, activations \d+\.\d, KV pages of 1024 tokens 0\.4", log), log
    share = re.search(r"--gpu-memory-utilization (0\.\d\d) fits", log)
    with Tokend(*flags, share[1], "--max-model-len", "1024", model=SMALL) as server:
        assert ask(server, False).status_code == 200


@emulated
def test_bench_takes_the_device(monkeypatch):
    monkeypatch.setenv("TOKEND_CUDA_MODULE", MODULE)
    out = subprocess.run([PROGRAM, "bench", SMALL, "--device", "cuda", "--prompt", "8", "--generate", "2",
                          "--repeat", "1", "--json"], capture_output=True, text=True, timeout=100, check=True)
    assert all(json.loads(line)["tokens_per_second"] > 0 for line in out.stdout.splitlines())
