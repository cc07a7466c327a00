#!/usr/bin/env python3
"""tokend and a peer's programs side by side on one machine: same files, threads and prompts, a
sample of one and then of the other, again and again; one table of ratios with their spread.

    tests/bench/peers.py --model FILE [--model FILE ...] [--threads 2] [--only prefill,decode]
        [--llama-bench PATH] [--llama-batched-bench PATH] [--llama-server PATH]
        [--full] [--repeat N] [--json FILE] [--svg FILE]

The peer is optional, program by program: without one, our side alone is measured. Groups:

prefill  prompts of 128, 512 and 2,048 tokens; the peer with flash attention off and on, of which
         the better counts (also in decode, batch and shared)
decode   one sequence, after 0, 512 and 2,048 tokens
batch    1 to 32 sequences together, all tokens a second
neighbour  decode of one sequence, alone and beside a process that keeps one core busy
shared   32 sequences after 1,500 tokens that they have in common
start    from the start of the server to the first 200 of /health, memory then
http     wrk -t2 -c64 on /health and /v1/models
stream   streamed chats by 1, 4 and 16 clients: rate, first token, gaps
prefix   chats with one system prompt of about 1,500 tokens, cold and warm
memory   resident memory and threads of the servers in stream and prefix, and after

The share of a limit is that of the memory's read bandwidth (decode: weights and f16 KV read once a
token) or of the int8, bf16 or FMA peak (prefill), both measured in the run by tests/bench/limits.c.
Python's standard library is all it needs. Exit status 1: something failed; the rest was measured.
"""
import argparse
import asyncio
import contextlib
import json
import os
import signal
import statistics
import sys
import time
import urllib.request

import engine_speed
import gguf_cost
import load_client
import machine
import peers_report
import peers_svg
import servers

GROUPS = ("prefill", "decode", "batch", "neighbour", "shared", "start", "http", "stream", "prefix", "memory")
BUSY_SHARE, BUSY_LOAD = 0.1, 0.5  # of all cores

# How much of each group is measured.
PRESETS = {
    "tiny": {"repeat": 1, "server_repeat": 1, "prompts": (16,), "depths": (0,), "generate": 4,
             "batches": (2,), "shared": (2, 64), "wrk": 1, "clients": ((1, 1),), "tokens": 4,
             "prefix": (2, 2), "idle": 0.2, "limit_ms": 2},
    "quick": {"repeat": 3, "server_repeat": 1, "prompts": (128, 512), "depths": (0, 512), "generate": 32,
              "batches": (1, 4, 16), "shared": (), "wrk": 3, "clients": ((1, 4), (4, 8), (16, 16)),
              "tokens": 32, "prefix": (8, 8), "idle": 3, "limit_ms": 30},
    "full": {"repeat": 5, "server_repeat": 3, "prompts": (128, 512, 2048), "depths": (0, 512, 2048),
             "generate": 64, "batches": (1, 4, 16, 32), "shared": (32, 1500), "wrk": 8,
             "clients": ((1, 16), (4, 32), (16, 64)), "tokens": 64, "prefix": (32, 16), "idle": 10,
             "limit_ms": 100},
}


def progress(text):
    print(f"[{time.strftime('%H:%M:%S')} load {machine.load()}] {text}", file=sys.stderr, flush=True)


