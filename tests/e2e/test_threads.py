"""The server's threads from outside: which there are, their priorities, where they may run, and that
they sleep when there is nothing to do."""
import os
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from tokend import Tokend, user

SMALL = os.path.join(os.path.dirname(__file__), "..", "data", "llama_k.Q4_1.gguf")
NICEST = 19


class Thread:
    def __init__(self, pid, tid):
        with open(f"/proc/{pid}/task/{tid}/stat", encoding="utf-8") as f:
            name, rest = f.read().rsplit(")", 1)
        fields = rest.split()
        self.name = name.split("(", 1)[1]
        self.ticks = int(fields[11]) + int(fields[12])
        self.nice = int(fields[16])
        self.is_first = pid == tid
        self.processors = os.sched_getaffinity(tid)


def threads(server):
    pid = server.process.pid
    return [Thread(pid, int(tid)) for tid in os.listdir(f"/proc/{pid}/task")]


def sleeps(server):
    """How often its threads went to sleep."""
    n, pid = 0, server.process.pid
    for tid in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{tid}/status", encoding="utf-8") as f:
            n += sum(int(line.split()[1]) for line in f if line.startswith("voluntary_ctxt"))
    return n


def pool(server):
    return [t for t in threads(server) if not t.is_first and t.name != "engine" and not t.name.startswith("compute")]


def chat(server):
    r = server.http.post("/v1/completions", json={"model": server.name, "prompt": "a", "max_tokens": 8})
    assert r.status_code == 200, r.text


def test_work_on_text_yields_to_the_threads_that_compute():
    with Tokend("--threads", "3", "--device", "cpu", model=SMALL) as server:
        with ThreadPoolExecutor(8) as clients:
            list(clients.map(lambda _: chat(server), range(32)))
        usual = os.getpriority(os.PRIO_PROCESS, server.process.pid)
        computing = [t for t in threads(server) if t.name == "engine" or t.name.startswith("compute")]
        assert sorted(t.name for t in computing) == ["compute 1", "compute 2", "engine"]
        assert all(t.nice == usual for t in computing)
        text = pool(server)
        assert len(text) == 2 and any(t.name == "text" for t in text)
        assert all(t.nice == min(usual + 5, NICEST) for t in text if t.name == "text")


def test_the_user_may_say_how_many_threads_work_on_text(monkeypatch):
    monkeypatch.setenv("UV_THREADPOOL_SIZE", "3")
    with Tokend("--device", "cpu", model=SMALL) as server:
        assert len(pool(server)) == 3


@pytest.mark.parametrize("n", [1, 2])
def test_pinned_threads_have_a_processor_each_and_others_have_all(n):
    usual = os.sched_getaffinity(0)
    if len(usual) < n:
        pytest.skip("too few processors")
    with Tokend("--pin-threads", "--threads", str(n), "--device", "cpu", model=SMALL) as server:
        assert f"{n} pinned thread" in server.output()
        chat(server)
        all_threads = threads(server)
        computing = [t.processors for t in all_threads if t.name == "engine" or t.name.startswith("compute")]
        assert len(computing) == n and all(len(p) == 1 for p in computing)
        assert len(set.union(*computing)) == n
        assert all(t.processors == usual for t in all_threads if t.is_first or t.name == "text")


def test_a_server_with_nothing_to_do_sleeps():
    with Tokend("--device", "cpu", model=SMALL) as server:
        chat(server)
        time.sleep(0.5)
        ticks, slept = sum(t.ticks for t in threads(server)), sleeps(server)
        time.sleep(2)
        assert sum(t.ticks for t in threads(server)) - ticks <= 0.02 * os.sysconf("SC_CLK_TCK")
        assert sleeps(server) - slept <= 20
