#!/usr/bin/env python3
"""How long a server takes to start, and what memory it takes.

    start.py MODEL [--program build/tokend] [--repeat 3] [--threads 2] [--linger 0] [-- FLAG OF SERVE...]

From exec to /health's 200 and to the first token of a completion, the processor time until then
(which a busy machine changes little), memory at its peak and after the first token, beside the
size of the weights. The first start reads the model once before, so that all are warm.
"""
import argparse
import http.client
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import time


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def ask(port, method, path, body=None):
    c = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
    try:
        c.request(method, path, json.dumps(body) if body else None,
                  {"Content-Type": "application/json"})
        r = c.getresponse()
        return r.status, r.read()
    except OSError:
        return 0, b""
    finally:
        c.close()


def status_of(pid):
    with open(f"/proc/{pid}/status") as f:
        text = f.read()
    return {k: int(re.search(rf"{k}:\s+(\d+) kB", text)[1]) / 1024 for k in ("VmHWM", "VmRSS")}


def processor_time(pid):
    with open(f"/proc/{pid}/stat") as f:
        fields = f.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def start_once(a):
    port = free_port()
    command = [a.program, "serve", a.model, "--port", str(port), "--threads", str(a.threads), *a.flags]
    with tempfile.TemporaryFile("w+") as log:
        begin = time.monotonic()
        p = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        try:
            while ask(port, "GET", "/health")[0] != 200:
                if p.poll() is not None:
                    log.seek(0)
                    sys.exit(log.read())
                time.sleep(0.005)
            ready, used = time.monotonic() - begin, processor_time(p.pid)
            status, reply = ask(port, "POST", "/v1/completions",
                                {"prompt": "Hello", "max_tokens": 1, "temperature": 0})
            first = time.monotonic() - begin
            assert status == 200, reply
            memory = status_of(p.pid)
            time.sleep(a.linger)
        finally:
            if p.poll() is None:
                p.terminate()
            p.wait()
        log.seek(0)
        text = log.read()
    weights = re.search(r"memory: weights (\S+ \S+) ", text)[1]
    print(f"ready {ready:6.2f} s  first token {first:6.2f} s  processor time {used:6.2f} s  memory "
          f"{memory['VmRSS']:7.0f} MiB, peak {memory['VmHWM']:7.0f}  weights {weights}  "
          f"load {os.getloadavg()[0]:.1f}", flush=True)
    for line in text.splitlines():
        if " warn " in line or " error " in line or "repack" in line:
            print("   ", line)


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    p.add_argument("model")
    p.add_argument("--program", default="build/tokend")
    p.add_argument("--repeat", type=int, default=3)
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--linger", type=float, default=0,
                   help="seconds before it is stopped: time to write a repack cache")
    own, _, flags = "\0".join(sys.argv[1:]).partition("\0--\0")
    a = p.parse_args(own.split("\0"))
    a.flags = flags.split("\0") if flags else []
    with open(a.model, "rb") as f:
        while f.read(1 << 24):
            pass
    for _ in range(a.repeat):
        start_once(a)


if __name__ == "__main__":
    main()