class Run:
    """What was asked for and what was found so far."""

    def __init__(self, args):
        self.args, self.rows, self.errors, self.model, self.cost = args, [], [], None, None
        self.size = dict(PRESETS[args.preset])
        if args.repeat:
            self.size["repeat"] = self.size["server_repeat"] = args.repeat
        self.neighbours = machine.Neighbours()
        self.about = {"program": "tests/bench/peers.py", "preset": args.preset,
                      "date": time.strftime("%Y-%m-%d %H:%M"), "threads": args.threads,
                      "repeat": self.size["repeat"], "server_repeat": self.size["server_repeat"],
                      "programs": {os.path.basename(path): machine.version(path) for path in self.programs()},
                      "cpu": machine.cpu(), "memory_bytes": machine.memory_bytes(),
                      "load_before": machine.load(), "load_after": machine.load(), "neighbours": 0.0,
                      "limits": [], "warnings": [], "busy": False}

    def programs(self):
        a = self.args
        return [p for p in (a.tokend, a.llama_bench, a.llama_batched_bench, a.llama_server) if p]

    def warn(self, text):
        self.about["warnings"].append(text)
        progress(f"WARNING: {text}")

    def fail(self, what, error):
        self.errors.append(f"{what}: {error}")
        progress(f"FAILED: {what}: {error}")

    def check_idle(self, share, when):
        if share > BUSY_SHARE:
            self.about["busy"] = True
            self.warn(f"other programs used {peers_report.percent(share)} of the machine {when}: "
                      "trust no figure, and ratios only with a narrow spread")

    def row(self, group, title, unit, **more):
        row = peers_report.Row(os.path.basename(self.model), group, title, unit, **more)
        self.rows.append(row)
        return row

    def start(self):
        cores = self.about["cpu"]["cores"]
        self.check_idle(machine.busy_now(), "before it began")
        if self.about["load_before"] > BUSY_LOAD * cores:
            self.warn(f"load average {self.about['load_before']} on {cores} cores before it began")
        if self.args.threads > cores:
            self.warn(f"{self.args.threads} threads on {cores} cores")
        try:
            progress("limits of the machine")
            self.about["limits"] = machine.limits(self.args.limits, self.args.threads, self.size["limit_ms"])
        except (OSError, ValueError, machine.subprocess.SubprocessError) as e:
            self.fail("limits", e)

    def write(self):
        """Also after each group, so that nothing is lost when a long run is cut."""
        self.rows = [r for r in self.rows if r.ours or r.peer]
        self.about["load_after"] = machine.load()
        self.about["neighbours"] = self.neighbours.share()
        if self.args.json:
            peers_report.write_json(self.args.json, self.about, self.rows, self.errors)
        if self.args.svg:
            with open(self.args.svg, "w", encoding="utf-8") as f:
                f.write(peers_svg.draw(self.about, self.rows))


# --- without a server ---

def take_turns(run, row, ours, theirs):
    """`theirs(flash)` is measured with both settings and the better one is kept; None: no peer."""
    peer = ([], [])
    for i in range(run.size["repeat"]):
        progress(f"{row.model}: {row.group}: {row.title} ({i + 1} of {run.size['repeat']})")
        row.load.append(machine.load())
        row.ours.append(ours())
        for flash in (0, 1) if theirs else ():
            peer[flash].append(theirs(flash))
    if theirs:
        best = max((0, 1), key=lambda flash: statistics.median(peer[flash]))
        row.peer = peer[best]
        row.note = "; ".join(filter(None, (row.note, f"peer: flash attention {('off', 'on')[best]}")))


def limited_by(run, what, work):
    """The limit of a row in tokens a second, where `work` is bytes or operations a token."""
    limit = machine.best_limit(run.about["limits"], what)
    return (f"{limit['best']:.0f} {limit['unit']} {limit['set']}", limit["best"] * 1e9 / work) if limit else None


def prefill_limit(run, n):
    if not run.cost:
        return None
    ops = run.cost.prefill_ops(n) / n
    if run.cost.is_bf16 and machine.best_limit(run.about["limits"], "bf16"):
        return limited_by(run, "bf16", ops)
    return limited_by(run, "fma" if run.cost.is_float else "int8", ops)


def prefill(run):
    a = run.args
    for n in run.size["prompts"]:
        row = run.row("prefill", f"prompt of {n:,} tokens", "tokens/s", limit=prefill_limit(run, n))
        take_turns(run, row, lambda n=n: engine_speed.tokend(a.tokend, run.model, a.threads, prompt=n),
                   a.llama_bench and (lambda flash, n=n: engine_speed.llama_bench(
                       a.llama_bench, run.model, a.threads, flash, prompt=n)))
        add16_note(run, row, n)


def add16_note(run, row, n):
    """With more than one int8 limit, the share of what AVX2 without VNNI allows as well."""
    sets = [m for m in run.about["limits"] if m["set"] == "avx2 maddubs+add16"]
    if sets and run.cost and not run.cost.is_float and row.ours:
        share = statistics.median(row.ours) * run.cost.prefill_ops(n) / n / (sets[0]["best"] * 1e9)
        row.note = "; ".join(filter(None, (f"{peers_report.percent(share)} of avx2 maddubs+add16", row.note)))


