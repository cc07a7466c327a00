#!/usr/bin/env bash
# run.sh: installs what the tests need, builds, and runs every quick test (README: Tests).
# TOKEND_BUILD: another build folder. TOKEND_CUDA=wheels: NVIDIA's compiler and headers from PyPI, where the
# machine has none. Arguments go to pytest.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. config/packages.sh
. tests/count.sh
. tests/e2e.sh
. tests/cuda.sh

need_packages $build_packages libcmocka-dev curl ca-certificates python3 python3-venv
build=${TOKEND_BUILD:-build}
make_venv
if [ "${TOKEND_CUDA:-}" = wheels ]; then
    need_packages g++
    cuda_wheels
fi
build_tokend "$build" --werror
export TOKEND_CORPUS=${TOKEND_CORPUS:-$PWD/../shared/golden}
export TOKEND_MODEL
TOKEND_MODEL=$(bash config/model.sh)

suite "unit tests" meson test -C "$build" --print-errorlogs
note_skipped "$build/meson-logs/testlog.txt"
suite "end to end" end_to_end "$build" "$@"
close_counts
