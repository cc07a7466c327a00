"""tests/bench/peers.py in its smallest form, without a peer: does it still run, and write what can be read?"""
import json
import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree

from tokend import MODEL, PROGRAM

PEERS = os.path.join(os.path.dirname(__file__), "../bench/peers.py")
LIMITS = os.path.join(os.path.dirname(PROGRAM), "tests", "machine_limits")
SVG = "{http://www.w3.org/2000/svg}"


def script(path, text):
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(0o755)
    return path


def limits_of_nothing(tmp_path):
    """Quicker than measuring."""
    return script(tmp_path / "limits", 'echo \'{"what": "read", "set": "s", "unit": "GB/s", "best": 100}\'\n')


def run(tmp_path, *more):
    out = tmp_path / "out.json", tmp_path / "out.svg"
    done = subprocess.run([sys.executable, PEERS, "--tiny", "--tokend", PROGRAM, "--limits", LIMITS, "--model", MODEL,
                           "--threads", "1", "--json", out[0], "--svg", out[1], *more],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=240)
    return done, *out


def test_measures_our_side_alone_and_writes_text_json_and_svg(tmp_path):
    groups = ["prefill", "decode", "batch", "neighbour", "shared", "start", "stream", "prefix", "memory"]
    more = ("--limits", limits_of_nothing(tmp_path)) if os.environ.get("TOKEND_SANITIZED") else ()
    done, as_json, as_svg = run(tmp_path, "--only", ",".join(groups), *more)
    assert done.returncode == 0, done.stderr
    found = json.loads(as_json.read_text())
    assert list(dict.fromkeys(r["group"] for r in found["rows"])) == groups
    assert found["errors"] == []
    assert found["cpu"]["cores"] >= 1 and found["load_before"] >= 0 and "neighbours" in found
    assert {m["what"] for m in found["limits"]} >= {"read"} and all(m["best"] > 0 for m in found["limits"])
    for row in found["rows"]:
        assert row["tokend"]["median"] > 0 and row["peer"] is None and row["ratio"] is None, row
    shares = {r["group"]: r["limit"]["tokend"] for r in found["rows"] if r["limit"]}
    assert shares["decode"] > 0
    picture = ElementTree.parse(as_svg).getroot()
    assert picture.tag == SVG + "svg"
    texts = {t.text for t in picture.iter(SVG + "text")}
    assert texts >= {row["title"] for row in found["rows"]}
    assert all(row["title"] in done.stdout for row in found["rows"])


def test_a_peer_that_fails_is_told_and_leaves_the_rest(tmp_path):
    peer = script(tmp_path / "peer", "echo no such model >&2\nexit 3\n")
    done, as_json, _ = run(tmp_path, "--only", "prefill,start", "--llama-bench", peer,
                           "--limits", limits_of_nothing(tmp_path))
    assert done.returncode == 1
    found = json.loads(as_json.read_text())
    assert "no such model" in found["errors"][0] and "no such model" in done.stdout
    assert {r["group"] for r in found["rows"]} == {"prefill", "start"}


def test_compares_with_a_peer_in_turns_at_its_better_setting(tmp_path):
    """A peer that tells other speeds with flash attention than without."""
    peer = script(tmp_path / "peer", "while [ $# -gt 0 ]; do [ $1 != -fa ] || flash=$2; shift; done\n"
                  'echo "{\\"avg_ts\\": 1$flash.5}"\n')
    done, as_json, as_svg = run(tmp_path, "--only", "decode", "--repeat", "2", "--llama-bench", peer,
                                "--limits", limits_of_nothing(tmp_path))
    assert done.returncode == 0, done.stderr
    row, = json.loads(as_json.read_text())["rows"]
    assert row["peer"]["samples"] == [11.5, 11.5] and "flash attention on" in row["note"]
    assert row["ratio"]["samples"] == [ours / 11.5 for ours in row["tokend"]["samples"]]
    assert row["limit"]["tokend"] == row["tokend"]["median"] / row["limit"]["value"]
    assert row["ratio"]["least"] <= row["ratio"]["median"] <= row["ratio"]["most"]
    assert any(r.get("class") in ("good", "bad") for r in ElementTree.parse(as_svg).getroot().iter(SVG + "rect"))


def test_an_unknown_group_is_refused(tmp_path):
    done, *_ = run(tmp_path, "--only", "prefil")
    assert done.returncode == 2 and "prefil" in done.stderr
