"""The program from its command line: help, errors, bench, quickstart, the lines at start."""
import json
import os
import re
import shutil
import signal
import subprocess
import threading
import time
from xml.etree import ElementTree

import httpx
import pytest
from tokend import EMULATED, MODEL, PROGRAM, Tokend, free_port

ROOT = os.path.join(os.path.dirname(__file__), "..", "..")
SMALL = os.path.join(ROOT, "tests", "data", "llama_k.Q4_1.gguf")


def run(*args, timeout=120, **kwargs):
    return subprocess.run([PROGRAM, *args], capture_output=True, text=True, timeout=timeout, **kwargs)


def test_help_names_the_commands_and_every_setting():
    assert "serve MODEL" in run("--help").stdout
    text = run("serve", "--help").stdout
    for flag in ("--host", "--port", "--max-model-len", "--kv-cache-memory", "--[no-]enable-prefix-caching"):
        assert flag in text


def test_an_unknown_command_is_refused_with_the_usage():
    r = run("sevre")
    assert r.returncode == 2 and 'unknown command "sevre"' in r.stderr and "usage:" in r.stderr


@pytest.mark.parametrize("args", [
    ("--help",), ("--version",), ("serve", "--help"), ("inspect", SMALL), ("inspect", SMALL, "--json"),
    ("tokenize", MODEL), ("bench", SMALL, "--prompt", "8", "--generate", "4", "--json"),
    ("bench", SMALL, "--prompt", "8", "--generate", "4", "--repeat", "1"),
])
def test_output_that_does_not_arrive_is_a_failure(args):
    with open("/dev/full", "w") as full:
        r = subprocess.run([PROGRAM, *args], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60,
                           input='{"text": "a"}\n')
    assert r.returncode == 1 and r.stderr.count("standard output: No space left on device\n") == 1


@pytest.mark.parametrize("flags, message", [
    (("--port", "99999"), "--port 99999: expected a whole number from 1 to 65535"),
    (("--host", "0.0.0.0"), "--allow-unauthenticated"),
    (("--prot", "1"), "unknown flag --prot"),
    (("--kv-cache-dtype", "int3"), "--kv-cache-dtype int3: expected one of auto|f16|bf16|f32|int8|fp8|fp8_e4m3"),
])
def test_a_wrong_flag_is_told_what_would_be_right(flags, message):
    r = run("serve", SMALL, *flags)
    assert r.returncode == 2 and message in r.stderr


@pytest.mark.parametrize("model, message", [
    ("/nowhere/model.gguf", "does not exist"),
    ("small:135m", "hf download org/name"),
    ("https://example.org/m.gguf", "hf download org/name"),
    (ROOT, "directory"),
    (__file__, "GGUF"),
])
def test_a_file_that_is_no_model_is_refused_with_its_name(model, message):
    r = run("serve", model, "--port", str(free_port()))
    assert r.returncode == 1 and message in r.stderr and model in r.stderr


@pytest.mark.real_model
def test_a_context_that_memory_does_not_hold_is_refused_with_the_numbers():
    r = run("serve", MODEL, "--port", str(free_port()), "--max-model-len", "8192", "--kv-cache-memory", "16MiB")
    assert r.returncode == 1 and "8192" in r.stderr and "--max-model-len" in r.stderr


def test_a_port_in_use_is_refused():
    with Tokend(model=SMALL) as server:
        r = run("serve", SMALL, "--port", str(server.port))
        assert r.returncode == 1 and str(server.port) in r.stderr


@pytest.mark.real_model
def test_start_prints_the_model_the_memory_budget_and_what_fits():
    with Tokend("--kv-cache-memory", "64MiB", "--max-num-seqs", "8") as server:
        log = server.output()
    assert re.search(r"loading /.*\.gguf \(9\d\.\d MiB\)", log)
    assert re.search(r"served as \"[^\"]+\"", log)
    assert re.search(r"model: .* 30 layers", log)
    assert re.search(r"memory: weights 9\d\.\d MiB \(mostly Q4_1\), KV pages 6[34]\.\d MiB \(22\.5 KiB a token, F16\), "
                     r"activations \d+\.\d MiB \(8 bits where weights are quantised, bf16 where they are BF16\)", log)
    assert re.search(r"fits: \d+ tokens in \d+ pages of 16", log)
    assert re.search(r"context: \d+ tokens, what the KV cache holds; the model allows 8192", log)


