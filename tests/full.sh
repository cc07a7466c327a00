#!/usr/bin/env bash
# full.sh: the slow rest of the tests: clang, AArch64 under qemu, storms of bad clients, the sanitizer
# builds, the fuzzers, the server on the emulated GPU, CUDA of all architectures.
# TOKEND_FUZZ_SECONDS: time of each fuzzer (10). TOKEND_STORM_CLIENTS: of each storm (1000).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. config/packages.sh
. tests/count.sh
. tests/e2e.sh
. tests/aarch64.sh
. tests/cuda.sh

need_packages $build_packages libcmocka-dev curl ca-certificates python3 python3-venv clang libclang-rt-14-dev
make_venv
export TOKEND_CORPUS=${TOKEND_CORPUS:-$PWD/../shared/golden}
export TOKEND_MODEL
TOKEND_MODEL=$(bash config/model.sh)

export ASAN_OPTIONS=detect_leaks=1:strict_string_checks=1 UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1
export TSAN_OPTIONS=halt_on_error=1

# gcc warns of what only its own instrumentation does, so --werror is for the plain builds.
suite "clang build" env CC=clang bash -c ". config/packages.sh; build_tokend build-clang --werror"
# Once gcc made wrong kernels at -O2 that it did not at -O3.
suite "gcc -O2: build" bash -c '[ -d build-o2 ] || meson setup build-o2 --werror -Dbuildtype=debugoptimized
    ninja -C build-o2 tests/test_cpu_ops tests/test_cpu_bits tests/test_cpu_moe'
suite "gcc -O2" meson test -C build-o2 --no-rebuild --print-errorlogs cpu_ops cpu_bits cpu_moe
if aarch64_install; then
    suite "AArch64: build" aarch64_compile
    suite "AArch64: tests of all sets" aarch64_tests max cpu_ops cpu_bits cpu_attention cpu_rows cpu_moe \
        team packing cuda_emu
    suite "AArch64: tests without i8mm" aarch64_tests neoverse-n1 cpu_rows cpu_moe
    suite "AArch64: tests without dotprod" aarch64_tests cortex-a57 cpu_rows cpu_moe
    suite "AArch64: the program takes i8mm" aarch64_program max i8mm
    suite "AArch64: the program takes dotprod" aarch64_program neoverse-n1 dotprod
    suite "AArch64: the program takes neon" aarch64_program cortex-a57 neon
else
    skipped+="SKIPPED AArch64: the compiler for it, qemu-user or its libraries cannot be installed here"$'\n'
fi
suite "storms" env TOKEND_PROGRAM="$PWD/build-clang/tokend" \
    tests/.venv/bin/python tests/load/storms.py --clients "${TOKEND_STORM_CLIENTS:-1000}"
suite "address and undefined behaviour sanitizers: build" bash -c \
    ". config/packages.sh; build_tokend build-asan -Db_sanitize=address,undefined -Dbuildtype=debugoptimized"
# As on an emulated processor: without the largest shapes, which take minutes here, too.
suite "address and undefined behaviour sanitizers" env TOKEND_EMULATED=1 \
    meson test -C build-asan --print-errorlogs -t 6
export TOKEND_SANITIZED=1 # tests that measure memory do not apply; nor do those of speed
suite "address and undefined behaviour sanitizers: end to end" end_to_end build-asan \
    --ignore=tests/e2e/test_bench_peers.py --ignore=tests/e2e/test_storms.py
# What has threads; numbers are compared in the other builds.
threaded="team packing engine engine_ahead engine_ends scheduler scheduler_history stream generation http api serve"
suite "thread sanitizer: build" env TARGETS="$(printf 'tests/test_%s ' $threaded)" bash -c \
    ". config/packages.sh; build_tokend build-tsan -Db_sanitize=thread -Dbuildtype=debugoptimized"
suite "thread sanitizer" meson test -C build-tsan --print-errorlogs -t 10 $threaded
for fuzzer in tests/fuzz/fuzz_*.c; do
    name=${fuzzer##*/fuzz_}
    name=${name%.c}
    suite "fuzzer: $name" bash tests/fuzz/run.sh "$name" "${TOKEND_FUZZ_SECONDS:-10}"
done

unset TOKEND_SANITIZED
# The longest, which few changes concern, are last: not begun after TOKEND_UNTIL (seconds since 1970).
in_time() {
    [ "$(date +%s)" -lt "${TOKEND_UNTIL:-9999999999}" ]
}
if in_time; then
    suite "end to end on the emulated GPU" emulated_gpu
else
    skipped+="SKIPPED end to end on the emulated GPU: TOKEND_UNTIL has passed"$'\n'
fi
build=${TOKEND_BUILD:-build}
[ -f "$build/build.ninja" ] || meson setup "$build" --werror >&2
if ! in_time; then
    skipped+="SKIPPED CUDA of all architectures: TOKEND_UNTIL has passed"$'\n'
elif cuda_all_there "$build"; then
    suite "CUDA of all architectures: build" cuda_all_build "$build"
    suite "CUDA of all architectures: registers and instructions" cuda_all_check "$build"
else
    skipped+="SKIPPED CUDA of all architectures: needs nvcc (TOKEND_CUDA=wheels takes it from PyPI)"$'\n'
fi
close_counts
