#!/usr/bin/env bash
# pack.sh BUILD OUT: what check.sh needs of a build, with the libraries that it is linked with, for a
# machine that lacks them: tests/gpu/check.sh --build OUT there. The build should be of that machine's
# GPU (meson setup BUILD -Dgpu_arch=90a).
set -euo pipefail
build=$1 out=$2
programs="tokend tokend-cuda.so tests/gpu/gpu_bench tests/gpu/conformance tests/gpu/conformance_emu"
programs+=" $(cd "$build" && find tests/gpu -maxdepth 1 -type f -name 'gpu_test_*')"
mkdir -p "$out/tests/gpu" "$out/lib"
for p in $programs; do
    strip -o "$out/$p" "$build/$p"
    # the C library itself is the machine's own
    ldd "$build/$p" | awk '$3 ~ /^\// && $3 !~ /\/(libc|libm|libdl|librt|libpthread|libstdc\+\+|libgcc_s)\.so/ {print $3}' |
        xargs -r cp -uLt "$out/lib"
done
du -sh "$out"