def decode(run):
    a, n = run.args, run.size["generate"]
    for depth in run.size["depths"]:
        limit = limited_by(run, "read", run.cost.decode_bytes(depth + n / 2)) if run.cost else None
        row = run.row("decode", f"after {depth:,} tokens", "tokens/s", limit=limit)
        take_turns(run, row, lambda d=depth: engine_speed.tokend(
            a.tokend, run.model, a.threads, generate=n, depth=d),
            a.llama_bench and (lambda flash, d=depth: engine_speed.llama_bench(
                a.llama_bench, run.model, a.threads, flash, generate=n, depth=d)))


def batched(run, group, title, batch, depth, shared):
    a, n = run.args, run.size["generate"]
    row = run.row(group, title, "tokens/s")
    take_turns(run, row, lambda: engine_speed.tokend(
        a.tokend, run.model, a.threads, generate=n, batch=batch, depth=depth, shared=shared),
        a.llama_batched_bench and (lambda flash: engine_speed.llama_batched_bench(
            a.llama_batched_bench, run.model, a.threads, flash, n, batch, max(depth, 1), shared)))


def batch(run):
    for k in run.size["batches"]:
        batched(run, "batch", f"{k} sequences", k, 0, False)


def neighbour(run):
    a, n = run.args, run.size["generate"]
    rows = [run.row("neighbour", f"decode {where}", "tokens/s") for where in ("alone", "beside a busy process")]
    for row in rows:
        with machine.busy_core() if row is rows[1] else contextlib.nullcontext():
            take_turns(run, row, lambda: engine_speed.tokend(a.tokend, run.model, a.threads, generate=n),
                       a.llama_bench and (lambda flash: engine_speed.llama_bench(
                           a.llama_bench, run.model, a.threads, flash, generate=n)))
    kept = [statistics.median(there) / statistics.median(alone)
            for alone, there in ((rows[0].ours, rows[1].ours), (rows[0].peer, rows[1].peer)) if alone and there]
    rows[1].note = "; ".join(filter(None, (rows[1].note, "kept: " + " : ".join(map(peers_report.percent, kept)))))


def shared(run):
    if run.size["shared"]:
        k, depth = run.size["shared"]
        batched(run, "shared", f"{k} sequences after {depth:,} common tokens", k, depth, True)


# --- servers ---

class Pair:
    """Our server and the peer's (or ours alone), both up; they are loaded in turns."""

    def __init__(self, run):
        self.run, self.up = run, []

    def commands(self):
        a = self.run.args
        yield "tokend", a.tokend, servers.tokend_command
        if a.llama_server:
            yield "peer", a.llama_server, servers.llama_command

    def open_one(self, name, program, command):
        port = servers.free_port()
        words = command(program, self.run.model, self.run.args.threads, port)
        if name == "peer":
            words += self.run.args.llama_server_args.split()
        return servers.Server(name, words, port)

    def __enter__(self):
        try:
            for words in self.commands():
                self.up.append(self.open_one(*words))
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for server in self.up:
            server.stop()


def put(row, server, value):
    (row.ours if server.name == "tokend" else row.peer).append(value)


def start(run):
    """Each server alone, in turns, and stopped again."""
    seconds = run.row("start", "start to healthy", "s", less=True)
    memory = run.row("start", "resident memory after loading", "MiB", less=True)
    pair = Pair(run)
    for i in range(run.size["repeat"]):
        progress(f"{seconds.model}: start ({i + 1} of {run.size['repeat']})")
        seconds.load.append(machine.load())
        for words in pair.commands():
            server = pair.open_one(*words)
            try:
                put(seconds, server, server.start_seconds)
                put(memory, server, server.status()[0])
            finally:
                server.stop()


def http(run, pair):
    if not servers.have_wrk():
        raise RuntimeError("wrk is not installed")
    for path in ("/health", "/v1/models"):
        row = run.row("http", f"wrk -t2 -c64 {path}", "requests/s")
        for _ in range(run.size["server_repeat"]):
            progress(f"{row.model}: {row.title}")
            row.load.append(machine.load())
            for server in pair.up:
                put(row, server, servers.wrk(server.url + path, run.size["wrk"]))


