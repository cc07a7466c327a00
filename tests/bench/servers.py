"""Servers under measurement: started, watched from outside (/proc), stopped."""
import asyncio
import os
import re
import signal
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request

CLIENTS, CONTEXT = 16, 2048  # each server can run this many requests of this many tokens


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def tokend_command(program, model, threads, port):
    return [program, "serve", model, "--port", str(port), "--threads", str(threads),
            "--max-num-seqs", str(CLIENTS), "--max-model-len", str(CONTEXT), "--log-level", "warn"]


def llama_command(program, model, threads, port):
    """The same number of slots and the same memory of tokens; else the program's defaults."""
    return [program, "-m", model, "--host", "127.0.0.1", "--port", str(port), "-t", str(threads),
            "-np", str(CLIENTS), "-c", str(CLIENTS * CONTEXT)]


class Server:
    """`start_seconds`: from the start of the process to the first 200 of /health."""

    def __init__(self, name, command, port, timeout=300):
        self.name, self.port, self.url = name, port, f"http://127.0.0.1:{port}"
        self.log = tempfile.TemporaryFile()
        begin = time.perf_counter()
        self.process = subprocess.Popen(command, stdout=self.log, stderr=subprocess.STDOUT)
        try:
            self._wait(begin + timeout)
        except BaseException:
            self.stop()
            raise
        self.start_seconds = time.perf_counter() - begin

    def _wait(self, end):
        while time.perf_counter() < end:
            if self.process.poll() is not None:
                raise RuntimeError(f"{self.name}: ended while starting: {self.last_words()}")
            try:
                with urllib.request.urlopen(self.url + "/health", timeout=5) as reply:
                    if reply.status == 200:
                        return
            except (urllib.error.URLError, ConnectionError, TimeoutError):
                pass
            time.sleep(0.005)
        raise RuntimeError(f"{self.name}: not healthy in time")

    def last_words(self):
        self.log.seek(0)
        return self.log.read()[-400:].decode("utf-8", "replace").strip()

    def status(self):
        """Resident MiB and threads, now."""
        with open(f"/proc/{self.process.pid}/status", encoding="utf-8") as f:
            text = f.read()
        number = lambda key: int(re.search(rf"^{key}:\s+(\d+)", text, re.M)[1])
        return number("VmRSS") / 1024, number("Threads")

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.process.kill()
        self.process.wait()
        self.log.close()


class Watch:
    """The highest resident memory and number of threads of a server while it is loaded."""

    def __init__(self):
        self.peak, self.threads, self.end = 0.0, 0, 0.0

    async def during(self, server, work):
        task = asyncio.ensure_future(work)
        while not task.done():
            self.look(server)
            await asyncio.wait([task], timeout=0.1)
        self.look(server)
        return task.result()

    def look(self, server):
        self.end, threads = server.status()
        self.peak, self.threads = max(self.peak, self.end), max(self.threads, threads)


def wrk(url, seconds, connections=64):
    """Requests a second."""
    done = subprocess.run(["wrk", "-t2", f"-c{connections}", f"-d{seconds}s", url], text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=seconds + 60)
    bad = re.search(r"Non-2xx or 3xx responses: (\d+)", done.stdout)
    rate = re.search(r"Requests/sec:\s+([\d.]+)", done.stdout)
    if bad or not rate:
        raise RuntimeError(f"wrk {url}: {bad[0] if bad else done.stdout.strip()[-200:]}")
    return float(rate[1])


def have_wrk():
    return any(os.access(os.path.join(d, "wrk"), os.X_OK) for d in os.get_exec_path())