@pytest.mark.real_model
def test_a_cache_of_int8_is_nearly_half_as_large_and_answers_alike():
    said = {}
    for kv in "f16", "int8":
        with Tokend("--kv-cache-memory", "64MiB", "--kv-cache-dtype", kv) as server:
            reply = server.http.post("/v1/completions", json={"prompt": "The capital of France is", "max_tokens": 8,
                                                              "temperature": 0, "logprobs": 0}).json()["choices"][0]
            said[kv] = reply["text"], reply["logprobs"]["token_logprobs"], server.output()
    assert "(22.5 KiB a token, F16)" in said["f16"][2] and "(11.6 KiB a token, INT8)" in said["int8"][2]
    assert said["int8"][0].startswith(" Paris") and said["int8"][0] == said["f16"][0]
    assert said["int8"][1] != said["f16"][1]  # it is another cache
    assert all(abs(a - b) < 0.3 for a, b in zip(said["int8"][1], said["f16"][1]))


def test_each_request_has_a_line_at_level_debug():
    with Tokend("--log-level", "debug", model=SMALL) as server:
        r = server.http.post("/v1/completions", json={"prompt": [1, 2, 3], "max_tokens": 2, "ignore_eos": True},
                             headers={"x-request-id": "mine"})
        assert r.status_code == 200
        server.http.get("/nowhere")
        line = r"debug POST /v1/completions 200, \d+ ms, tokens: prompt 3, output 2, mine\n"
        assert server.until(lambda: re.search(line, server.output())), server.output()
        assert server.until(lambda: re.search(r"debug GET /nowhere 404, \d+ ms, req-", server.output()))


def test_requests_that_go_well_have_no_line_at_level_info():
    with Tokend(model=SMALL) as server:
        assert server.http.post("/v1/completions", json={"prompt": [1, 2], "max_tokens": 2}).status_code == 200
        assert server.http.get("/health").status_code == 200
        assert "POST" not in server.output()


def test_a_quantization_without_effect_is_told():
    with Tokend("--quantization", "q4_k", model=SMALL) as server:
        assert re.search(r"warn  --quantization Q4_K has no effect: .* are quantised already", server.output())


@pytest.mark.parametrize("text, message", [
    ("{{ messages[0].content | frobnicate }}", "line 1: there is no filter named 'frobnicate'"),
    ("{% if %}", "--chat-template"),
])
def test_a_template_that_cannot_work_is_refused_at_start(tmp_path, text, message):
    path = tmp_path / "bad.jinja"
    path.write_text(text)
    r = run("serve", SMALL, "--port", str(free_port()), "--chat-template", str(path))
    assert r.returncode == 1 and message in r.stderr and str(path) in r.stderr


def test_a_template_that_refuses_plain_messages_is_warned_of(tmp_path):
    path = tmp_path / "strict.jinja"
    path.write_text("{{ raise_exception('tools are missing') }}")
    with Tokend("--chat-template", str(path), model=SMALL) as server:
        assert "refuses a plain message: tools are missing" in server.output()


def test_settings_come_from_environment_and_file(tmp_path):
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"served-model-name": "from-file", "log-format": "json"}))
    os.environ["TOKEND_SERVED_MODEL_NAME"] = "from-environment"
    try:
        with Tokend("--config", str(config), model=SMALL) as server:
            assert server.name == "from-environment"
            for line in server.output().splitlines():
                assert set(json.loads(line)) == {"time", "level", "message"}
    finally:
        del os.environ["TOKEND_SERVED_MODEL_NAME"]


@pytest.mark.parametrize("command", ["serve", "bench", "render", "inspect", "tokenize"])
def test_a_command_says_in_a_line_what_it_lacks_and_helps(command):
    env = {k: v for k, v in os.environ.items() if k != "TOKEND_MODEL"}
    r = run(command, env=env)
    assert r.returncode == 2 and r.stderr.count("\n") == 1 and f"see tokend {command} --help" in r.stderr
    assert run("help", command).stdout == run(command, "--help").stdout != ""


