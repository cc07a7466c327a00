#!/usr/bin/env python3
"""What users feel of a running server, measured from outside and printed as one table.

    tests/.venv/bin/python tests/bench/serving.py [--url http://127.0.0.1:8000] [prefix] [streams]

prefix   32 requests that share a system prompt of about 1,500 tokens and differ in the question,
         one after the other: time to first token of the first against the median of the rest,
         and the prompt tokens that came from the prefix cache.
streams  64 concurrent streams of 256 to 1,024 tokens: does any wait for another to finish, how much
         of the KV pages in use is waste, and what is in use after the last has ended.

Absolute figures depend on the machine and on what else it does: compare by ratio, in one run.
"""

import argparse
import asyncio
import json
import random
import statistics
import time

import httpx

QUESTIONS = [f"{verb} rule {n} in one sentence." for n in range(1, 9)
             for verb in ("Repeat", "Explain", "Question", "Shorten")]


def system_prompt(nonce):
    """About 1,500 tokens; the nonce at its head makes the first request a cold one."""
    nouns = ("reply", "table", "source", "number", "name", "date", "unit", "list", "quote", "warning")
    verbs = ("check", "state", "shorten", "repeat", "sort", "explain", "translate", "round")
    rules = [f"Rule {i}: always {verbs[i % 8]} the {nouns[i % 10]} before you {verbs[(i + 3) % 8]} "
             f"the {nouns[(i * 7 + 2) % 10]}." for i in range(1, 98)]
    return f"[{nonce:08x}] You are an assistant that follows rules. " + " ".join(rules)


async def stream(client, body):
    """One streamed chat: (seconds to first token, seconds to the end, usage, arrival times)."""
    start = time.perf_counter()
    times, usage = [], None
    body = dict(body, stream=True, stream_options={"include_usage": True})
    async with client.stream("POST", "/v1/chat/completions", json=body) as reply:
        if reply.status_code != 200:
            raise RuntimeError(f"HTTP {reply.status_code}: {(await reply.aread())[:300]!r}")
        async for line in reply.aiter_lines():
            if not line.startswith("data: ") or line == "data: [DONE]":
                continue
            event = json.loads(line[6:])
            if "error" in event:
                raise RuntimeError(event["error"])
            usage = event.get("usage") or usage
            if any(choice["delta"].get("content") for choice in event["choices"]):
                times.append(time.perf_counter() - start)
    return times[0], times[-1], usage, times


async def metrics(client):
    """The samples of /metrics, by name with labels."""
    text = (await client.get("/metrics")).text
    return {line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1])
            for line in text.splitlines() if line and not line.startswith("#")}


def sample(values, name):
    """The value of the series whose name and labels contain `name`."""
    return next(value for key, value in values.items() if name in key)


async def prefix(client, args):
    system = system_prompt(random.getrandbits(32))
    firsts, cached, prompts = [], [], []
    for question in QUESTIONS:
        first, _, usage, _ = await stream(client, {
            "messages": [{"role": "system", "content": system}, {"role": "user", "content": question}],
            "max_tokens": 8, "temperature": 0})
        firsts.append(first)
        prompts.append(usage["prompt_tokens"])
        cached.append(usage["prompt_tokens_details"]["cached_tokens"])
    warm = statistics.median(firsts[1:])
    print(f"shared system prompt, {len(QUESTIONS)} requests of {prompts[0]} prompt tokens")
    print(f"  time to first token   cold {firsts[0] * 1e3:8.1f} ms   warm (median) {warm * 1e3:8.1f} ms   "
          f"ratio {firsts[0] / warm:.1f}")
    print(f"  cached tokens         cold {cached[0]:8d}      warm (least) {min(cached[1:]):9d}")


async def streams(client, args):
    rnd = random.Random(7)
    lengths = [rnd.randint(256, 1024) for _ in range(64)]
    waste, started = [], time.perf_counter()

    async def one(i, n):
        return await stream(client, {
            "messages": [{"role": "user", "content": f"({i}) Tell a long story about the number {i * 37}."}],
            "max_tokens": n, "ignore_eos": True, "temperature": 0.8, "seed": i})

    async def watch():
        while True:
            values = await metrics(client)
            if sample(values, "vllm:num_requests_running") >= 60:
                waste.append(sample(values, "tokend:kv_waste_ratio"))
            await asyncio.sleep(0.5)

    watcher = asyncio.create_task(watch())
    results = await asyncio.gather(*(one(i, n) for i, n in enumerate(lengths)))
    wall = time.perf_counter() - started
    watcher.cancel()
    values = await metrics(client)
    tokens = sum(r[2]["completion_tokens"] for r in results)
    last_first, first_end = max(r[0] for r in results), min(r[1] for r in results)
    gaps = sorted(b - a for r in results for a, b in zip(r[3], r[3][1:]))
    print(f"64 concurrent streams of {min(lengths)} to {max(lengths)} tokens")
    print(f"  output                {tokens} tokens in {wall:.1f} s: {tokens / wall:.0f} tokens/s")
    print(f"  last stream's first token after {last_first:.2f} s, first stream's end after {first_end:.2f} s: "
          + ("none waited for another" if last_first < first_end else "SOME WAITED"))
    print(f"  between tokens        median {gaps[len(gaps) // 2] * 1e3:.1f} ms, "
          f"99 % {gaps[len(gaps) * 99 // 100] * 1e3:.1f} ms, max {gaps[-1] * 1e3:.1f} ms")
    if waste:
        print(f"  KV waste while 60 and more ran: median {statistics.median(waste) * 100:.2f} %, "
              f"last {waste[-1] * 100:.2f} %")
    print(f"  pages in use at the end: {sample(values, 'in_use'):.0f}")


async def main():
    scenarios = {"prefix": prefix, "streams": streams}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", default="http://127.0.0.1:8000")
    parser.add_argument("scenario", nargs="*", choices=[[], *scenarios], default=list(scenarios))
    args = parser.parse_args()
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(base_url=args.url, timeout=None, limits=limits) as client:
        await stream(client, {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4})
        for name in args.scenario or scenarios:
            await scenarios[name](client, args)


if __name__ == "__main__":
    asyncio.run(main())
