"""Hostile and ordinary clients against tests/http_toy.c.

TOKEND_HTTP_TOY names the program (default build/tests/http_toy). Every server is ended with
SIGTERM and must then exit with 0: each request's on_done came exactly once, and the sanitizers,
where it is built with them, found nothing.
"""
import contextlib
import json
import os
import select
import signal
import socket
import struct
import subprocess
import threading
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
        assert self.process.returncode == 0 and not err, err

    def connect(self, receive_buffer=0):
        s = socket.socket()
        if receive_buffer:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        s.settimeout(4)
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


# ---- ordinary clients ----


def test_every_reply_has_an_id_and_the_cors_headers(server):
    for path in ["/static", "/v1/delay?ms=1", "/v1/stream?n=1", "/nowhere", "/v1/error"]:
        r = server.ask(path)
        assert r.headers["x-request-id"].startswith("req-") and len(r.headers["x-request-id"]) == 28
        assert r.headers["access-control-allow-origin"] == "*"
        assert "x-request-id" in r.headers["access-control-expose-headers"]
        assert "access-control-allow-credentials" not in r.headers


def test_a_sane_id_is_echoed_and_another_replaced(server):
    assert server.ask("/static", headers="X-Request-Id: my-id_7.x\r\n").headers["x-request-id"] == "my-id_7.x"
    for bad in ["a" * 129, 'q"q', "a b", "\x80", ""]:
        r = server.ask("/static", headers=f"X-Request-Id: {bad}\r\n")
        assert r.status == 200 and r.headers["x-request-id"].startswith("req-"), bad


def test_processing_time_is_told_on_whole_replies(server):
    assert int(server.ask("/v1/delay?ms=60").headers["openai-processing-ms"]) in range(50, 1000)


def test_event_streams_are_not_buffered_by_proxies(server):
    r = server.ask("/v1/stream?n=3&size=10")
    assert r.body == b"data: xx\n\n" * 3 + b"data: [DONE]\n\n"
    assert r.headers["cache-control"] == "no-cache" and r.headers["x-accel-buffering"] == "no"
    assert r.headers["content-type"] == "text/event-stream"


@pytest.mark.parametrize("path", ["/v1/stream?n=3", "/v1/stream?n=3&begin=1&ms=1", "/v1/stream/now?n=3"])
def test_streams_end_for_http_1_0_by_closing(server, path):
    for extra in [b"", b"Connection: keep-alive\r\n"]:
        data = server.raw(b"GET %s HTTP/1.0\r\n%s\r\n" % (path.encode(), extra))
        assert b"chunked" not in data and data.count(b"data: ") == 3 + (b"DONE" in data)


def test_a_path_is_served_with_and_without_v1(server):
    for path in ["/v1/echo", "/echo"]:
        assert server.ask(path, "POST", body=b"hi").body == b"hi"
    for path in ["/static", "/v1/static"]:
        assert server.ask(path).body == b"hello\n"


def test_handlers_see_path_query_and_headers(server):
    r = server.ask("/show?q=a%20b%2bc&x=1", headers="X-Show:  yes\r\n")
    assert r.body == b"/show|a b+c|yes"
    assert server.ask("/show?q").body == b"/show||-"
    assert server.ask("/show?q=a%00b").body == b"/show|a%00b|-"
    assert server.ask("/sho%77?q=%zz%4").body == b"/show|%zz%4|-"
    assert server.ask("/show%00").status == 404
    assert server.ask("http://a:80/show?q=1").body == b"/show|1|-"


def test_a_prefix_route_takes_every_path_below_it(server):
    for path in ["/v1/below/org/name?x=1", "/below/org%2Fname", "/below/%6Frg/nam%65"]:
        assert server.ask(path).body == b"org/name", path
    assert server.ask("/below/v1/x%00/").body == b"v1/x%00/"
    for exact in ["/v1/below/exact", "/below/exact"]:
        assert server.ask(exact).body == b"hello\n"
    for path in ["/v1/below/", "/below", "/v1/v1/below/x", "/belowx"]:
        assert server.ask(path).error()["code"] == "not_found", path
    assert server.ask("/below/x", "POST", body=b"x").headers["allow"] == "GET, HEAD, OPTIONS"