@pytest.mark.parametrize("flags, message", [
    (("--depth", "100000"), "is a context of 100066 tokens; the model's has 1024"),
    (("--dtype", "f3"), "--dtype f3: expected one of auto|float32"),
    (("--dtype", "float32", "--quantization", "q4_0"), "exclude each other"),
])
def test_bench_refuses_what_the_model_cannot_do(flags, message):
    r = run("bench", SMALL, "--prompt", "8", *flags)
    assert r.returncode in (1, 2) and message in r.stderr and "--max-model-len" not in r.stderr


@pytest.mark.cpu("pinned threads, instruction sets")
def test_bench_tells_before_it_measures_what_cannot_be_and_gives_the_cause_alone():
    n = len(os.sched_getaffinity(0))
    r = run("bench", SMALL, "--prompt", "8", "--threads", f"1,{n + 1}", "--pin-threads")
    assert r.returncode == 2 and r.stdout == ""
    assert r.stderr.startswith(f"tokend bench: --threads {n + 1} cannot be pinned: the process may use {n} processor"), r.stderr
    r = run("bench", SMALL, "--prompt", "8", env={**os.environ, "TOKEND_ISA": "sse9"})
    assert r.returncode == 1 and r.stderr.startswith("tokend bench: TOKEND_ISA=sse9: this machine and build have"), r.stderr


def test_tokenize_passes_blank_lines_over_and_answers_all_others():
    r = run("tokenize", SMALL, input='{"text": "a"}\n\n \t\r\n{"text": "b"}\n\nno\n')
    assert [next(iter(json.loads(line))) for line in r.stdout.splitlines()] == ["ids", "ids", "error"]
    assert r.returncode == 1 and "Blank lines are passed" in run("tokenize", "--help").stdout


def test_bench_prints_one_json_line_a_sample():
    r = run("bench", SMALL, "--threads", "1", "--prompt", "16,32", "--generate", "8", "--depth", "0,64",
            "--batch", "1,2", "--repeat", "2", "--json")
    assert r.returncode == 0, r.stderr
    samples = [json.loads(line) for line in r.stdout.splitlines()]
    assert {s["test"] for s in samples} == {"prefill", "decode"}
    for s in samples:
        assert {"test", "prompt", "generate", "depth", "batch", "tokens_per_second"} <= set(s)
        assert s["tokens_per_second"] > 0
    assert {s["threads"] for s in samples} == {1}
    assert {s["prompt"] for s in samples if s["test"] == "prefill"} == {16, 32}
    assert {s["depth"] for s in samples} == {0, 64} and {s["batch"] for s in samples} == {1, 2}


def test_bench_prints_a_table_and_refuses_what_is_no_number():
    table = run("bench", SMALL, "--prompt", "8", "--generate", "4", "--repeat", "1", "--kv-cache-dtype", "f32",
                "--dtype", "float32").stdout
    row = next(line.split() for line in table.splitlines() if line.startswith("prefill"))
    assert f", {row[1]} threads" in table
    for bits in "auto", "16":
        assert "prefill" in run("bench", SMALL, "--prompt", "8", "--generate", "0", "--repeat", "1",
                                "--activation-bits", bits).stdout
    r = run("bench", SMALL, "--activation-bits", "12")
    assert r.returncode == 2 and "--activation-bits 12: expected one of auto|8|16" in r.stderr
    r = run("bench", SMALL, "--prompt", "8x")
    assert r.returncode == 2 and "--prompt" in r.stderr


SVG = "{http://www.w3.org/2000/svg}"


