#!/usr/bin/env python3
"""Perplexity of a text by the type of the KV cache, by a server of each (echo and logprobs).

usage: perplexity.py --model MODEL.gguf [--tokend PROGRAM] [--threads N] [--tokens N] [--context N]
                     [--kv TYPE,TYPE...] [--activation-bits 8|16] TEXT...

The texts are cut into chunks of `context` tokens, each by itself; the first token of a chunk is not
counted. The first type is what the others are compared with."""
import argparse
import json
import math
import os
import sys
import urllib.request

from servers import Server, free_port


def post(server, path, body):
    request = urllib.request.Request(server.url + path, json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=600) as reply:
        return json.load(reply)


def chunks_of(server, text, tokens, context):
    ids = post(server, "/tokenize", {"prompt": text, "add_special_tokens": False})["tokens"][:tokens]
    return [ids[i:i + context] for i in range(0, len(ids), context) if len(ids) - i > 1]


def logprobs(server, chunk):
    reply = post(server, "/v1/completions", {"prompt": chunk, "max_tokens": 0, "echo": True, "logprobs": 0})
    return reply["choices"][0]["logprobs"]["token_logprobs"][1:]


def run(args, kv, text):
    port = free_port()
    server = Server("tokend", [args.tokend, "serve", args.model, "--port", str(port), "--threads", str(args.threads),
                               "--max-num-seqs", "1", "--max-model-len", str(args.context + 1), "--kv-cache-dtype",
                               kv, "--activation-bits", args.activation_bits, "--log-level", "warn"], port)
    try:
        found = []
        for chunk in chunks_of(server, text, args.tokens, args.context):
            found += logprobs(server, chunk)
        return found
    finally:
        server.stop()


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--model", required=True)
    p.add_argument("--tokend", default=os.path.join(here, "../../build/tokend"))
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--tokens", type=int, default=8192)
    p.add_argument("--context", type=int, default=1024)
    p.add_argument("--kv", default="f32,f16,int8")
    p.add_argument("--activation-bits", default="16", help="8 moves logprobs more than a cache of 16 bits does")
    p.add_argument("text", nargs="+")
    args = p.parse_args()
    text = ""
    for path in args.text:
        with open(path, encoding="utf-8") as f:
            text += f.read()
    base = None
    for kv in args.kv.split(","):
        found = run(args, kv, text)
        base = base or found
        mean = -sum(found) / len(found)
        shift = [abs(a - b) for a, b in zip(found, base)]
        print(f"{kv:5} {len(found)} tokens: perplexity {math.exp(mean):.4f} "
              f"({100 * (math.exp(mean + sum(base) / len(base)) - 1):+.3f} %), a token's logprob moves by "
              f"{sum(shift) / len(shift):.5f} on average, {max(shift):.4f} at most", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