def test_pipelined_requests_are_answered_in_order(server):
    paths = [b"/v1/delay?ms=30", b"/v1/stream?n=2", b"/static", b"/v1/delay?ms=1", b"/v1/nope"]
    with server.connect() as s:
        s.sendall(b"".join(GET % p for p in paths) + b"POST /v1/echo HTTP/1.1\r\nHost: a\r\n"
                  b"Connection: close\r\nContent-Length: 4\r\n\r\nlast")
        data = read_all(s)
    assert data.count(b"HTTP/1.1 200") == 5 and data.count(b"HTTP/1.1 404") == 1
    order = [data.index(x) for x in [b"later\n", b"[DONE]", b"hello\n", b"no route"]]
    assert order == sorted(order) and data.endswith(b"last")


def test_a_connection_serves_many_requests(server):
    with server.connect() as s:
        for i in range(200):
            s.sendall(GET % (b"/static" if i % 2 else b"/v1/delay?ms=0"))
            read_until(s, b"hello\n" if i % 2 else b"later\n")
        for body in [b"x" * 10, b"y" * 300000]:
            s.sendall(b"POST /v1/echo HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
            read_until(s, body)
    assert server.counts()["begun"] == 102


def test_chunked_uploads_are_put_together(server):
    body = b"".join(b"%x;ext=1\r\n%s\r\n" % (n, b"z" * n) for n in [1, 70000, 3]) + b"0\r\nTrailer: x\r\n\r\n"
    data = server.raw(b"POST /v1/echo HTTP/1.1\r\nHost: a\r\nConnection: close\r\n"
                      b"Transfer-Encoding: Chunked\r\n\r\n" + body)
    assert Reply(data).body == b"z" * 70004


def test_expect_100_continue(server):
    with server.connect() as s:
        s.sendall(b"POST /v1/echo HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n")
        assert s.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        s.sendall(b"hello")
        assert read_until(s, b"hello").startswith(b"HTTP/1.1 200")


def test_expect_is_answered_by_the_refusal_where_there_is_one(server):
    for path, length, status in [("/v1/echo", 1 << 30, 413), ("/nope", 5, 404), ("/static", 5, 405)]:
        r = Reply(server.raw(f"POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n"
                             "Expect: 100-continue\r\n\r\n".encode()))
        assert r.status == status and r.headers["connection"] == "close"


def test_head_is_get_without_the_body(server):
    r = server.ask("/static", "HEAD")
    assert r.status == 200 and r.headers["content-length"] == "6" and r.body == b""
    assert server.ask("/v1/delay?ms=1", "HEAD").headers["content-length"] == "6"
    assert server.ask("/v1/stream?n=2", "HEAD").body == b""
    assert server.ask("/v1/echo", "HEAD").headers["allow"] == "POST, OPTIONS"


def test_big_whole_replies_arrive(server):
    for size in [0, 1, 100_000, 5_000_000]:
        assert server.ask(f"/v1/big?size={size}").body == b"b" * size


# ---- refusals ----


def test_unknown_paths_name_a_route_that_is_near(server):
    e = server.ask("/v1/ech").error()
    assert e["code"] == "not_found" and e["type"] == "invalid_request_error" and "/v1/echo" in e["message"]
    assert "/v1/delay" in server.ask("/dely").error()["message"]
    for far in ["/v1/embeddings", "/", "/x", "/favicon.ico"]:
        assert server.ask(far).error()["message"] == f"There is no route {far}."
    assert server.ask("/" + "a" * 20000).status == 404
    assert server.ask("/\xff\xfe").error()["message"]


def test_a_known_path_with_another_method_says_what_it_takes(server):
    for method, path, allow in [("GET", "/v1/echo", "POST, OPTIONS"), ("PUT", "/static", "GET, HEAD, OPTIONS"),
                                ("DELETE", "/v1/both", "GET, HEAD, POST, OPTIONS"), ("get", "/static", "GET, HEAD, OPTIONS")]:
        r = server.ask(path, method)
        assert (r.status, r.headers["allow"], r.error()["code"]) == (405, allow, "method_not_allowed")
    assert server.ask("/both", "POST", body=b"x").body == b"posted\n"


def test_a_refused_request_leaves_the_connection_usable(server):
    with server.connect() as s:
        s.sendall(b"POST /nope HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello" + GET % b"/nope")
        s.sendall(GET % b"/static")
        data = read_until(s, b"hello\n")
        assert data.count(b"404 Not Found") == 2 and b"close" not in data


def test_types_follow_the_status(server):
    for status, kind in [(400, "invalid_request_error"), (403, "permission_error"), (429, "rate_limit_error"),
                         (500, "server_error"), (503, "service_unavailable"), (422, "invalid_request_error"), (507, "server_error")]:
        r = server.ask(f"/v1/error?status={status}&retry=7")
        assert (r.status, r.error()["type"], r.headers["retry-after"]) == (status, kind, "7")
        assert (r.headers.get("x-should-retry") == "false") == (status == 500)
    assert server.ask("/v1/error").error() == {"message": "no", "type": "invalid_request_error", "param": "field", "code": "toy"}


def test_bad_utf8_in_a_message_is_replaced(server):
    e = server.ask("/v1/error?message=a%ff%c3%28%ed%a0%80%c3%a9%f0%9f%98%80%e2%82").error()
    assert e["message"] == "a\ufffd\ufffd(\ufffd\ufffd\ufffdé😀\ufffd\ufffd"


def test_preflight_needs_no_key():
    with serving(key="secret") as server:
        r = server.ask("/v1/echo", "OPTIONS", "Origin: http://x\r\nAccess-Control-Request-Headers: authorization, x-stainless-os\r\n")
        assert r.status == 204 and r.body == b"" and r.headers["access-control-allow-origin"] == "*"
        assert r.headers["access-control-allow-headers"] == "authorization, x-stainless-os"
        assert "POST" in r.headers["access-control-allow-methods"]


def test_the_key_guards_all_but_open_routes():
    with serving(key="secret") as server:
        assert server.ask("/static").status == 200
        for auth in ["", "Bearer", "Bearer ", "Bearer secre", "Bearer secrets", "Bearer secretsecret", "Basic secret", "Bearer Secret"]:
            r = server.ask("/v1/delay", headers=f"Authorization: {auth}\r\n" if auth else "")
            assert r.status == 401 and r.headers["www-authenticate"] == "Bearer", auth
            assert r.error()["code"] == "invalid_api_key" and r.error()["type"] == "authentication_error"
            assert ("This key is wrong" if auth else "A key is needed") in r.error()["message"]
        for auth in ["Bearer secret", "bearer  secret"]:
            assert server.ask("/delay?ms=1", headers=f"Authorization: {auth}\r\n").status == 200
        assert server.ask("/v1/echo", "POST", body=b"x" * 1_000_000).status == 401
        assert server.counts()["begun"] == 2


def test_bodies_over_the_limit_are_refused():
    with serving(body=100_000) as server:
        assert server.ask("/v1/echo", "POST", body=b"x" * 100_000).status == 200
        r = server.ask("/v1/echo", "POST", body=b"x" * 100_001)
        assert r.status == 413 and r.error()["code"] == "request_too_large"
        with server.connect() as s:  # one that sends all of it before it looks for an answer
            s.sendall(b"POST /v1/echo HTTP/1.1\r\nHost: a\r\nContent-Length: 20000000\r\n\r\n" + b"x" * 20_000_000)
            assert Reply(read_all(s)).status == 413
        start = time.monotonic()
        huge = Reply(server.raw(b"POST /v1/echo HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999\r\n\r\nx"))
        assert huge.status == 413 and time.monotonic() - start < 1
        for length in [b"184467440737095516160", b"-1", b"5x", b"", b"0x5", b"5, 5"]:
            data = server.raw(b"POST /v1/echo HTTP/1.1\r\nHost: a\r\nContent-Length: %s\r\n\r\n12345" % length)
            assert Reply(data).status in (400, 413), (length, data)
        assert server.counts()["begun"] == 1


@pytest.mark.parametrize("status, length", [(400, v) for v in [b"+5", b"5, 5", b"-1", b"0x1d", b"", b"5 ", b"2 9", b"5x", b"9" * 20 + b"x"]]
                         + [(413, v) for v in [b"18446744073709551616", b"9" * 20, b"9" * 3000]])
@pytest.mark.parametrize("before", [b"", GET % b"/static"])
def test_a_content_length_that_is_no_number_gets_one_refusal_and_the_close(server, status, length, before):
    refused = b"POST /v1/echo HTTP/1.1\r\nHost: a\r\nX-Request-Id: mine\r\nContent-Length: %s\r\n\r\nhello" % length
    with server.connect() as other, server.connect() as s:
        other.sendall(HEAD + b"Content-Length: 5\r\n")  # headers under way: not the one that is meant
        s.sendall(before)
        if before:
            read_until(s, b"hello\n")
        s.sendall(refused + SMUGGLED)
        data = read_all(s)
        assert data.count(b"HTTP/1.1 ") == data.count(b"Content-Length: ") == 1, data
        r = Reply(data)
        assert r.status == status and r.headers["connection"] == "close" and r.headers["x-request-id"] == "mine"
        assert r.error()["code"] == {400: "invalid_request", 413: "request_too_large"}[status]
        assert len(r.body) == int(r.headers["content-length"])
        other.sendall(b"\r\nhello")
        assert read_until(other, b"hello").startswith(b"HTTP/1.1 200")
    c = server.wait(lambda c: c["connections"] == 1)
    assert c["begun"] == 1


def test_bad_lengths_of_many_connections_at_once_are_each_refused(server):
    """Connections that libmicrohttpd answers and closes in the same turn are not asked again."""
    bad = [HEAD + b"Content-Length: 5x\r\n\r\n", HEAD + b"Content-Length: 5x\r\nX: " + b"y" * 70_000 + b"\r\n\r\n",
           HEAD + b"Content-Length: 5\r\n"]
    for _ in range(20):
        with contextlib.ExitStack() as stack:
            clients = [stack.enter_context(server.connect()) for _ in range(30)]
            for i, s in enumerate(clients):
                with contextlib.suppress(OSError):
                    s.sendall(bad[i % 3])
            for i, s in enumerate(clients):
                if i % 3 == 0:
                    r = Reply(read_all(s))
                    assert r.status == 400 and r.error()["code"] == "invalid_request"
                elif i % 3 == 2:
                    s.sendall(b"\r\nhello")
                    assert read_until(s, b"hello").startswith(b"HTTP/1.1 200")
    assert server.ask("/static").status == 200


def test_lengths_and_ids_that_come_in_pieces_are_refused_as_well(server):
    with server.connect() as s:
        for piece in [b"POST /v1/echo HTTP/1.1\r\n", b"Host: a\r\nContent-Length: +", b"5\r\n", b"X: y\r\n\r\n"]:
            s.sendall(piece)
            time.sleep(0.02)
        r = Reply(read_all(s))
    assert r.status == 400 and r.error()["code"] == "invalid_request"


def test_chunked_bodies_over_the_limit_are_cut_off():
    with serving(body=100_000) as server:
        chunk = b"8000\r\n" + b"c" * 0x8000 + b"\r\n"
        r = Reply(server.raw(b"POST /v1/echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk * 100))
        assert r.status == 413 and r.error()["code"] == "request_too_large"
        assert r.headers["connection"] == "close"
        assert server.counts()["begun"] == 0


HEAD = b"POST /v1/echo HTTP/1.1\r\nHost: a\r\n"
SMUGGLED = b"GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n"


@pytest.mark.parametrize("request_bytes", [
    HEAD + b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    HEAD + b"Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n",
    HEAD + b"Content-Length: 5\r\nContent-Length: 3\r\n\r\nhello",
    HEAD + b"Content-Length: 0\r\nContent-Length: 0\r\n\r\n",
    HEAD + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    HEAD + b"Transfer-Encoding: identity\r\n\r\n",
    HEAD + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    HEAD + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n",
    HEAD + b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
    HEAD + b"Content-Length : 5\r\n\r\nhello",
    HEAD + b"Transfer-Encoding: chunked\x00\r\n\r\n0\r\n\r\n",
    HEAD + b"Content-Length: 5\x00\r\n\r\nhello",
    HEAD + b"Content-Length: 5\x00, 7\r\nX: y\r\n\r\nhello",
    HEAD + b"X: a\x00b\r\n\r\n",
    HEAD + b"X: a\x00\x00\x00b\r\nY: z\r\n\r\n",
    HEAD + b"X\x00: a\r\n\r\n",
    HEAD + b"X: a\r\n b\r\n\r\n",
    HEAD + b"X: a\r\n\tb\r\nContent-Length: 0\r\n\r\n",
    HEAD + b"X: a\rContent-Length: 5\r\n\r\nhello",
    HEAD + b"X: \x01\r\n\r\n",
    HEAD + b"X y: z\r\n\r\n",
    HEAD + b": z\r\n\r\n",
    HEAD + b"no colon\r\n\r\n",
    HEAD + b"Host: b\r\n\r\n",
    b"POST /v1/echo HTTP/1.1\r\n\r\n",
    b"POST /v1/echo HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    b"GARBAGE\r\n\r\n", b"GET\r\n\r\n", b"GET /static\r\n\r\n", b"GET /static HTTP/1.1x\r\n\r\n",
    b"GET /static HTTP/1\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", b" / HTTP/1.1\r\nHost: a\r\n\r\n",
])
def test_broken_and_smuggling_requests_are_refused_and_closed(server, request_bytes):
    data = server.raw(request_bytes + SMUGGLED)
    assert data.count(b"HTTP/1.1 ") <= 1 and b"smuggled" not in data, data
    assert data == b"" or data.startswith(b"HTTP/1.1 400 "), data
    if request_bytes.startswith(HEAD) and b"no colon" not in request_bytes and b"X\x00" not in request_bytes:
        assert Reply(data).error()["code"] == "invalid_request"
    assert server.counts()["begun"] == 0


def test_broken_chunks_are_refused(server):
    for body in [b"ZZ\r\nabc", b"5\r\nhelloX\r\n0\r\n\r\n", b"-1\r\n", b"\r\n", b"fffffffffffffffffffff\r\n"]:
        data = server.raw(HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + body + SMUGGLED)
        assert b"smuggled" not in data and b" 200 " not in data, (body, data)
    assert server.counts()["begun"] == 0


def test_other_versions_are_refused(server):
    for version in [b"2.0", b"0.9", b"3.1"]:
        assert server.raw(b"GET /static HTTP/%s\r\nHost: a\r\n\r\n" % version).startswith(b"HTTP/1.1 505")


def test_headers_too_large(server):
    for n, ours in [(20_000, 200), (33_000, 431), (40_000, 431), (60_000, None), (500_000, None)]:
        data = server.raw(b"GET /static HTTP/1.1\r\nHost: a\r\nConnection: close\r\nX: " + b"a" * n + b"\r\n\r\n")
        assert Reply(data).status == (ours or 431), n
        if ours == 431:
            assert Reply(data).error()["code"] == "headers_too_large"
    many = b"".join(b"X-%d: y\r\n" % i for i in range(20000))
    assert server.raw(b"GET /static HTTP/1.1\r\nHost: a\r\n" + many + b"\r\n")[:12] in (b"HTTP/1.1 431", b"")
    assert server.raw(b"GET /" + b"a" * 300_000 + b" HTTP/1.1\r\nHost: a\r\n\r\n")[9:12] in (b"414", b"431")


def test_random_bytes_do_no_harm(server):
    import random
    rng = random.Random(5)
    parts = [b"GET ", b"POST ", b"/static", b"/v1/echo", b" HTTP/1.1", b"\r\n", b"\n", b"\x00", b": ", b"Host", b"Content-Length",
             b"Transfer-Encoding", b"chunked", b"5", b"a" * 50, b"\xff", b" ", b"\t", b"?q=%", b"Cookie: a=\"b", b"Expect: 100-continue"]
    for _ in range(5):
        clients = [server.connect() for _ in range(80)]
        for s in clients:
            s.sendall(b"".join(rng.choice(parts) for _ in range(rng.randrange(1, 40))))
            s.shutdown(socket.SHUT_WR)
        for s in clients:
            read_all(s)
            s.close()
    server.wait(lambda c: c["done"] == c["begun"])


# ---- deadlines and limits ----


def drip(s, data, every=0.02):
    """Sends byte by byte until there is a reply; returns the seconds it took, and the reply."""
    start = time.monotonic()
    for b in data:
        s.sendall(bytes([b]))
        if select.select([s], [], [], every)[0]:
            break
    return time.monotonic() - start, read_all(s)


@pytest.mark.parametrize("before", [b"", GET % b"/static"])
def test_dripped_headers_are_cut(server, before):
    with server.connect() as s:
        if before:
            s.sendall(before)
            read_until(s, b"hello\n")
        seconds, data = drip(s, b"GET /static HTTP/1.1\r\nHost: a\r\nX: " + b"a" * 200)
        assert 0.3 < seconds < 1.5 and Reply(data).status == 408, (seconds, data)
        assert Reply(data).error()["code"] == "request_timeout"


def test_headers_that_stop_are_cut_and_idle_connections_are_not(server):
    idle = [server.connect() for _ in range(3)]
    idle[0].sendall(GET % b"/static")
    read_until(idle[0], b"hello\n")
    with server.connect() as s:
        s.sendall(b"GET /sta")
        start = time.monotonic()
        assert Reply(read_all(s)).status == 408 and time.monotonic() - start < 1
    time.sleep(0.9)
    for s in idle:
        s.sendall(GET % b"/static")
        read_until(s, b"hello\n")
        s.close()


def test_dripped_bodies_are_cut(server):
    for framing, data in [(b"Content-Length: 1000", b"a" * 500), (b"Transfer-Encoding: chunked", b"1\r\na\r\n" * 100)]:
        with server.connect() as s:
            s.sendall(HEAD + framing + b"\r\n\r\n")
            seconds, reply = drip(s, data)
            assert 0.3 < seconds < 1.5 and Reply(reply).status == 408
    with server.connect() as s:
        s.sendall(HEAD + b"Content-Length: 1000\r\n\r\nabc")
        assert Reply(read_all(s)).status == 408
    c = server.wait(lambda c: c["connections"] == 1)
    assert c["begun"] == 0


def test_a_client_that_goes_on_dripping_after_its_408_is_reset(server):
    with server.connect() as s:
        s.sendall(HEAD + b"Content-Length: 100000\r\n\r\n")
        with pytest.raises(OSError):
            for _ in range(150):
                s.sendall(b"a")
                time.sleep(0.02)


def test_idle_connections_end_after_the_idle_time_but_waiting_requests_do_not():
    with serving(idle_s=1, header_ms=10000) as server:
        with server.connect() as idle, server.connect() as waiting, server.connect() as streaming:
            waiting.sendall(GET % b"/v1/delay?ms=2500")
            streaming.sendall(GET % b"/v1/stream?n=2&ms=1300")
            start = time.monotonic()
            assert idle.recv(10) == b"" and 0.8 < time.monotonic() - start < 2.4
            read_until(waiting, b"later\n")
            read_until(streaming, b"[DONE]")


def test_connections_over_the_limit_are_told_so():
    with serving(connections=20) as server:
        held = [server.connect() for _ in range(19)]
        assert server.ask("/static").status == 200
        held.append(server.connect())
        held[-1].sendall(GET % b"/static")
        read_until(held[-1], b"hello\n")
        r = server.ask("/static")
        assert r.status == 503 and r.error()["code"] == "too_many_connections" and r.headers["retry-after"]
        for _ in range(50):
            assert server.ask("/static").status == 503
        held.pop().close()
        while (r := server.ask("/counts")).status == 503:
            time.sleep(0.01)
        assert r.json()["refused"] >= 51
        for s in held:
            s.close()


def test_draining_closes_kept_connections_and_answers_new_ones(server):
    with server.connect() as s, server.connect() as running:
        running.sendall(GET % b"/v1/stream?n=20&ms=10")
        read_until(running, b"data:")
        s.sendall(b"POST /drain HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n")
        assert b"Connection: close" in read_all(s)
        with server.connect() as new:
            new.sendall(GET % b"/static")
            assert b"Connection: close" in read_all(new)
        read_until(running, b"[DONE]")


def test_a_server_closes_with_clients_in_every_state(server):
    clients = [server.connect() for _ in range(60)]
    for i, s in enumerate(clients):
        s.sendall([b"", b"GET /st", HEAD + b"Content-Length: 9\r\n\r\nab", GET % b"/v1/never", GET % b"/v1/stream?n=100000&ms=1",
                   GET % b"/v1/stream?n=1000&size=60000&ms=1"][i % 6])
    time.sleep(0.1)
    server.stop()
    for s in clients:
        read_all(s)
        s.close()
    server.process = subprocess.Popen([TOY], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    server.process.stdout.readline()


# ---- clients that leave ----


@pytest.mark.parametrize("leave", LEAVE)
@pytest.mark.parametrize("what", [b"/v1/never", b"/v1/stream?n=100000&ms=20", b"/v1/stream?n=100000&ms=20&size=60000",
                                  b"/v1/stream?n=1&ms=60000"])
def test_a_client_that_leaves_is_noticed(server, leave, what):
    s = server.connect()
    s.sendall(GET % what)
    server.wait(lambda c: c["begun"] == 1)
    if b"ms=20" in what:
        read_until(s, b"data: ")
    start = time.monotonic()
    LEAVE[leave](s)
    c = server.wait(lambda c: c["done"] == 1, 1)
    assert time.monotonic() - start < 0.3 and c["gone"] == 1 and c["open"] == 1  # itself


@pytest.mark.parametrize("leave", LEAVE)
def test_a_post_that_waits_notices_too_with_pipelined_data_behind_it(server, leave):
    s = server.connect()
    s.sendall(b"POST /v1/never HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc" + GET % b"/static" * 50)
    server.wait(lambda c: c["begun"] == 1)
    LEAVE[leave](s)
    c = server.wait(lambda c: c["done"] == 1, 1)
    assert c["gone"] == 1


@pytest.mark.parametrize("leave", LEAVE)
def test_a_client_that_leaves_while_sending_is_forgotten(server, leave):
    for part in [b"", b"GET /st", GET[:-4] % b"/static", GET % b"/static" + b"GET /st", HEAD + b"Content-Length: 99\r\n\r\nabc", HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\nab"]:
        s = server.connect()
        s.sendall(part)
        LEAVE[leave](s)
    c = server.wait(lambda c: c["connections"] == 1)
    assert c["begun"] == 0


PIECES = [b"GET /st", HEAD + b"Content-Length: 99\r\n\r\nabc", HEAD + b"Content-Length: 8\r\n\r\nabc", HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\nab"]


@pytest.mark.parametrize("end", ["close", "half_close"])
@pytest.mark.parametrize("piece", PIECES)
def test_a_client_that_leaves_within_a_request_does_not_live_until_its_deadline(end, piece):
    with serving(header_ms=30000, body_ms=30000) as server:
        clients = [server.connect() for _ in range(100)]
        for s in clients:
            s.sendall(piece)
            LEAVE[end](s)
        c = server.wait(lambda c: c["connections"] == 1, 8)
        assert c["begun"] == 0


def test_a_half_close_right_behind_a_whole_body_does_not_lose_the_answer(server):
    body = b"x" * 300_000
    for _ in range(20):
        with server.connect() as s:
            s.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body)
            s.shutdown(socket.SHUT_WR)
            assert Reply(read_all(s)).body == body


def test_a_body_may_take_many_looks_at_its_client():
    with serving(body_ms=2500) as server, server.connect() as s:
        s.sendall(HEAD + b"Content-Length: 5\r\n\r\nhel")
        time.sleep(1.8)
        s.sendall(b"lo")
        assert read_until(s, b"hello").startswith(b"HTTP/1.1 200")
        s.sendall(HEAD + b"Content-Length: 5\r\n\r\nhel")
        start = time.monotonic()
        assert Reply(read_all(s)).status == 408 and 2.4 < time.monotonic() - start < 3.5


def test_an_end_of_file_right_behind_a_piece_of_a_request_is_not_missed(server):
    clients = [server.connect() for _ in range(50)]
    for s in clients:
        s.sendall(b"GET /st")
        s.shutdown(socket.SHUT_WR)
    for s in clients:
        assert read_all(s) == b""  # no 408, which would come later
        s.close()


@pytest.mark.parametrize("leave", LEAVE)
def test_a_client_that_leaves_a_big_reply_is_noticed(server, leave):
    s = server.connect(4096)
    s.sendall(GET % b"/v1/big?size=8000000")
    s.recv(1000)
    LEAVE[leave](s)
    assert server.wait(lambda c: c["done"] == 1, 1)["gone"] == 1


def test_a_half_close_after_a_whole_reply_was_given_does_not_cut_it(server):
    with server.connect() as s:
        s.sendall(GET % b"/v1/big?size=3000000")
        s.shutdown(socket.SHUT_WR)
        assert len(Reply(read_all(s)).body) == 3_000_000
    with server.connect(4096) as s:
        s.sendall(GET % b"/v1/stream/now?n=20000")
        time.sleep(0.05)
        s.shutdown(socket.SHUT_WR)
        assert Reply(read_all(s)).body == b"data: now\n\n" * 20000


def test_a_half_close_after_a_stream_ended_does_not_cut_it(server):
    with server.connect(4096) as s:
        s.sendall(GET % b"/v1/stream?n=4&size=60000&ms=1")
        read_until(s, b"data:")
        time.sleep(0.1)
        s.shutdown(socket.SHUT_WR)
        assert read_all(s).endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")


def test_a_half_close_is_noticed_while_data_waits():
    with serving(slow_ms=10000) as server, server.connect(4096) as s:
        s.sendall(GET % b"/v1/stream?n=4&size=60000&ms=1&hold=1")
        time.sleep(0.1)
        assert server.counts()["done"] == 0
        s.shutdown(socket.SHUT_WR)
        assert server.wait(lambda c: c["done"] == 1, 0.3)["gone"] == 1


def storm(server, requests, leave, pause):
    def client(i):
        s = server.connect()
        s.sendall(requests[i % len(requests)])
        if pause and i % 3:
            time.sleep(pause * (i % 5))
        LEAVE[leave](s)

    def run(first):
        for i in range(first, 300, 4):
            client(i)

    threads = [threading.Thread(target=run, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    server.wait(lambda c: c["connections"] == 1 and c["begun"] == c["done"] and c["open"] == 1, 5)


@pytest.mark.parametrize("leave", LEAVE)
@pytest.mark.parametrize("pause", [0, 0.002])
def test_storms_of_clients_that_leave(server, leave, pause):
    requests = [GET % b"/v1/never", GET % b"/v1/stream?n=10000&ms=1", HEAD + b"Content-Length: 50\r\n\r\nabc", b"GET /v1/nev",
                GET % b"/v1/delay?ms=2", GET % b"/v1/stream?n=10000&ms=1&size=50000", GET % b"/static" + GET % b"/v1/never",
                HEAD + b"Content-Length: 2\r\n\r\nab" + GET % b"/v1/delay?ms=1" + GET % b"/v1/never",
                GET % b"/v1/big?size=1000000", HEAD + b"Content-Length: 9999999999\r\n\r\nabc"]
    storm(server, requests, leave, pause)
    assert server.ask("/static").body == b"hello\n"


def test_descriptors_are_not_confused_when_they_are_reused(server):
    """A new connection gets the number of one that just left; its request must live on."""
    for _ in range(300):
        s = server.connect()
        s.sendall(GET % b"/v1/never")
        s.close()
        t = server.connect()
        t.sendall(GET % b"/v1/delay?ms=1")
        read_until(t, b"later\n")
        t.close()
    c = server.wait(lambda c: c["done"] == c["begun"] == 600)
    assert c["gone"] == 300


# ---- slow readers ----


@pytest.mark.parametrize("path", [b"/v1/stream?n=150&size=60000&ms=1", b"/v1/stream/now?n=900000", b"/v1/big?size=9000000"])
@pytest.mark.parametrize("takes", [0, 100_000])
def test_a_reader_that_takes_nothing_is_cut(path, takes):
    with serving(queue=50_000_000) as server, server.connect(4096) as s:
        s.sendall(GET % path)
        while takes > 0:
            takes -= len(s.recv(10_000))
        start = time.monotonic()
        c = server.wait(lambda c: c["done"] == 1)
        assert 0.3 < time.monotonic() - start < 1.5
        assert (c["slow"], c["gone"], c["refused_writes"]) == (1, 1, 0)


def test_nothing_is_made_for_a_reader_that_is_behind(server):
    with server.connect(4096) as s:
        s.sendall(GET % b"/v1/stream?n=100000&size=60000&ms=1")
        c = server.wait(lambda c: c["done"] == 1)
        assert c["slow"] == 1 and c["refused_writes"] == 0 and c["gone"] == 1
        assert c["written"] < 3 << 20 # the queue, what the sockets hold
        with pytest.raises(AssertionError):
            Reply(read_all(s))


def test_fast_readers_get_much_at_once(server):
    """More than the queue in one turn of the loop, and pieces of it as there is room."""
    assert server.ask("/v1/stream/now?n=400000").body == b"data: now\n\n" * 400000
    assert len(server.ask("/v1/stream?n=200&size=60000&ms=1").body) == 200 * 60000 + 14
    assert server.counts()["slow"] == 0


def test_a_slow_reader_that_takes_something_is_served(server):
    with server.connect(4096) as s:
        s.sendall(GET % b"/v1/stream/now?n=20000")
        data = b""
        while b"\r\n0\r\n\r\n" not in data:
            chunk = s.recv(8192)
            assert chunk, len(data)
            data += chunk
            time.sleep(0.02)
        assert Reply(data).body == b"data: now\n\n" * 20000
    assert server.counts()["slow"] == 0


def test_a_reader_that_takes_less_than_a_chunk_in_the_time_is_served():
    with serving(slow_ms=150) as server, server.connect(4096) as s:
        s.sendall(GET % b"/v1/stream/now?n=12000")
        data = b""
        while b"\r\n0\r\n\r\n" not in data:
            chunk = s.recv(1000)
            assert chunk, len(data)
            data += chunk
            time.sleep(0.01)
        assert server.counts()["slow"] == 0


def test_slow_readers_do_not_hold_others_up(server):
    slow = [server.connect(4096) for _ in range(30)]
    for s in slow:
        s.sendall(GET % b"/v1/stream?n=100000&size=60000&ms=1")
    start = time.monotonic()
    for _ in range(20):
        assert server.ask("/v1/delay?ms=1").status == 200
    assert time.monotonic() - start < 2
    server.wait(lambda c: c["done"] == 50)
    for s in slow:
        s.close()


# ---- real clients ----


def test_requests_of_httpx_and_their_reuse(server):
    httpx = pytest.importorskip("httpx")
    with httpx.Client(base_url=f"http://127.0.0.1:{server.port}/v1") as client:
        for i in range(50):
            assert client.get("/delay?ms=1").text == "later\n"
            assert client.post("/echo", content=b"x" * i).content == b"x" * i
            with client.stream("GET", "/stream?n=3&ms=1") as r:
                assert sum(line == "data: [DONE]" for line in r.iter_lines()) == 1
        assert server.counts()["connections"] == 2
        assert client.post("/echo", content=b"x" * (4 << 20)).status_code == 413
