"""/metrics as Prometheus reads it: through the parser of its own Python client."""
import json
import math

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tokend import Tokend

HOSTILE = 'a\\b"c\nd{e="f"} 1 \\n # é日'

GAUGES = {"vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc",
          "vllm:cache_config_info", "vllm:lora_requests_info", "tokend:pages", "tokend:pages_touched", "tokend:kv_waste_ratio",
          "tokend:engine_heartbeat_age_seconds", "tokend:http_connections_open"}
COUNTERS = {"vllm:prompt_tokens", "vllm:generation_tokens", "vllm:prefix_cache_queries", "vllm:prefix_cache_hits",
            "vllm:num_preemptions", "vllm:request_success", "vllm:corrupted_requests",
            "vllm:spec_decode_num_drafts", "vllm:spec_decode_num_draft_tokens",
            "vllm:spec_decode_num_accepted_tokens", "tokend:engine_steps", "tokend:computed_tokens", "tokend:limited_steps",
            "http_requests", "tokend:http_refused", "tokend:slow_readers_cut"}
HISTOGRAMS = {"vllm:time_to_first_token_seconds", "vllm:inter_token_latency_seconds",
              "vllm:time_per_output_token_seconds", "vllm:e2e_request_latency_seconds",
              "vllm:request_queue_time_seconds", "vllm:request_prefill_time_seconds",
              "vllm:request_decode_time_seconds", "vllm:request_inference_time_seconds",
              "vllm:iteration_tokens_total", "vllm:request_prompt_tokens", "vllm:request_generation_tokens",
              "vllm:request_params_n", "vllm:request_params_max_tokens"}


@pytest.fixture(scope="module")
def server():
    with Tokend("--max-model-len", "512", "--max-num-seqs", "4", "--served-model-name", HOSTILE) as s:
        yield s


class Page:
    def __init__(self, server):
        r = server.http.get("/metrics")
        assert r.status_code == 200
        assert r.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
        self.text = r.content.decode("utf-8")
        assert self.text.endswith("\n") and "\r" not in self.text
        families = list(text_string_to_metric_families(self.text))
        self.families = {f.name: f for f in families}
        assert len(self.families) == len(families)  # no name comes twice

    def of_type(self, kind):
        return {n for n, f in self.families.items() if f.type == kind}

    def value(self, name, **labels):
        return sum(s.value for f in self.families.values() for s in f.samples
                   if s.name == name and labels.items() <= s.labels.items())

    def grows(self):
        """Every sample that may never fall."""
        return {(s.name, *sorted(s.labels.items())): s.value
                for f in self.families.values() if f.type in ("counter", "histogram") for s in f.samples}


def ask(server, **body):
    r = server.http.post("/v1/completions", json={"prompt": "Once upon a time there was a", **body})
    assert r.status_code == 200, r.text
    return r.json()


def leave(server):
    s = server.socket()
    s.sendall(server.request_bytes("/v1/completions", json.dumps(
        {"prompt": "Tell a story.", "max_tokens": 480, "ignore_eos": True, "stream": True}).encode()))
    while b"data: " not in s.recv(65536):
        pass
    s.close()
    assert server.all_pages_are_back()


def test_every_family_is_there_typed_and_explained(server):
    page = Page(server)
    assert page.of_type("gauge") == GAUGES
    assert page.of_type("counter") == COUNTERS
    assert page.of_type("histogram") == HISTOGRAMS
    assert set(page.families) == GAUGES | COUNTERS | HISTOGRAMS
    assert all(f.documentation for f in page.families.values())
    assert all(f.samples for f in page.families.values())


def test_a_hostile_model_name_arrives_as_it_is(server):
    assert server.name == HOSTILE
    for f in Page(server).families.values():
        for s in f.samples:
            assert s.labels["model_name"] == HOSTILE and s.labels["engine"] == "0"


def test_histograms_are_cumulative_and_have_buckets_where_values_fall(server):
    ask(server, max_tokens=30, ignore_eos=True)
    page = Page(server)
    for name in HISTOGRAMS:
        buckets = [(float(s.labels["le"]), s.value) for s in page.families[name].samples
                   if s.name == name + "_bucket"]
        bounds, counts = zip(*buckets)
        assert list(bounds) == sorted(set(bounds)) and bounds[-1] == math.inf, name
        assert list(counts) == sorted(counts), name
        assert counts[-1] == page.value(name + "_count") > 0, name
        assert counts[-2] == counts[-1], name  # nothing beyond the last bound
    assert page.value("vllm:inter_token_latency_seconds_sum") == \
        page.value("vllm:time_per_output_token_seconds_sum") > 0


def test_the_numbers_are_those_of_the_requests(server):
    before = Page(server)
    usages = [ask(server, max_tokens=9, ignore_eos=True, n=2)["usage"], ask(server, max_tokens=5, ignore_eos=True)["usage"],
              ask(server, max_tokens=40, stop=["a", "e", "i", "o"], temperature=0)["usage"]]
    leave(server)
    after = Page(server)

    def gain(name, **labels):
        return after.value(name, **labels) - before.value(name, **labels)
    reasons = {r: gain("vllm:request_success_total", finished_reason=r) for r in ("stop", "length", "abort", "error")}
    assert reasons == {"stop": 1, "length": 3, "abort": 1, "error": 0}
    left = 3  # at least "Tell a story."
    assert gain("vllm:prompt_tokens_total") >= sum(u["prompt_tokens"] for u in usages) + left
    assert gain("vllm:generation_tokens_total") > sum(u["completion_tokens"] for u in usages)
    for name in ("vllm:time_to_first_token_seconds_count", "vllm:e2e_request_latency_seconds_count",
                 "vllm:request_queue_time_seconds_count", "vllm:request_prefill_time_seconds_count",
                 "vllm:request_decode_time_seconds_count", "vllm:request_inference_time_seconds_count",
                 "vllm:request_prompt_tokens_count", "vllm:request_params_n_count",
                 "vllm:request_params_max_tokens_count"):
        assert gain(name) == 4, name
    assert gain("vllm:request_params_n_sum") == 5 and gain("vllm:request_generation_tokens_count") == 5
    assert gain("vllm:iteration_tokens_total_count") == gain("tokend:engine_steps_total") > 0
    assert gain("vllm:prefix_cache_queries_total") >= gain("vllm:prefix_cache_hits_total") >= 0


def test_pages_add_up_and_idle_gauges_are_zero(server):
    leave(server)
    page = Page(server)
    config, = page.families["vllm:cache_config_info"].samples
    assert page.value("tokend:pages") == int(config.labels["num_gpu_blocks"])
    assert config.labels["block_size"] == "16" and config.value == 1
    for name in ("vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc",
                 "tokend:kv_waste_ratio"):
        assert page.value(name) == 0, name


def test_what_counts_only_grows(server):
    last = Page(server).grows()
    for i in range(4):
        ask(server, max_tokens=3 + i)
        leave(server)
        server.http.post("/v1/completions", content=b"{")
        now = Page(server).grows()
        assert now.keys() == last.keys()
        assert [k for k in now if now[k] < last[k]] == []
        last = now
