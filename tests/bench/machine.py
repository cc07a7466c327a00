"""The machine that a measurement ran on: what it is, what it could do at most, and how much of it
other programs took meanwhile."""
import contextlib
import json
import os
import resource
import subprocess
import sys
import time


def cpu():
    """Name, instruction sets and cores of the processor."""
    out = {"model": "", "flags": []}
    with open("/proc/cpuinfo", encoding="utf-8") as f:
        for line in f:
            key, _, value = line.partition(":")
            if key.strip() in ("model name", "Model") and not out["model"]:
                out["model"] = value.strip()
            if key.strip() in ("flags", "Features") and not out["flags"]:
                out["flags"] = sorted(value.split())
    out["cores"] = len(os.sched_getaffinity(0))
    return out


def load():
    return round(os.getloadavg()[0], 2)


def memory_bytes():
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def limits(program, threads, milliseconds):
    """What tests/bench/limits.c measures: a list of dicts."""
    text = subprocess.run([program, str(threads), str(milliseconds)], check=True, timeout=600,
                          stdout=subprocess.PIPE, text=True).stdout
    return [json.loads(line) for line in text.splitlines()]


def version(program):
    """The first line with a digit that `program --version` prints, or nothing."""
    try:
        text = subprocess.run([program, "--version"], timeout=30, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, errors="replace").stdout
    except (OSError, subprocess.SubprocessError):
        return ""
    return next((line.strip()[:120] for line in text.splitlines() if any(map(str.isdigit, line))), "")


def best_limit(measured, what):
    """The highest limit of a kind ("read", "fma", "bf16", "int8"), or None."""
    found = [m for m in measured if m["what"] == what]
    return max(found, key=lambda m: m["best"]) if found else None


@contextlib.contextmanager
def busy_core():
    """A process of usual priority that uses all it gets of the first core."""
    first = min(os.sched_getaffinity(0))
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"],
                               preexec_fn=lambda: os.sched_setaffinity(0, {first}))
    try:
        yield
    finally:
        process.kill()
        process.wait()


class Neighbours:
    """How much of the machine other programs use, in shares of all its cores."""

    def __init__(self):
        self.start = self._read()

    @staticmethod
    def _read():
        with open("/proc/stat", encoding="utf-8") as f:
            user, nice, system, idle, iowait, irq, softirq, steal = map(int, f.readline().split()[1:9])
        busy = (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")
        own = sum(r.ru_utime + r.ru_stime for r in map(
            resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)))
        return time.monotonic(), busy, own

    def share(self):
        """Since the object was made; children count as other programs until they were waited for."""
        now, busy, own = (b - a for a, b in zip(self.start, self._read()))
        return max(0.0, (busy - own) / max(now * os.cpu_count(), 1e-9))


def busy_now(seconds=0.5):
    neighbours = Neighbours()
    time.sleep(seconds)
    return neighbours.share()
