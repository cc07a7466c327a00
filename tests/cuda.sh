# cuda.sh: sourced by run.sh and full.sh; NVIDIA's tools from wheels, and the build of all architectures.

# cuda_wheels: puts the toolkit of tests/cuda-wheels.txt before all others that this machine has; made once
# for each state of that file, in tests/.cuda (1.5 GB). Wants make_venv first.
cuda_wheels() {
    local into=tests/.cuda
    local home=$into/nvidia/cu13
    if ! cmp -s tests/cuda-wheels.txt "$into/cuda-wheels.txt"; then
        rm -rf "$into"
        tests/.venv/bin/pip install -q --disable-pip-version-check --no-deps --only-binary=:all: \
            --target "$into" -r tests/cuda-wheels.txt >&2
        # what the wheels leave out of a toolkit's form, and pip of programs' modes
        ln -s lib "$home/lib64"
        for library in cudart cublas cublasLt; do
            ln -sf "lib$library.so.13" "$home/lib/lib$library.so"
        done
        chmod +x "$home"/bin/* "$home"/nvvm/bin/*
        cp tests/cuda-wheels.txt "$into/"
    fi
    export PATH=$PWD/$home/bin:$PATH
    nvcc --version >/dev/null
}

cuda_all_there() {
    ninja -C "$1" -t query tokend-cuda-all.so >/dev/null 2>&1
}

cuda_all_build() {
    ninja -C "$1" tokend-cuda-all.so tests/cuda_emu/all_wrappers.o
}

# Instructions are counted where NVIDIA's disassembler is or can be had.
cuda_all_check() {
    local sass
    sass=$(cuda_disassembler) || echo "SKIPPED counts of instructions: no cuobjdump, and its wheel cannot be had"
    python3 tests/cuda_resources.py "$1" ${sass:+--sass "$sass"}
}

# Prints the path of cuobjdump, which has nvdisasm beside it.
cuda_disassembler() {
    local into=tests/.cuda-tools
    local wheel=$into/nvidia/cu13/bin/cuobjdump
    if command -v nvdisasm >/dev/null; then
        command -v cuobjdump && return
    fi
    [ -x "$wheel" ] || tests/.venv/bin/pip install -q --disable-pip-version-check --target "$into" \
        'nvidia-cuda-cuobjdump>=13,<14' 'nvidia-cuda-nvdisasm>=13,<14' >&2 || return 1
    echo "$wheel"
}
