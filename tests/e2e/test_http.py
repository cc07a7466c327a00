"""HTTP as ordinary clients use it, and requests that are refused."""
import contextlib
import random
import socket
import time

import httpx
import pytest

from toy import GET, HEAD, Reply, read_all, read_until, server, serving  # noqa: F401 (server is a fixture)


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
        assert "mean /v1/below/?" not in server.ask(path).error()["message"]  # a prefix alone is no route
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
    assert server.ask("/" + "a" * 12000).status == 404
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
        for auth in ["Bearer secret", "bearer  secret", "Bearer secret ", "Bearer secret \t ", "Bearer secret\r\nAuthorization: Bearer secret "]:
            assert server.ask("/delay?ms=1", headers=f"Authorization: {auth}\r\n").status == 200
        assert server.ask("/v1/echo", "POST", body=b"x" * 1_000_000).status == 401
        for auth in ["Bearer secret\r\nAuthorization: Bearer other", "Bearer other\r\nAuthorization: Bearer secret"]:
            r = server.ask("/delay?ms=1", headers=f"Authorization: {auth}\r\n")
            assert r.status == 400 and "Authorization is given more than once" in r.error()["message"]
        assert server.counts()["begun"] == 5


def test_blanks_behind_a_value_are_no_part_of_it(server):
    assert server.ask("/show", headers="X-Show: \t yes \t \r\n").body == b"/show|-|yes"
    assert server.ask("/static", headers="X-Request-Id: mine  \r\n").headers["x-request-id"] == "mine"
    r = server.ask("/show", headers="X-Show: \t \r\nHost2: a \r\n")
    assert r.body == b"/show|-|"


def test_a_field_of_one_value_may_be_repeated_but_not_contradicted(server):
    for name in ["Content-Type", "x-slo-tpot-ms", "EXPECT", "content-encoding"]:
        same, other = ("100-continue", "100-continues") if name == "EXPECT" else ("identity", "gzip")
        assert server.ask("/v1/echo", "POST", headers=f"{name}: {same}\r\n{name}: {same} \r\n", body=b"x").body.endswith(b"x")
        for a, b in [(same, other), (other, same)]:
            r = server.ask("/v1/echo", "POST", headers=f"{name}: {a}\r\nX: y\r\n{name.lower()}: {b}\r\n", body=b"x")
            assert r.status == 400 and "more than once" in r.error()["message"], (name, a)
    assert server.ask("/v1/echo", "POST", headers="X-Other: a\r\nX-Other: b\r\n", body=b"x").body == b"x"


def test_bodies_in_a_coding_are_refused(server):
    for coding in ["gzip", "br", "gzip, identity", "deflate "]:
        for framing in ["", "Transfer-Encoding: chunked\r\n"]:
            body = b"1\r\nx\r\n0\r\n\r\n" if framing else b"Content-Length: 1\r\n\r\nx"
            head = f"POST /v1/echo HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Encoding: {coding}\r\n{framing}".encode()
            r = Reply(server.raw(head + (b"\r\n" if framing else b"") + body))
            assert r.status == 415 and r.error()["code"] == "unsupported_content_encoding", (coding, framing)
            assert r.headers["accept-encoding"] == "identity" and coding.strip() in r.error()["message"]
    for coding in ["identity", "Identity ", ""]:
        assert server.ask("/v1/echo", "POST", headers=f"Content-Encoding: {coding}\r\n", body=b"x").body == b"x"
    assert server.ask("/static", headers="Content-Encoding: gzip\r\n").status == 200  # no body, no coding of it
    assert server.ask("/no", "POST", headers="Content-Encoding: gzip\r\n", body=b"x").status == 404


def test_expectations_are_met_or_refused(server):
    for expect in ["202-accepted", "100-continue, x", "", "100-continue=1"]:
        with server.connect() as s:
            s.sendall(f"POST /v1/echo HTTP/1.1\r\nHost: a\r\nExpect: {expect}\r\nContent-Length: 5\r\n\r\n".encode())
            r = Reply(read_all(s))
            assert r.status == 417 and r.error()["code"] == "expectation_failed" and "100-continue" in r.error()["message"]
    with server.connect() as s:
        s.sendall(b"POST /v1/echo HTTP/1.1\r\nHost: a\r\nExpect: 100-Continue\r\nContent-Length: 5\r\n\r\n")
        read_until(s, b"HTTP/1.1 100 Continue\r\n\r\n")
        s.sendall(b"hello")
        assert read_until(s, b"hello").startswith(b"HTTP/1.1 200")


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
        assert huge.status == 413 and time.monotonic() - start < 10
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
    for n, ours in [(10_000, 200), (17_000, 431), (20_000, 431), (30_000, None), (500_000, None)]:
        data = server.raw(b"GET /static HTTP/1.1\r\nHost: a\r\nConnection: close\r\nX: " + b"a" * n + b"\r\n\r\n")
        assert Reply(data).status == (ours or 431), n
        if ours == 431:
            assert Reply(data).error()["code"] == "headers_too_large"
    many = b"".join(b"X-%d: y\r\n" % i for i in range(20000))
    assert server.raw(b"GET /static HTTP/1.1\r\nHost: a\r\n" + many + b"\r\n")[:12] in (b"HTTP/1.1 431", b"")
    assert server.raw(b"GET /" + b"a" * 300_000 + b" HTTP/1.1\r\nHost: a\r\n\r\n")[9:12] in (b"414", b"431")


