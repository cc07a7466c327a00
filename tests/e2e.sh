# e2e.sh: sourced by run.sh and full.sh; runs the end-to-end tests against a build folder.

# Makes the Python environment of the tests, once for each state of requirements.txt.
make_venv() {
    local venv=tests/.venv
    cmp -s tests/requirements.txt "$venv/requirements.txt" && return
    rm -rf "$venv"
    python3 -m venv "$venv"
    "$venv/bin/pip" install -q --disable-pip-version-check -r tests/requirements.txt
    cp tests/requirements.txt "$venv/"
}

# end_to_end BUILD [arguments of pytest]
# The random inputs of the differential tests are the same in every run, so that a failure speaks of
# the change; TOKEND_SEED gives others.
end_to_end() {
    local build=$PWD/$1
    shift
    TOKEND_SEED=${TOKEND_SEED:-1} TOKEND_PROGRAM=$build/tokend TOKEND_HTTP_TOY=$build/tests/http_toy \
        TOKEND_TEST_GOLDEN=$build/tests/test_golden \
        TOKEND_TEST_GOLDEN_HF=$build/tests/test_golden_hf \
        tests/.venv/bin/python -m pytest -q -rs -p no:cacheprovider tests/e2e "$@"
}

# The same on the CUDA backend and the emulated device, for which gcc's plain build has a module where
# CUDA's headers are.
emulated_gpu() {
    [ -d build ] || meson setup build --werror
    if ! ninja -C build -t query tests/cuda_emu/tokend-cuda-emu.so >/dev/null 2>&1; then
        echo "SKIPPED end to end on the emulated GPU: needs CUDA's headers"
        return
    fi
    ninja -C build tokend tests/http_toy tests/cuda_emu/tokend-cuda-emu.so
    TOKEND_E2E_DEVICE=cuda end_to_end build "$@"
}
