"""Storms of bad clients against a server of its own, and whether they leave a trace.

    storms.py [--clients N] [--only NAME]     TOKEND_PROGRAM, TOKEND_MODEL as in tests/e2e

Three storms of N clients each (10,000): clients that leave, at every stage of a request; readers
that take their stream a byte at a time or not at all; requests that are wrong in every way. After
each no page may be in use, resident memory may have grown by 8 MB at most (a first, small storm
warms it up), and a greedy answer must be what it was. Prints one table; the exit status is 1 when
anything was wrong."""
import argparse
import asyncio
import collections
import json
import os
import random
import resource
import socket
import struct
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../e2e"))
from tokend import Tokend, user  # noqa: E402

FLAGS = ("--max-model-len", "512", "--max-num-seqs", "32", "--max-queue-len", "4096",
         "--kv-cache-memory", "256MiB")
MAX_GROWTH = 8  # MB
AT_ONCE = 400   # clients


# ---- one client ----

class Client:
    def __init__(self, server, window=None):
        self.s = socket.socket()
        self.s.setblocking(False)
        if window:
            self.s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, window)
        self.to = (server.host, server.port)
        self.loop = asyncio.get_running_loop()

    async def __aenter__(self):
        await self.loop.sock_connect(self.s, self.to)
        return self

    async def __aexit__(self, *_):
        self.s.close()

    async def send(self, data):
        await self.loop.sock_sendall(self.s, data)

    async def read(self, most=65536, seconds=120):
        return await asyncio.wait_for(self.loop.sock_recv(self.s, most), seconds)

    async def read_until(self, mark, seconds=120):
        got = b""
        while mark not in got:
            piece = await self.read(seconds=seconds)
            if not piece:
                break
            got += piece
        return got

    def reset(self):
        self.s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def request(path, body, *headers, method="POST", length=None):
    if not isinstance(body, bytes):
        body = json.dumps(body).encode()
    lines = [f"{method} {path} HTTP/1.1", "Host: storm", f"Content-Length: {len(body) if length is None else length}",
             *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def chat(i, **fields):
    return request("/v1/chat/completions", {
        "messages": user(f"Tell me about the number {i % 50}."), "temperature": 0, **fields})


# ---- clients that leave ----

async def leave(server, i):
    """Returns the stage at which it left."""
    how, stage = i % 3, i // 3 % 8
    stream = stage in (5, 6)
    whole = chat(i, stream=stream, max_tokens=40, ignore_eos=True)
    head = whole.index(b"\r\n\r\n")
    cut = {0: 0, 1: 9, 2: head - 5, 3: head + 30}.get(stage, len(whole))
    async with Client(server) as c:
        await c.send(whole[:cut])
        if stage == 5:
            await c.read_until(b"data: ")
        elif stage == 6:
            for _ in range(4):
                await c.read()
        elif stage == 7:
            await asyncio.sleep(random.random() * 0.3)
        if how == 1:
            c.reset()
        elif how == 2:  # half-closes, and waits until the server has closed
            c.s.shutdown(socket.SHUT_WR)
            while await c.read():
                pass
    return ("connected", "in the request line", "in the headers", "in the body", "at once",
            "at the first token", "in the stream", "in the wait")[stage]


# ---- slow readers ----

async def read_slowly(server, i):
    """Streams of some 60 KB: more than the kernel takes for so small a window. Each eighth goes on
    reading to the end, each other one leaves after a while."""
    kind = i % 8
    fields = dict(stream=True, max_tokens=24, ignore_eos=True, logprobs=True, top_logprobs=20)
    async with Client(server, window=2048) as c:
        await c.send(chat(i, **fields))
        if kind == 0:
            got = await c.read_until(b"0\r\n\r\n")
            return "read to the end" if b"[DONE]" in got else "cut"
        got = await c.read(1)
        end = time.monotonic() + 2 + random.random() * 2
        while got and kind < 5 and time.monotonic() < end:
            await asyncio.sleep(0.02)
            got = await c.read(1)
        await asyncio.sleep(max(0, end - time.monotonic()))
        if kind % 2:
            c.reset()
        return "a byte at a time" if kind < 5 else "took nothing"


# ---- wrong requests ----

def wrong_fields():
    for path, good in (("/v1/chat/completions", {"messages": user("a")}), ("/v1/completions", {"prompt": "a"})):
        for name, value in (
                ("max_tokens", -1), ("max_tokens", "5"), ("max_tokens", 1e30), ("max_tokens", 100000),
                ("temperature", 3), ("temperature", "hot"), ("top_p", -1), ("top_k", -2), ("min_p", 2), ("n", 0),
                ("n", 1000), ("n", [1]), ("stop", 5), ("stop", ["x"] * 100), ("seed", "s"),
                ("logit_bias", {"x": 1}), ("logit_bias", {"1": 1000}), ("logit_bias", []), ("stream", "yes"),
                ("presence_penalty", 9), ("frequency_penalty", {}), ("model", "another"), ("model", 7),
                ("stream_options", 3), ("logprobs", -5), ("stop_token_ids", [-1]), ("stop_token_ids", "1")):
            yield request(path, {**good, name: value})
    for value in ([], {}, None, 5, [[]], [5, "a"], [-1], [10**9], "word " * 3000, ["a"] * 5000):
        yield request("/v1/completions", {"prompt": value})
    for value in ([], {}, None, "a", [1], [{}], [{"role": 5, "content": "a"}],
                  [{"role": "user", "content": 5}], [{"role": "user", "content": [{"type": "image_url"}]}],
                  user("word " * 3000)):
        yield request("/v1/chat/completions", {"messages": value})


def wrong_json():
    for body in (b"", b"{", b'{"prompt":', b"[]", b"5", b"null", b'"a"', b"{'prompt':'a'}", b'{"prompt":"a",}',
                 b'{"prompt":"\xff"}', b'{"prompt":"\\ud800"}', b'{"prompt":NaN}', b'{"a":' * 5000, b"[" * 100000,
                 b'{"max_tokens":' + b"9" * 5000 + b"}", b'{"prompt":"a"} x', b"\0" * 100, os.urandom(2000)):
        for path in ("/v1/chat/completions", "/v1/completions", "/tokenize", "/detokenize", "/apply-template"):
            yield request(path, body)


def wrong_http():
    good = {"prompt": "a"}
    for method, path in (("GET", "/v1/completions"), ("PUT", "/v1/models"), ("DELETE", "/v1/models/x"),
                         ("POST", "/health"), ("POST", "/v1/chat/completion"), ("POST", "/v2/completions"),
                         ("GET", "/" + "x" * 2000), ("GET", "/v1/models/none"), ("BREW", "/coffee"),
                         ("GET", "/%00"), ("GET", "/../../etc/passwd")):
        yield request(path, good if method == "POST" else b"", method=method)
    head = b"POST /v1/completions HTTP/1.1\r\nHost: a\r\n"
    for rest in (b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
                 b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", b"Content-Length: -2\r\n\r\n",
                 b"Content-Length: 2x\r\n\r\n{}", b"Content-Length: 99999999999999999999\r\n\r\n",
                 b"Content-Length: 9999999999\r\n\r\n", b"Transfer-Encoding: gzip\r\n\r\n",
                 b"Transfer-Encoding: chunked\r\n\r\nxyz\r\n", b"Transfer-Encoding: chunked\r\n\r\n5\r\nabcdefgh\r\n",
                 b"Host: b\r\nContent-Length: 2\r\n\r\n{}", b"a b: c\r\nContent-Length: 2\r\n\r\n{}",
                 b"X: " + b"y" * 40000 + b"\r\n\r\n", b"X: " + b"y" * 90000 + b"\r\n\r\n"):
        yield head + rest
    yield b"POST /v1/completions HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}"
    yield b"GET /health HTTP/4.0\r\nHost: a\r\n\r\n"
    yield b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 not for you\r\n\r\n"


WRONG = [*wrong_fields(), *wrong_json(), *wrong_http()]


async def ask_wrongly(server, i):
    """Returns the status; whatever is no 4xx is told with the request."""
    data = WRONG[i % len(WRONG)]
    async with Client(server) as c:
        try:
            await c.send(data)
            c_got = await c.read_until(b"\r\n\r\n", seconds=30)
        except ConnectionError as e:
            return f"UNEXPECTED {type(e).__name__} for {data[:200]!r}"
        except TimeoutError:
            return f"UNEXPECTED silence for {data[:200]!r}"
        status = c_got[9:12].decode(errors="replace")
        return status if status.startswith("4") or status == "505" else f"UNEXPECTED {c_got[:80]!r} for {data[:200]!r}"


# ---- a storm ----

STORMS = {"clients that leave": leave, "slow readers": read_slowly, "wrong requests": ask_wrongly}


async def blow(server, one, n):
    """n clients, AT_ONCE at a time. What each of them says, counted."""
    told = collections.Counter()
    numbers = iter(range(n))

    async def worker():
        for i in numbers:
            try:
                told[await one(server, i)] += 1
            except (ConnectionError, TimeoutError) as e:
                told[f"UNEXPECTED {type(e).__name__} of client {i}"] += 1

    await asyncio.gather(*(worker() for _ in range(min(AT_ONCE, n))))
    return told


def answer(server):
    r = server.http.post("/v1/chat/completions", json={
        "messages": user("Write a sentence about the sea."), "max_tokens": 24, "temperature": 0, "logprobs": True})
    r.raise_for_status()
    return r.json()["choices"]


def kilobytes(server):
    with open(f"/proc/{server.process.pid}/statm", encoding="ascii") as f:
        return int(f.read().split()[1]) * resource.getpagesize() // 1024


def storm(server, name, n):
    """Runs one; a row of the table, and the list of what was wrong."""
    wrong, before, said = [], kilobytes(server), answer(server)
    start = time.monotonic()
    told = asyncio.run(blow(server, STORMS[name], n))
    seconds = time.monotonic() - start
    if not server.all_pages_are_back(60):
        wrong.append("pages stay in use")
    time.sleep(1.5)  # freed memory goes back to the system
    pages, after = server.metric("tokend:pages", state="in_use"), kilobytes(server)
    if after - before > MAX_GROWTH * 1024:
        wrong.append(f"resident memory grew by {(after - before) / 1024:.1f} MB, at most {MAX_GROWTH} are allowed")
    same = answer(server) == said
    if not same:
        wrong.append("another answer than before")
    wrong += [f"{k} ({v} times)" for k, v in told.items() if k.startswith("UNEXPECTED")]
    row = [name, f"{n}", f"{seconds:.0f}", f"{pages:.0f}", f"{before / 1024:.1f}", f"{after / 1024:.1f}",
           "yes" if same else "NO", ", ".join(f"{v} {k}" for k, v in sorted(told.items()) if k[0] != "U")]
    return row, wrong


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--clients", type=int, default=10000)
    p.add_argument("--only", choices=STORMS)
    options = p.parse_args()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    names = [options.only] if options.only else list(STORMS)
    bad = False
    with Tokend(*FLAGS) as server:
        for name in names:  # what the first of a kind takes is no growth
            storm(server, name, min(AT_ONCE, options.clients))
        print(f"| storm | clients | s | pages in use after | MB before | MB after | same answer | what they met |\n"
              f"| --- | ---: | ---: | ---: | ---: | ---: | --- | --- |", flush=True)
        for name in names:
            row, wrong = storm(server, name, options.clients)
            print("| " + " | ".join(row) + " |", flush=True)
            for w in wrong:
                print("WRONG:", name + ":", w, flush=True)
            bad |= bool(wrong)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
