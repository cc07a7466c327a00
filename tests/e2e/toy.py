"""A server of a test's own, tests/http_toy.c, and what clients of it need.

TOKEND_HTTP_TOY names the program (default build/tests/http_toy). Every server is ended with
SIGTERM and must then exit with 0: each request's on_done came exactly once, and the sanitizers,
where it is built with them, found nothing.
"""
import contextlib
import json
import os
import re
import signal
import socket
import struct
import subprocess
import time

import pytest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TOY = os.environ.get("TOKEND_HTTP_TOY", os.path.join(ROOT, "build", "tests", "http_toy"))


class Server:
    def __init__(self, **options):
        args = [TOY] + [f"{k}={v}" for k, v in options.items()]
        self.process = subprocess.Popen(args, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.port = int(self.process.stdout.readline())

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        try:
            _, err = self.process.communicate(timeout=20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            _, err = self.process.communicate()
            pytest.fail("the server does not end: " + err)
        # requests that were lost or failed are told of, and many here are
        err = re.sub(r"^\S+ (?:info|warn) +[A-Z]+ /\S* \d+(?: \(not all was sent\))?, .*\n", "", err, flags=re.M)
        assert self.process.returncode == 0 and not err, err

    def connect(self, receive_buffer=0):
        s = socket.socket()
        if receive_buffer:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        s.settimeout(15)
        s.connect(("127.0.0.1", self.port))
        return s

    def raw(self, request):
        """Sends bytes and returns all that comes until the server closes."""
        with self.connect() as s:
            with contextlib.suppress(OSError):
                s.sendall(request)
            return read_all(s)

    def ask(self, path, method="GET", headers="", body=b"", version="1.1"):
        head = f"{method} {path} HTTP/{version}\r\nHost: a\r\n{headers}"
        if body:
            head += f"Content-Length: {len(body)}\r\n"
        return Reply(self.raw(head.encode() + b"Connection: close\r\n\r\n" + body))

    def counts(self):
        return self.ask("/counts").json()

    def wait(self, what, seconds=3):
        """Waits until what(counts) holds, and returns the counts."""
        end = time.monotonic() + seconds
        while True:
            c = self.counts()
            if what(c) or time.monotonic() > end:
                assert what(c), c
                return c
            time.sleep(0.01)


@contextlib.contextmanager
def serving(**options):
    server = Server(**options)
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture
def server():
    with serving() as s:
        yield s


def read_all(s):
    data = b""
    with contextlib.suppress(ConnectionError):
        while chunk := s.recv(65536):
            data += chunk
    return data


def read_until(s, end):
    data = b""
    while end not in data:
        chunk = s.recv(65536)
        assert chunk, data
        data += chunk
    return data


class Reply:
    def __init__(self, data):
        self.data = data
        head, _, self.body = data.partition(b"\r\n\r\n")
        lines = head.decode("latin-1").split("\r\n")
        self.status = int(lines[0].split()[1]) if lines[0] else 0
        self.headers = {k.lower(): v for k, v in (l.split(": ", 1) for l in lines[1:])}
        if self.headers.get("transfer-encoding") == "chunked":
            self.body = unchunk(self.body)

    def json(self):
        return json.loads(self.body)

    def error(self):
        assert self.headers["content-type"] == "application/json", self.data
        e = self.json()["error"]
        assert set(e) == {"message", "type", "param", "code"} and e["message"], e
        assert self.headers["x-request-id"]
        return e


def unchunk(data):
    out = b""
    while data:
        size, _, data = data.partition(b"\r\n")
        n = int(size, 16)
        if n == 0:
            assert data == b"\r\n", data
            return out
        out, data = out + data[:n], data[n + 2 :]
    raise AssertionError("the chunked body has no end")


def reset(s):
    s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    s.close()


def half_close_and_close(s):
    s.shutdown(socket.SHUT_WR)
    s.close()


LEAVE = {"close": socket.socket.close, "reset": reset, "half_close": half_close_and_close}
GET = b"GET %s HTTP/1.1\r\nHost: a\r\n\r\n"
HEAD = b"POST /v1/echo HTTP/1.1\r\nHost: a\r\n"
