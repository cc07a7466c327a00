#!/usr/bin/env bash
# check.sh: what a machine with a GPU has to say of the CUDA backend, in under 8 minutes and without a
# network: the wrappers of PTX against the emulator's bodies, the kernel tests, the server, a table of
# how much of the device's limits each operation reaches, compute-sanitizer.
#   tests/gpu/check.sh [--build DIR] [--json FILE] [--emulated]
# --build: a build folder, or what pack.sh made of one on another machine; without it build-gpu/ is made
#   for the GPU here, of as much as this machine has libraries for. --emulated: the same steps on the
#   emulated device of a usual build (--build), to test this script.
# TOKEND_MODEL: a GGUF file for the server; else SmolLM2-135M where config/model.sh keeps it, or a toy.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
start=$SECONDS
budget=${TOKEND_GPU_SECONDS:-470}
build='' json='' emulated=''
while [ $# -gt 0 ]; do
    case $1 in
    --build) build=$2 && shift ;;
    --json) json=$2 && shift ;;
    --emulated) emulated=1 ;;
    *) echo "check.sh: $1 is not known (--build DIR, --json FILE, --emulated)" >&2 && exit 2 ;;
    esac
    shift
done
passed=0 failed=0 parts=''
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

left() {
    echo $((budget - SECONDS + start))
}

# part NAME SECONDS COMMAND...: runs it within that time, and what is left of all; adds up what it says
# it passed and failed. A hung device ends its own part only.
part() {
    local name=$1 limit=$2 from=$SECONDS status=0 p f
    shift 2
    [ "$limit" -le "$(left)" ] || limit=$(left)
    echo "=== $name"
    if [ "$limit" -lt 5 ]; then
        echo "SKIPPED $name: no time is left"
        return 1
    fi
    timeout -k 5 "$limit" "$@" >"$work/log" 2>&1 </dev/null || status=$?
    tail -n "${TOKEND_GPU_LINES:-80}" "$work/log"
    p=$(grep -cE '^\[ +OK \]' "$work/log")
    f=$(grep -E '^\[ +FAILED +\] [a-z]' "$work/log" | sort -u | wc -l)
    if grep -qE '^[0-9]+ passed, [0-9]+ failed' "$work/log"; then
        p=$(sed -nE 's/^([0-9]+) passed, .*/\1/p' "$work/log" | tail -1)
        f=$(sed -nE 's/^[0-9]+ passed, ([0-9]+) failed.*/\1/p' "$work/log" | tail -1)
    elif [ "$p" = 0 ]; then
        p=$((status == 0))
    fi
    if [ $status != 0 ] && [ "$f" = 0 ]; then f=1; fi
    [ $status != 124 ] && [ $status != 137 ] || echo "FAILED $name: not done within $limit s"
    passed=$((passed + p)) failed=$((failed + f))
    echo "--- $name: $p passed, $f failed, $((SECONDS - from)) s"
    parts+="${parts:+, }{\"part\": \"$name\", \"seconds\": $((SECONDS - from)), \"passed\": $p, \"failed\": $f}"
    [ $status = 0 ]
}

missing() {
    echo "SKIPPED $1: needs $2"
}

# --- the device and the build ---

if [ -z "$emulated" ]; then
    device=$(nvidia-smi --query-gpu=name,compute_cap,driver_version --format=csv,noheader 2>/dev/null | head -1)
    [ -n "$device" ] || { echo "no GPU: nvidia-smi finds none (--emulated tests this script)" && exit 2; }
    echo "$device"
fi

# 9.0 has instructions of its own, which 90a stands for.
arch() {
    local a
    a=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -1 | tr -d .)
    [ "$a" = 90 ] && a=90a
    echo "$a"
}

compile() {
    local only='' jobs
    jobs=$(nproc)
    pkg-config --exists libmicrohttpd jansson libuv libpcre2-8 libutf8proc 2>/dev/null || only=-Dkernels_only=true
    [ -z "$only" ] || echo "libmicrohttpd, jansson, libuv, PCRE2 or utf8proc is missing: without the server"
    rm -rf build-gpu
    meson setup build-gpu -Dgpu_arch="$(arch)" $only && ninja -j "$jobs" -C build-gpu gpu_check tokend-cuda.so
}

if [ -z "$build" ] && [ -z "$emulated" ]; then
    build=build-gpu
    if ! command -v meson >/dev/null || ! command -v ninja >/dev/null; then
        missing build "meson and ninja (pip install meson ninja), or --build with what pack.sh made elsewhere"
        exit 2
    fi
    export PATH=$PATH:/usr/local/cuda/bin
    command -v nvcc >/dev/null || { missing build "nvcc, or --build with what pack.sh made elsewhere" && exit 2; }
    TOKEND_GPU_LINES=15 part build 240 bash -c "$(declare -f arch compile); compile" || exit 1
fi
build=$(cd "${build:-build}" && pwd) || exit 2
[ ! -d "$build/lib" ] || export LD_LIBRARY_PATH=$build/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export TOKEND_TEST_DATA=$PWD/tests/data
if [ -n "$emulated" ]; then
    export TOKEND_CUDA_MODULE=$build/tests/cuda_emu/tokend-cuda-emu.so
    suffix=_emu tests="$build/tests/cuda_emu/test_cuda_emu"
else
    export TOKEND_CUDA_MODULE=$build/tokend-cuda.so
    suffix='' tests=$(find "$build/tests/gpu" -maxdepth 1 -type f -name 'gpu_test_*' | sort)
fi
gpu=$build/tests/gpu

# --- its parts ---

conformance() {
    "$1/conformance_emu" "$2/emulated" && "$1/conformance$3" "$2/here" "$2/emulated"
}
part "wrappers of PTX against the emulator" 60 bash -c "$(declare -f conformance); conformance '$gpu' '$work' '$suffix'"

for test in $tests; do
    part "${test##*/}" 60 "$test"
done

if [ -x "$build/tokend" ]; then
    part "the server" 120 python3 tests/gpu/serve_check.py --program "$build/tokend" ${emulated:+--emulated}
else
    missing "the server" "the program: build it elsewhere and bring it (pack.sh)"
fi

part "table" 180 "$gpu/gpu_bench$suffix" --json "$work/table.json" ${emulated:+--tiny}

# One after the other in what time is left: reading and writing past the end first, then races.
sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null)
if [ -n "$emulated" ]; then
    :
elif [ -z "$sanitizer" ]; then
    missing "compute-sanitizer" "that tool (of the CUDA toolkit)"
else
    for tool in memcheck racecheck; do
        for test in $tests; do
            TOKEND_GPU_LINES=12 part "$tool of ${test##*/}" 60 "$sanitizer" --tool $tool --error-exitcode 9 "$test"
        done
    done
fi

if [ -n "$json" ]; then
    printf '{"parts": [%s],\n"table": %s}\n' "$parts" "$(cat "$work/table.json" 2>/dev/null || echo null)" >"$json"
fi
[ -z "$emulated" ] || echo "EMULATED: figures of the table are no GPU's"
echo "took $((SECONDS - start)) s"
echo "$passed passed, $failed failed"
[ $failed = 0 ]
