"""The repack cache: a second start answers from it with the same bits; a bad one is not used."""
import os
import shutil
import time

import pytest
from tokend import Tokend

SMALL = os.path.join(os.path.dirname(__file__), "../data/llama_k.Q4_1.gguf")
HEADER, ALIGN = 128, 2 << 20


def answer(server):
    r = server.http.post("/v1/completions", json={
        "model": server.name, "prompt": list(range(3, 20)), "max_tokens": 12, "temperature": 0,
        "logprobs": 3, "ignore_eos": True})
    assert r.status_code == 200, r.text
    return r.json()["choices"]


def start(model, where, until=None):
    """The answer and the log of one start that goes on until the log says `until`."""
    with Tokend("--device", "cpu", *(("--repack-cache", where) if where else ()), model=model) as server:
        choices = answer(server)
        end = time.monotonic() + 30
        while until and until not in server.output():
            assert time.monotonic() < end, server.output()
            time.sleep(0.02)
        return choices, server.output()


@pytest.fixture
def model(tmp_path):
    path = str(tmp_path / "m.gguf")
    shutil.copy(SMALL, path)
    return path


def flip(path, at):
    with open(path, "r+b") as f:
        f.seek(at)
        byte = f.read(1)[0]
        f.seek(at)
        f.write(bytes([byte ^ 1]))


def test_without_the_setting_nothing_is_written(model, tmp_path):
    start(model, None)
    assert os.listdir(tmp_path) == ["m.gguf"]


@pytest.mark.parametrize("where", ["beside", "dir"])
def test_the_second_start_takes_it_and_answers_alike(model, tmp_path, where):
    if where == "dir":
        where = str(tmp_path / "cache")
        os.mkdir(where)
    plain, _ = start(model, None)
    first, _ = start(model, where, until="is written")
    second, log = start(model, where, until="weights from repack cache")
    assert plain == first == second
    assert " warn  repack" not in log
    assert len(os.listdir(tmp_path)) == 2 and not list(tmp_path.glob("**/*.part"))


@pytest.mark.parametrize("harm, message", [
    (lambda path: flip(path, 60), "header is damaged"),
    (lambda path: flip(path, HEADER + 4), "table is damaged"),
    (lambda path: flip(path, ALIGN + 1000), "is damaged; it is packed again"),
    (lambda path: os.truncate(path, os.path.getsize(path) - 1), "expected"),
    (lambda path: os.truncate(path, 3), "cut short"),
])
def test_a_bad_file_is_not_used_and_written_anew(model, harm, message):
    first, _ = start(model, "beside", until="is written")
    harm(model + ".repacked")
    second, log = start(model, "beside", until="is written")
    assert message in log and " warn " in log
    third, _ = start(model, "beside", until="weights from repack cache")
    assert first == second == third


def test_a_changed_model_is_not_answered_from_the_old_file(model):
    start(model, "beside", until="is written")
    os.utime(model, ns=(1, 1))
    _, log = start(model, "beside", until="is written")
    assert "of another model" in log


def test_a_file_that_cannot_be_written_is_a_warning(model, tmp_path):
    plain, _ = start(model, None)
    choices, log = start(model, str(tmp_path / "nowhere"), until="is not written")
    assert choices == plain and " warn " in log
