#!/usr/bin/env python3
"""serve_check.py --program TOKEND: the server on the GPU answers as on the CPU.

The same prompts, greedily, once with --device cuda and once with --device cpu: tokens must be equal up to
the first place where the two best were near each other, and log probabilities before it be near. No
packages are needed. The last line says how many prompts passed.
"""

import argparse
import json
import os
import pathlib
import socket
import subprocess
import sys
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
SMOL = pathlib.Path.home() / ".cache/tokend/models/SmolLM2-135M-Instruct.Q4_1.gguf"
TOY = ROOT / "tests/data/llama3.F16.gguf"
# Best tokens that are nearer than this may change places; log probabilities differ by less.
NEAR = 0.35


def model_of(args):
    if args.emulated:
        return TOY
    named = os.environ.get("TOKEND_MODEL", SMOL)
    return pathlib.Path(named) if pathlib.Path(named).exists() else TOY


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Server:
    def __init__(self, program, model, device):
        self.port = free_port()
        flags = ["--max-model-len", "128", "--max-num-seqs", "4"] if model == TOY else ["--max-model-len", "1024"]
        self.process = subprocess.Popen(
            [program, "serve", str(model), "--port", str(self.port), "--device", device, *flags],
            stdout=subprocess.DEVNULL, stderr=sys.stdout)
        for _ in range(600):
            if self.process.poll() is not None:
                sys.exit(f"the server on {device} ended with {self.process.returncode}\n0 passed, 1 failed")
            try:
                if self.get("/health").status == 200:
                    return
            except OSError:
                time.sleep(0.1)
        sys.exit(f"the server on {device} is not ready in a minute\n0 passed, 1 failed")

    def get(self, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", data, {"Content-Type": "application/json"})
        return urllib.request.urlopen(request, timeout=60)

    def answer(self, prompt, n):
        """[(token, its log probability, the second best's)]"""
        model = json.load(self.get("/v1/models"))["data"][0]["id"]
        reply = json.load(self.get("/v1/completions", {
            "model": model, "prompt": prompt, "max_tokens": n, "temperature": 0, "logprobs": 2, "ignore_eos": True}))
        probabilities = reply["choices"][0]["logprobs"]
        seconds = [sorted(tops.values())[0] for tops in probabilities["top_logprobs"]]
        return list(zip(probabilities["tokens"], probabilities["token_logprobs"], seconds))

    def close(self):
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()


def prompts_of(model):
    if model == TOY:
        return [list(range(3, 30)), [7], list(range(60, 3, -2))], 6
    text = "The water of a river runs from the mountains to the sea, and on its way "
    return ["Why is the sky blue?", "def fibonacci(n):", text * 20 + "it"], 48


def compare(prompt, cuda, cpu):
    """Whether they agree up to the first near tie; what is wrong is printed."""
    for i, ((a, logprob_a, _), (b, logprob_b, second)) in enumerate(zip(cuda, cpu)):
        if a != b:
            near = logprob_b - second < NEAR
            print(f"{str(prompt)[:40]!r}: token {i} is {a!r}, on the CPU {b!r} ({'a near tie' if near else 'NO near tie'})")
            return near
        if abs(logprob_a - logprob_b) > NEAR:
            print(f"{str(prompt)[:40]!r}: token {i} has {logprob_a:.3f}, on the CPU {logprob_b:.3f}")
            return False
    print(f"{str(prompt)[:40]!r}: {len(cuda)} tokens, the same")
    return len(cuda) == len(cpu)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", required=True)
    parser.add_argument("--emulated", action="store_true")
    args = parser.parse_args()
    model = model_of(args)
    print(f"model {model.name}")
    prompts, n = prompts_of(model)
    answers = {}
    for device in "cuda", "cpu":
        server = Server(args.program, model, device)
        start = time.monotonic()
        try:
            answers[device] = [server.answer(p, n) for p in prompts]
        finally:
            server.close()
        print(f"{device}: {len(prompts)} answers of {n} tokens in {time.monotonic() - start:.2f} s")
    good = sum(compare(p, a, b) for p, a, b in zip(prompts, answers["cuda"], answers["cpu"]))
    print(f"{good} passed, {len(prompts) - good} failed")
    sys.exit(good != len(prompts))


main()
