"""A tokend of a test's own: started on a free port, watched through its metrics, stopped; and
what tests of its API share."""
import json
import os
import re
import signal
import socket
import subprocess
import tempfile
import time

import httpx

PROGRAM = os.environ.get("TOKEND_PROGRAM", os.path.join(os.path.dirname(__file__), "../../build/tokend"))
MODEL = os.environ.get("TOKEND_MODEL", os.path.expanduser(
    "~/.cache/tokend/models/SmolLM2-135M-Instruct.Q4_1.gguf"))
EMULATED = False  # whether the tests run on an emulated device, which is slow (conftest.py)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Tokend:
    def __init__(self, *flags, model=None, key=None):
        model = model or MODEL
        flags = (*flags, "--api-key", key) if key else flags
        self.log = tempfile.NamedTemporaryFile(prefix="tokend-", suffix=".log", delete=False)
        self.process = subprocess.Popen([PROGRAM, "serve", model, "--port", str(free_port()), *flags],
                                        stdout=self.log, stderr=subprocess.STDOUT)
        self.host, self.port = self._wait_until_listening()
        self.url = f"http://{self.host}:{self.port}"
        self.http = httpx.Client(base_url=self.url, timeout=120, trust_env=False,
                                 headers={"Authorization": f"Bearer {key}"} if key else {})
        self.name = self.http.get("/v1/models").json()["data"][0]["id"]

    def output(self):
        with open(self.log.name, encoding="utf-8", errors="replace") as f:
            return f.read()

    def _wait_until_listening(self):
        end = time.monotonic() + 120
        while time.monotonic() < end:
            m = re.search(r"listening on http://([^:\s]+):(\d+)", self.output())
            if m:
                return m[1], int(m[2])
            assert self.process.poll() is None, self.output()
            time.sleep(0.02)
        raise AssertionError("not listening within 120 s:\n" + self.output())

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.http.close()
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.process.kill()
        self.process.wait()
        self.log.close()
        text = self.output()
        os.unlink(self.log.name)
        for sign in ("AddressSanitizer", "LeakSanitizer", "ThreadSanitizer", "runtime error:"):
            assert sign not in text, text[-4000:]

    def metrics(self):
        out = {}
        for line in self.http.get("/metrics").text.splitlines():
            if line and not line.startswith("#"):
                series, value = line.rsplit(" ", 1)
                out[series] = float(value)
        return out

    def metric(self, name, **labels):
        return sum(v for k, v in self.metrics().items() if k.split("{")[0] == name
                   and all(f'{a}="{b}"' in k for a, b in labels.items()))

    def until(self, test, seconds=20):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if test():
                return True
            time.sleep(0.02)
        return False

    def all_pages_are_back(self, seconds=20):
        return self.until(lambda: self.metric("tokend:pages", state="in_use") == 0
                          and self.metric("vllm:num_requests_running") == 0
                          and self.metric("vllm:num_requests_waiting") == 0, seconds)

    def socket(self):
        s = socket.create_connection((self.host, self.port), timeout=60)
        return s

    def request_bytes(self, path, body: bytes):
        return (f"POST {path} HTTP/1.1\r\nHost: {self.host}\r\nContent-Type: application/json\r\n"
                f"Content-Length: {len(body)}\r\n\r\n").encode() + body


def user(text):
    return [{"role": "user", "content": text}]


def events(text):
    """The JSON of each event; checks the form of every line."""
    out = []
    parts = text.split("\n\n")
    assert parts.pop() == ""
    assert parts.pop() == "data: [DONE]"
    for p in parts:
        assert p.startswith("data: {") and "\n" not in p
        out.append(json.loads(p[6:]))
    return out


def refused(r, status=400, param=None, code=None):
    assert r.status_code == status, r.text
    e = r.json()["error"]
    assert isinstance(e["message"], str) and e["message"]
    assert set(e) >= {"message", "type", "param", "code"}
    if param:
        assert e["param"] == param, e
    if code:
        assert e["code"] == code, e
    return e


def megabytes(server):
    with open(f"/proc/{server.process.pid}/statm") as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGESIZE") >> 20