def answered_at_once(server, request):
    """The one reply, where nothing else happens that would wake the server."""
    with server.connect() as s:
        s.settimeout(0.9)
        with contextlib.suppress(OSError):
            s.sendall(request)
        data = read_all(s)
    assert data.count(b"HTTP/1.1 ") == 1, (request[:80], data[:200])
    return Reply(data)


@pytest.mark.parametrize("piece", [b"a=b&", b"&", b"a&", b"=&", b"%41=%00&"])
def test_urls_with_many_parameters_are_refused_at_once(server, piece):
    with server.connect() as other:
        for n in [50, 98, 99, 100, 101, 150, 300, *range(440, 640, 9), 1000, 3000, 8000, 30000]:
            r = answered_at_once(server, b"GET /static?" + piece * n + b" HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
            assert r.status == (200 if n <= 98 else 431 if n == 99 else 414), n  # with two header fields
            if n >= 100 and len(piece) * n < 30_000:
                assert r.error()["code"] == "uri_too_long"
                assert "100" in r.error()["message"] or "16384" in r.error()["message"]
        other.sendall(GET % b"/static")
        read_until(other, b"hello\n")


@pytest.mark.parametrize("tail", [b"?" + b"a=b&" * 1000, b"?a", b" HTTP/1.1\x00?" + b"&" * 1000, b"HTTP/1.1\x00?" + b"&" * 1000, b""])
def test_a_nul_hides_no_part_of_a_request_line(server, tail):
    for path in [b"/static\x00", b"/static?a\x00"]:
        r = answered_at_once(server, b"GET " + path + tail + b" HTTP/1.1\r\nHost: a\r\n\r\n" + SMUGGLED)
        assert r.status == 400 and r.error()["code"] == "invalid_request", path


@pytest.mark.parametrize("before", [b"", b"Cookie: " + b"a=b; " * 20 + b"\r\n"])
def test_many_headers_are_refused_at_once(server, before):
    have = 2 + (before.count(b"a=b") + 2 if before else 0)  # Host, Connection; Cookie, the cookies and an empty one
    for n in [90 - have, 100 - have, 101 - have, 150, 250, *range(300, 600, 9), 1000, 20000]:
        many = b"".join(b"X-%d: y\r\n" % i for i in range(n))
        r = answered_at_once(server, b"GET /static HTTP/1.1\r\nHost: a\r\nConnection: close\r\n" + before + many + b"\r\n")
        assert r.status == (200 if n + have <= 100 else 431), n
        if r.status == 431:
            assert r.error()["code"] == "headers_too_large" and "100" in r.error()["message"]


@pytest.mark.parametrize("cookie", [b"a=b; ", b";", b"a" * 100 + b"; ", b"a" * 4000 + b"=c; "])
def test_many_cookies_are_refused_at_once(server, cookie):
    for size in [400, 4000, 7000, *range(8000, 18000, 400), 30_000]:
        n = size // len(cookie)
        r = answered_at_once(server, b"GET /static HTTP/1.1\r\nHost: a\r\nConnection: close\r\nCookie: " + cookie * n + b"\r\n\r\n")
        fits = n < 96 and n * len(cookie) <= 8192
        assert r.status == (200 if fits else 431), (n, size)
        if r.status == 431 and size < 20_000:
            assert r.error()["code"] == "headers_too_large"


@pytest.mark.parametrize("value", [b"y", b"y" * 100])
def test_no_answer_is_lost_whatever_the_trailers(server, value):
    for n in [0, 1, 8, 16, 17, *range(20, 620, 10), 3000]:
        trailers = b"".join(b"X-%d: %s\r\n" % (i, value) for i in range(n))
        with server.connect() as s:
            s.settimeout(3)
            with contextlib.suppress(OSError):
                s.sendall(HEAD + b"Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n" + trailers + b"\r\n")
            assert s.recv(12) == (b"HTTP/1.1 200" if n <= (16 if value == b"y" else 8) else b"HTTP/1.1 431"), n
    assert server.wait(lambda c: c["connections"] == 1)["done"] <= 16


def test_no_answer_is_lost_however_large_the_headers_and_what_lies_behind_them(server):
    cookies = b"Cookie: " + b"a=b; " * 40 + b"c=" + b"d" * 7900 + b"\r\n"
    for size in range(500, 36_000, 500):
        for extra in [b"", cookies[:-8]+ b"\r\n", b"".join(b"X-%d: y\r\n" % i for i in range(90))]:
            head = b"GET /static HTTP/1.1\r\nHost: a\r\n" + extra + b"Y: " + b"y" * size + b"\r\n\r\n"
            with server.connect() as s:
                s.sendall(head + GET % b"/static" * 600)
                s.settimeout(3)
                first = s.recv(9)
                assert first == b"HTTP/1.1 ", (size, len(head))
                status = int(s.recv(3))
                assert status == (200 if len(head) <= 16384 and len(extra) < 8192 else 431), (size, len(head), status)


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