def test_bench_draws_what_it_measured(tmp_path):
    path = tmp_path / "bench.svg"
    r = run("bench", SMALL, "--prompt", "16,32", "--generate", "8", "--depth", "64,0,16", "--batch", "2,4",
            "--repeat", "1", "--threads", "1", "--json", "--svg", str(path))
    assert r.returncode == 0, r.stderr
    samples = [json.loads(line) for line in r.stdout.splitlines()]
    prefill = [s for s in samples if s["test"] == "prefill"]
    assert {(s["prompt"], s["depth"], s["batch"]) for s in prefill} == {(p, d, 2) for p in (16, 32) for d in (0, 16, 64)}
    assert {(s["depth"], s["batch"]) for s in samples if s["test"] == "decode"} == {(0, 2), (16, 2), (64, 2), (64, 4)}
    svg = ElementTree.parse(path).getroot()
    assert svg.tag == SVG + "svg"
    texts = [t.text for t in svg.iter(SVG + "text")]
    assert f"tokend bench: {os.path.basename(SMALL)}" in texts and any("cpu:" in t for t in texts)
    for text in ("Prefill, 2 sequences", "Decode of 8 tokens, 2 sequences", "Decode of 8 tokens, at depth 64",
                 "tokens/s", "sequences", "16 tokens; threads: 1"):
        assert text in texts, text
    prefills, decodes, batches = svg.findall(SVG + "g")
    line = lambda panel, i=0: [(float(c.get("cx")), float(c.get("cy"))) for c in panel.findall(SVG + "g")[i].iter(SVG + "circle")]
    assert len(line(prefills)) == len(line(prefills, 1)) == len(line(decodes)) == 3 and len(line(batches)) == 2
    (x0, _), (x16, _), (x64, _) = line(decodes)
    assert abs((x16 - x0) * 4 - (x64 - x0)) < 0.1
    speed = {s["depth"]: s["tokens_per_second"] for s in samples if s["test"] == "decode" and s["batch"] == 2}
    base = float(re.search(r"M\d+ (\d+)H", next(p.get("d") for p in decodes.iter(SVG + "path") if p.get("class") == "a"))[1])
    scales = [(base - y) / speed[d] for (_, y), d in zip(line(decodes), (0, 16, 64))]
    assert max(scales) < min(scales) * 1.01
    assert "http" not in path.read_text().replace("http://www.w3.org/2000/svg", "")


def test_the_depths_of_a_picture_are_those_that_the_model_has(tmp_path):
    r = run("bench", SMALL, "--prompt", "8", "--generate", "4", "--repeat", "1", "--svg", str(tmp_path / "a.svg"))
    assert r.returncode == 0, r.stderr
    rows = [line.split() for line in r.stdout.splitlines() if line.startswith(("prefill", "decode"))]
    assert {int(row[4]) for row in rows} == {0, 512} and {int(row[5]) for row in rows} == {1, 2, 4, 8, 16, 32}


@pytest.mark.parametrize("flags, message", [
    (("--svg", "/nowhere/a.svg"), "/nowhere/a.svg: No such file"),
    (("--svg", "x.svg", "--threads", "1,2,3", "--prompt", "1,2,3"), "--svg: 9 lines"),
    (("--svg",), "--svg: expected a value"),
])
def test_bench_refuses_a_picture_that_it_cannot_make(flags, message):
    r = run("bench", SMALL, "--prompt", "8", "--generate", "4", *flags)
    assert r.returncode in (1, 2) and message in r.stderr and "prefill" not in r.stdout


@pytest.mark.real_model
def test_quickstart_ends_with_a_sensible_answer():
    if os.path.realpath(PROGRAM) != os.path.realpath(os.path.join(ROOT, "build", "tokend")):
        pytest.skip("quickstart runs build/tokend, which is not the program under test")
    r = subprocess.run(["bash", os.path.join(ROOT, "config", "quickstart.sh"), "--once", "--port",
                        str(free_port())], capture_output=True, text=True, timeout=600)
    assert r.returncode == 0, r.stderr
    answer = r.stdout.strip().splitlines()[-1]
    assert "sky" in answer and answer.endswith(".")


def test_the_first_sigterm_drains_and_the_second_quits():
    with Tokend("--drain-timeout", "60") as server:
        body = {"prompt": "Once", "max_tokens": 4000, "ignore_eos": True, "stream": True}
        with httpx.stream("POST", server.url + "/v1/completions", json=body, timeout=60) as stream:
            lines = stream.iter_lines()
            next(lines)
            server.process.send_signal(signal.SIGTERM)
            server.until(lambda: server.http.get("/health").status_code == 503)
            refused = server.http.post("/v1/completions", json={"prompt": "a"})
            assert refused.status_code == 503 and refused.json()["error"]["code"] == "draining"
            assert next(line for line in lines if line).startswith("data: {")
            server.process.send_signal(signal.SIGTERM)
            assert server.process.wait(10) == 0


