"""Speed without a server: `tokend bench` and a peer's llama-bench and llama-batched-bench, one
sample of one case a call, so that the caller can take turns. All in tokens a second."""
import json
import subprocess

TIMEOUT = 1800


def _json_lines(command):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          errors="replace", timeout=TIMEOUT)
    if done.returncode != 0:
        last = (done.stderr.strip() or done.stdout.strip() or "nothing printed").splitlines()[-1]
        raise RuntimeError(f"{command[0]}: status {done.returncode}: {last[:300]}")
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    if not rows:
        raise RuntimeError(f"{command[0]}: printed no results")
    return rows


def tokend(program, model, threads, prompt=0, generate=0, depth=0, batch=1, shared=False):
    """The second of two samples: the first one also touches memory for the first time."""
    rows = _json_lines([program, "bench", model, "--json", "--threads", str(threads), "--repeat", "2",
                        "--prompt", str(prompt), "--generate", str(generate), "--depth", str(depth),
                        "--batch", str(batch), *(["--shared-depth"] if shared else [])])
    return rows[-1]["tokens_per_second"]


def llama_bench(program, model, threads, flash, prompt=0, generate=0, depth=0):
    """One sample after the program's own warm-up."""
    rows = _json_lines([program, "-m", model, "-t", str(threads), "-r", "1", "-p", str(prompt),
                        "-n", str(generate), "-d", str(depth), "-fa", str(flash), "-o", "jsonl"])
    return rows[-1]["avg_ts"]


def llama_batched_bench(program, model, threads, flash, generate, batch, depth=1, shared=False):
    context = batch * (generate + depth) + 64
    rows = _json_lines([program, "-m", model, "-t", str(threads), "-c", str(context), "-npp", str(depth),
                        "-ntg", str(generate), "-npl", str(batch), "-fa", "on" if flash else "off",
                        *(["-pps"] if shared else []), "--output-format", "jsonl"])
    return rows[-1]["speed_tg"]