def make_client(server, api, tokens):
    with urllib.request.urlopen(server.url + "/v1/models", timeout=30) as reply:
        model = json.load(reply)["data"][0]["id"]
    return load_client.Client(server.port, model, api, tokens)


def choose_api(run, pair):
    """Chats, or plain completions where a model has no chat template; and a first warm request."""
    if run.args.api != "auto":
        return run.args.api
    for api in ("chat", "text"):
        try:
            for server in pair.up:
                asyncio.run(make_client(server, api, 4).ask(*load_client.stream_jobs(1)[0]))
            return api
        except RuntimeError as e:
            if api == "text":
                raise
            progress(f"no chats, completions instead: {e}")
    return None


STREAM_ROWS = (("rate", "output", "tokens/s", False), ("first", "time to first token, median", "ms", True),
               ("gap", "between tokens, median", "ms", True), ("longest_gap", "longest gap", "ms", True))
PREFIX_ROWS = (("wall", "wall", "s", True), ("first", "time to first token, median", "ms", True))


def put_summary(rows, server, summary):
    for key, row in rows.items():
        if summary[key] is not None:
            put(row, server, summary[key])


def stream(run, pair, api, watches):
    for clients, n in run.size["clients"]:
        who = "1 client" if clients == 1 else f"{clients} clients"
        rows = {key: run.row("stream", f"{who}: {title}", unit, less=less) for key, title, unit, less in STREAM_ROWS}
        for _ in range(run.size["server_repeat"]):
            rows["rate"].load.append(machine.load())
            for server in pair.up:
                progress(f"{os.path.basename(run.model)}: stream, {who}, {server.name}")
                client = make_client(server, api, run.size["tokens"])
                work = client.ask_all(load_client.stream_jobs(n), clients)
                summary = load_client.summary(*asyncio.run(watches[server.name].during(server, work)))
                put_summary(rows, server, summary)
            rows["rate"].note = f"{n} requests of {summary['prompt_tokens']:.0f} + {run.size['tokens']} tokens"


def prefix(run, pair, api, watches):
    n, clients = run.size["prefix"]
    rows = {heat: {key: run.row("prefix", f"{heat}: {title}", unit, less=less)
                   for key, title, unit, less in PREFIX_ROWS} for heat in ("cold", "warm")}
    for _ in range(run.size["server_repeat"]):
        notes = {"cold": [], "warm": []}
        rows["cold"]["wall"].load.append(machine.load())
        for server in pair.up:
            client = make_client(server, api, run.size["tokens"])
            for heat, jobs in zip(rows, load_client.prefix_jobs(n)):
                progress(f"{os.path.basename(run.model)}: prefix, {heat}, {server.name}")
                work = client.ask_all(jobs, clients)
                summary = load_client.summary(*asyncio.run(watches[server.name].during(server, work)))
                put_summary(rows[heat], server, summary)
                notes[heat].append(f"{summary['cached_tokens']:,}")
        for heat in rows:
            rows[heat]["wall"].note = (f"{n} requests of {summary['prompt_tokens']:.0f} tokens, {clients} clients; "
                                       f"from the cache: {' : '.join(notes[heat])}")


def memory(run, pair, loaded, watches):
    idle = [(server, *server.status()) for server in pair.up if not time.sleep(run.size["idle"])]
    for title, unit, values in (
            ("resident before the load", "MiB", [loaded[s.name][0] for s in pair.up]),
            ("resident, most during the load", "MiB", [watches[s.name].peak for s in pair.up]),
            ("resident at its end", "MiB", [watches[s.name].end for s in pair.up]),
            (f"resident, idle for {run.size['idle']} s and more", "MiB", [i[1] for i in idle]),
            ("threads, most during the load", "threads", [watches[s.name].threads for s in pair.up]),
            ("threads, idle", "threads", [i[2] for i in idle])):
        row = run.row("memory", title, unit, less=True)
        for server, value in zip(pair.up, values):
            put(row, server, value)


