#!/usr/bin/env bash
# run.sh: installs what the tests need, builds, and runs every quick test (README: Tests).
# TOKEND_BUILD: another build folder. Arguments go to pytest.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. config/packages.sh
. tests/count.sh

need_packages $build_packages libcmocka-dev curl ca-certificates python3 python3-venv
build=${TOKEND_BUILD:-build}
build_tokend "$build" --werror

venv=tests/.venv
if ! cmp -s tests/requirements.txt "$venv/requirements.txt"; then
    rm -rf "$venv"
    python3 -m venv "$venv"
    "$venv/bin/pip" install -q --disable-pip-version-check -r tests/requirements.txt
    cp tests/requirements.txt "$venv/"
fi
export TOKEND_CORPUS=${TOKEND_CORPUS:-$PWD/../shared/golden}
export TOKEND_MODEL TOKEND_PROGRAM=$PWD/$build/tokend TOKEND_BUILD=$PWD/$build
TOKEND_MODEL=$(bash config/model.sh)

suite "unit tests" meson test -C "$build" --print-errorlogs
suite "end to end" "$venv/bin/python" -m pytest -q -p no:cacheprovider tests/e2e "$@"
close_counts
