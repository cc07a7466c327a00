"""Streamed requests to an OpenAI-style server, many at once, with what a reader would feel. One
connection a request; the standard library only, so that the client costs little of the machine."""
import asyncio
import json
import random
import statistics
import time

QUESTIONS = [f"{verb} rule {n} in one sentence." for n in range(1, 9)
             for verb in ("Repeat", "Explain", "Question", "Shorten")]
NOUNS = ("reply", "table", "source", "number", "name", "date", "unit", "list", "quote", "warning")
VERBS = ("check", "state", "shorten", "repeat", "sort", "explain", "translate", "round")
TIMEOUT = 1800


def rules(n):
    """Text of about 14 n tokens."""
    return " ".join(f"Rule {i}: always {VERBS[i % 8]} the {NOUNS[i % 10]} before you {VERBS[(i + 3) % 8]} "
                    f"the {NOUNS[(i * 7 + 2) % 10]}." for i in range(1, n + 1))


def nonce():
    """At the head of a text: nothing before it can be found in a prefix cache."""
    return f"[{random.getrandbits(32):08x}]"


class Reply:
    """Times are of time.perf_counter(); a piece is an event that carries text."""

    def __init__(self):
        self.sent = time.perf_counter()
        self.pieces = []
        self.usage = {}

    @property
    def first(self):
        return self.pieces[0] - self.sent

    @property
    def gaps(self):
        return [b - a for a, b in zip(self.pieces, self.pieces[1:])]

    @property
    def tokens(self):
        return self.usage.get("completion_tokens") or len(self.pieces)

    def take(self, line):
        """A line of the event stream; true at its end."""
        if not line.startswith(b"data:"):
            return False
        text = line[5:].strip()
        if text == b"[DONE]":
            return True
        event = json.loads(text)
        if "error" in event:
            raise RuntimeError(str(event["error"])[:300])
        self.usage = event.get("usage") or self.usage
        for choice in event.get("choices") or []:
            if choice.get("text") or (choice.get("delta") or {}).get("content"):
                self.pieces.append(time.perf_counter())
        return False


async def _body_lines(reader, chunked):
    """The lines of a body, as soon as they are whole."""
    rest = b""
    while True:
        if chunked:
            size = int((await reader.readline()).split(b";")[0] or b"0", 16)
            part = await reader.readexactly(size) if size else b""
            await reader.readline()
        else:
            part = await reader.read(65536)
        if not part:
            break
        *lines, rest = (rest + part).split(b"\n")
        for line in lines:
            yield line
    if rest:
        yield rest


class Client:
    """`api`: "chat" (/v1/chat/completions), or "text" (/v1/completions) for models without template."""

    def __init__(self, port, model, api="chat", max_tokens=64):
        self.port, self.model, self.api, self.max_tokens = port, model, api, max_tokens

    def _request(self, system, question):
        body = {"model": self.model, "max_tokens": self.max_tokens, "temperature": 0, "ignore_eos": True,
                "stream": True, "stream_options": {"include_usage": True}}
        if self.api == "chat":
            path = "/v1/chat/completions"
            body["messages"] = [{"role": "system", "content": system}, {"role": "user", "content": question}]
        else:
            path = "/v1/completions"
            body["prompt"] = f"{system}\n{question}\n"
        data = json.dumps(body).encode()
        return (f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n"
                f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n").encode() + data

    async def ask(self, system, question):
        reply = Reply()
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, limit=1 << 20)
        try:
            writer.write(self._request(system, question))
            await writer.drain()
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            lines = _body_lines(reader, "transfer-encoding: chunked" in head.lower())
            if " 200 " not in head.split("\r\n")[0]:
                text = b" ".join([line async for line in lines])[:300]
                raise RuntimeError(f"{head.splitlines()[0]}: {text.decode('utf-8', 'replace')}")
            ended = False
            async for line in lines:
                ended = reply.take(line) or ended
            if not ended or not reply.pieces:
                raise RuntimeError("the stream ended early")
            return reply
        finally:
            writer.close()

    async def ask_all(self, jobs, clients):
        """The replies to (system, question) pairs, `clients` at a time, and the seconds it took."""
        jobs, replies = list(jobs), []

        async def worker():
            while jobs:
                replies.append(await asyncio.wait_for(self.ask(*jobs.pop(0)), TIMEOUT))

        start = time.perf_counter()
        await asyncio.gather(*(worker() for _ in range(clients)))
        return replies, time.perf_counter() - start


def stream_jobs(n, rules_each=12):
    """Chats of about 200 prompt tokens that share none of them."""
    return [(f"{nonce()} You are a helpful assistant.", f"{nonce()} {rules(rules_each)} Repeat rule {i % 9 + 1}.")
            for i in range(n)]


def prefix_jobs(n, rules_shared=98):
    """Two rounds of chats with one fresh system prompt of about 1,500 tokens."""
    system = f"{nonce()} You are an assistant that follows rules. {rules(rules_shared)}"
    ask = lambda i: (system, f"({i}) {QUESTIONS[i % len(QUESTIONS)]}")
    return [ask(i) for i in range(n)], [ask(n + i) for i in range(n)]


def summary(replies, wall):
    """Milliseconds but for `wall` and the rate."""
    gaps = [g for r in replies for g in r.gaps]
    return {"rate": sum(r.tokens for r in replies) / wall, "wall": wall,
            "first": 1e3 * statistics.median(r.first for r in replies),
            "gap": 1e3 * statistics.median(gaps) if gaps else None,
            "longest_gap": 1e3 * max(gaps) if gaps else None,
            "prompt_tokens": statistics.median(r.usage.get("prompt_tokens", 0) for r in replies),
            "cached_tokens": sum((r.usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
                                 for r in replies)}