def with_servers(run, wanted):
    with Pair(run) as pair:
        loaded = {server.name: server.status() for server in pair.up}
        watches = {server.name: servers.Watch() for server in pair.up}
        for server in pair.up:
            watches[server.name].look(server)
        if "http" in wanted:
            guarded(run, "http", lambda: http(run, pair))
        if {"stream", "prefix"} & wanted:
            api = choose_api(run, pair)
            for name, group in (("stream", stream), ("prefix", prefix)):
                if name in wanted:
                    guarded(run, name, lambda g=group: g(run, pair, api, watches))
        if "memory" in wanted:
            guarded(run, "memory", lambda: memory(run, pair, loaded, watches))


# --- all of it ---

def guarded(run, name, group):
    """A group that fails is told and leaves the others be."""
    try:
        group()
    except (RuntimeError, OSError, ValueError, KeyError, asyncio.IncompleteReadError,
            machine.subprocess.SubprocessError) as e:
        run.fail(f"{os.path.basename(run.model)}: {name}", e)
    run.write()


def measure_model(run, path, wanted):
    run.model, run.cost = path, None
    try:
        run.cost = gguf_cost.Cost(path)
    except (OSError, ValueError, KeyError, TypeError) as e:
        run.warn(f"no shares of limits: {e}")
    for name, group in (("prefill", prefill), ("decode", decode), ("batch", batch),
                        ("neighbour", neighbour), ("shared", shared),
                        ("start", start)):
        if name in wanted:
            guarded(run, name, lambda g=group: g(run))
    if wanted & {"http", "stream", "prefix", "memory"}:
        guarded(run, "servers", lambda: with_servers(run, wanted))


def parse():
    here = os.path.dirname(os.path.abspath(__file__))
    build = os.path.join(here, "..", "..", "build")
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--model", action="append", help="a GGUF file; again for more (TOKEND_MODEL)")
    p.add_argument("--tokend", default=os.path.normpath(os.path.join(build, "tokend")))
    p.add_argument("--limits", default=os.path.normpath(os.path.join(build, "tests", "machine_limits")))
    p.add_argument("--llama-bench", metavar="PATH")
    p.add_argument("--llama-batched-bench", metavar="PATH")
    p.add_argument("--llama-server", metavar="PATH")
    p.add_argument("--llama-server-args", default="", metavar="WORDS", help="more words for the peer's server")
    p.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    p.add_argument("--only", default=",".join(GROUPS), metavar="GROUPS", help="with commas: " + ",".join(GROUPS))
    p.add_argument("--full", dest="preset", action="store_const", const="full", default="quick",
                   help="everything, often: half an hour and more a model with a peer; else some minutes")
    p.add_argument("--tiny", dest="preset", action="store_const", const="tiny", help="seconds: does it run?")
    p.add_argument("--repeat", type=int, metavar="N", help="samples of each side")
    p.add_argument("--api", choices=("auto", "chat", "text"), default="auto")
    p.add_argument("--json", metavar="FILE")
    p.add_argument("--svg", metavar="FILE")
    args = p.parse_args()
    args.model = args.model or [m for m in [os.environ.get("TOKEND_MODEL")] if m]
    unknown = set(args.only.split(",")) - set(GROUPS)
    if unknown:
        p.error(f"--only: no group {', '.join(sorted(unknown))}; there are {', '.join(GROUPS)}")
    if not args.model:
        p.error("--model FILE is missing")
    if args.threads < 1 or (args.repeat is not None and args.repeat < 1):
        p.error("--threads and --repeat want at least 1")
    for path in [args.tokend, args.llama_bench, args.llama_batched_bench, args.llama_server, *args.model]:
        if path and not os.path.exists(path):
            p.error(f"{path}: no such file")
    return args


def interrupt(*_):
    raise KeyboardInterrupt


def main():
    args = parse()
    run = Run(args)
    signal.signal(signal.SIGTERM, interrupt)  # servers must not be left behind
    try:
        run.start()
        for path in args.model:
            measure_model(run, path, set(args.only.split(",")))
    except KeyboardInterrupt:
        run.errors.append("interrupted")
    run.write()
    run.check_idle(run.about["neighbours"], "during the run")
    run.write()
    print(peers_report.text(run.about, run.rows, run.errors))
    return 1 if run.errors or not run.rows else 0


if __name__ == "__main__":
    sys.exit(main())
