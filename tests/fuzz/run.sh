#!/usr/bin/env bash
# run.sh NAME [SECONDS]: builds a fuzzer and runs it on its corpus, which keeps what
# it finds new when KEEP=1. Installs what that needs.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
. config/packages.sh
name=${1:?name of a fuzzer, as in tests/fuzz/fuzz_NAME.c} seconds=${2:-30}

[ -f "tests/fuzz/fuzz_$name.c" ] || {
    echo "there is no fuzzer '$name'; there are: $(cd tests/fuzz && echo fuzz_*.c | sed 's/fuzz_//g; s/\.c//g')" >&2
    exit 2
}
need_packages $build_packages clang libclang-rt-14-dev
export UBSAN_OPTIONS=${UBSAN_OPTIONS:-print_stacktrace=1:halt_on_error=1}

CC=clang TARGETS="tests/fuzz_$name" build_tokend build-fuzz -Db_sanitize=address,undefined \
    -Db_lundef=false -Dbuildtype=debugoptimized -Dc_args=-fsanitize=fuzzer-no-link
corpus=tests/fuzz/corpus/$name
found=$(mktemp -d)
trap 'rm -rf "$found"' EXIT
[ -z "${KEEP:-}" ] || found=$corpus
mkdir -p "$corpus"
dict=()
[ ! -f "tests/fuzz/$name.dict" ] || dict=("-dict=tests/fuzz/$name.dict")
build-fuzz/tests/fuzz_"$name" "${dict[@]}" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -verbosity=0 \
    -print_final_stats=1 -artifact_prefix="build-fuzz/$name-" "$found" "$corpus"