def test_64_streams_run_together_and_leave_nothing_behind():
    def one(server, i, out):
        body = {"prompt": f"Story {i}:", "max_tokens": least + i % 32, "ignore_eos": True, "seed": i, "stream": True,
                "stream_options": {"include_usage": True}}
        n, first, end = 0, None, None
        with httpx.stream("POST", server.url + "/v1/completions", json=body, timeout=300) as stream:
            for line in stream.iter_lines():
                if line.startswith("data: {"):
                    event = json.loads(line[6:])
                    with lock:
                        clock[0] += 1
                        first, end = first or clock[0], clock[0]
                    n = (event.get("usage") or {}).get("completion_tokens", n)
        out[i] = (first, end, n)

    least, flags = 128, ()
    if EMULATED:  # prompts are not kept back for the sake of a pace that it does not have
        least, flags = 32, ("--max-num-seqs", "64", "--max-num-batched-tokens", "256", "--target-itl-ms", "0")
    lock, clock, out = threading.Lock(), [0], {}
    with Tokend(*flags) as server:
        threads = [threading.Thread(target=one, args=(server, i, out)) for i in range(64)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        assert [out[i][2] for i in range(64)] == [least + i % 32 for i in range(64)]
        assert max(first for first, _, _ in out.values()) < min(end for _, end, _ in out.values())
        server.until(lambda: server.metric("tokend:pages", state="in_use") == 0)
        assert server.metric("vllm:num_requests_running") == 0


def test_what_is_no_file_is_said_to_be_none(tmp_path):
    folder = os.open(tmp_path, os.O_RDONLY)
    r = run("tokenize", SMALL, stdin=folder)
    os.close(folder)
    assert r.returncode == 1 and "standard input cannot be read" in r.stderr
    os.mkfifo(tmp_path / "tokenizer.json")
    r = run("tokenize", str(tmp_path), stdin=subprocess.DEVNULL, timeout=20)
    assert r.returncode == 1 and "tokenizer.json is not a regular file" in r.stderr


def test_a_bus_error_that_is_sent_is_not_taken_for_a_cut_file():
    with subprocess.Popen([PROGRAM, "tokenize", SMALL], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True) as p:
        p.stdin.write('{"text": "a"}\n')
        p.stdin.flush()
        p.stdout.readline()
        p.send_signal(signal.SIGBUS)
        assert p.wait(20) == -signal.SIGBUS and "mapped" not in p.stderr.read()


def test_a_model_that_is_cut_while_it_loads_does_not_kill_without_a_word(tmp_path):
    for delay in (0.02, 0.05, 0.1):
        shutil.copy(MODEL, tmp_path / "m.gguf")
        with subprocess.Popen([PROGRAM, "bench", tmp_path / "m.gguf", "--prompt", "8", "--generate", "4"],
                              stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as p:
            time.sleep(delay)
            os.truncate(tmp_path / "m.gguf", 5_000_000)
            said = p.stderr.read()
        assert p.returncode == 0 or (p.returncode == 1 and said), (delay, p.returncode)


def test_claims_are_measured_and_written(tmp_path):
    r = run("bench", "claims", SMALL, "--context", "128", "--threads", "1", "--out", tmp_path / "new")
    assert r.returncode == 0, r.stderr
    table = (tmp_path / "new/claims.md").read_text()
    assert table == r.stdout
    got = json.loads((tmp_path / "new/claims.json").read_text())["claims"]
    by = {(c["feature"], c["unit"]): c for c in got}
    batch = by["continuous batching", "%"]
    assert 0 < batch["off"] < batch["on"] <= 100
    assert by["tiled attention", "MiB"]["on"] < 100 and len(table.splitlines()) == 2 + len(got) == 11
    for name in ("pages of 16 tokens", "%"), ("prefix cache", "pages"):
        c = by[name]  # looked at while it runs, which may be too short for a look
        assert c["on"] < c["off"] or 0 in (c["on"], c["off"])
    svg = ElementTree.parse(tmp_path / "new/claims.svg").getroot()
    assert sum(t.text == "KV cache" for t in svg.iter("{http://www.w3.org/2000/svg}text")) == 1


@pytest.mark.parametrize("args, says", [
    ([], "expected a MODEL"), ([SMALL, "--context", "64"], "--context 64"), ([SMALL, "--what", "1"], "unknown flag --what"),
    ([SMALL, "--out", "/dev/null/x"], "--out /dev/null/x: cannot make that directory"), ([SMALL, "--threads"], "--threads"),
])
def test_claims_say_what_is_wrong_before_they_measure(args, says):
    r = run("bench", "claims", *args)
    assert r.returncode in (1, 2) and says in r.stderr and r.stdout == ""
