"""HTTP clients that are late, leave, or do not read."""
import select
import socket
import subprocess
import threading
import time

import pytest

from toy import TOY, GET, HEAD, LEAVE, Reply, read_all, read_until, server, serving  # noqa: F401 (server is a fixture)


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
        assert Reply(read_all(s)).status == 408 and time.monotonic() - start < 5
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
            waiting.sendall(GET % b"/v1/delay?ms=6000")
            streaming.sendall(GET % b"/v1/stream?n=2&ms=3000")
            start = time.monotonic()
            assert idle.recv(10) == b"" and 0.8 < time.monotonic() - start < 5
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
    c = server.wait(lambda c: c["done"] == 1, 5)
    assert time.monotonic() - start < 3 and c["gone"] == 1 and c["open"] == 1  # itself


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
        assert Reply(read_all(s)).status == 408 and 2.4 < time.monotonic() - start < 10


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
        assert 0.3 < time.monotonic() - start < 10
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
    with serving(slow_ms=800) as server, server.connect(4096) as s:
        s.sendall(GET % b"/v1/stream/now?n=12000")
        data = b""
        while b"\r\n0\r\n\r\n" not in data:
            chunk = s.recv(400)
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
    assert time.monotonic() - start < 10
    server.wait(lambda c: c["done"] == 50)
    for s in slow:
        s.close()
