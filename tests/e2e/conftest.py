"""TOKEND_E2E_DEVICE=cuda runs the tests on the CUDA backend, on the emulated device of tests/cuda_emu:
every program that they start finds it in the environment, and the model is one that the emulator
computes in no time (tiny_chat.py). Marks say which tests are of the CPU backend or of the real model.
"""
import os
import sys
import tempfile

import pytest

sys.path.insert(0, os.path.dirname(__file__))

DEVICE = os.environ.pop("TOKEND_E2E_DEVICE", "cpu")  # which is no setting of the program
EMULATED_MIB = 128

# Files of tests that open no backend, or only to measure the CPU's
NOT_OF_DEVICE = {
    "test_architectures.py": "runs test programs of the CPU backend",
    "test_bench_peers.py": "measures",
    "test_cuda.py": "chooses devices itself",
    "test_http.py": "serves no model",
    "test_http_bad_clients.py": "serves no model",
    "test_inspect.py": "computes nothing",
    "test_render.py": "computes nothing",
    "test_repack_cache.py": "the CPU's weights are repacked",
    "test_storms.py": "measures memory under more clients than an emulated device serves",
    "test_threads.py": "measures the CPU's threads",
    "test_tokenize.py": "computes nothing",
}


def pytest_configure(config):
    config.addinivalue_line("markers", "cpu(why): of the CPU backend only, whatever TOKEND_E2E_DEVICE says")
    config.addinivalue_line("markers", "real_model: looks at answers that random weights do not give")
    if DEVICE != "cpu":
        use_emulated_device(config)


def use_emulated_device(config):
    import tiny_chat
    import tokend
    build = os.path.dirname(os.path.abspath(tokend.PROGRAM))
    module = os.path.join(build, "tests/cuda_emu/tokend-cuda-emu.so")
    if DEVICE != "cuda" or not os.path.exists(module):
        raise pytest.UsageError(f"TOKEND_E2E_DEVICE={DEVICE}: expected cuda, and {module}")
    folder = tempfile.TemporaryDirectory(prefix="tokend-e2e-")
    config.add_cleanup(folder.cleanup)
    model = os.path.join(folder.name, "tiny_chat.gguf")
    tiny_chat.make(model, tokend.MODEL)
    tokend.MODEL, tokend.EMULATED = model, True  # before the tests are imported
    # The largest steps run at each start.
    os.environ.update(TOKEND_DEVICE="cuda", TOKEND_CUDA_MODULE=module, TOKEND_EMU_MEMORY=str(EMULATED_MIB),
                      TOKEND_MAX_NUM_SEQS="8", TOKEND_MAX_NUM_BATCHED_TOKENS="32")


def why_not(item):
    """Why a test does not run on a device other than the CPU"""
    mark = item.get_closest_marker("cpu")
    if mark:
        return mark.args[0]
    if item.get_closest_marker("real_model"):
        return "looks at what a real model answers"
    if item.name.startswith("test_bench"):
        return "tokend bench takes its device from its flags alone"
    return None


def pytest_ignore_collect(collection_path):
    return True if DEVICE != "cpu" and collection_path.name in NOT_OF_DEVICE else None


def pytest_collection_modifyitems(items):
    for item in items:
        why = why_not(item) if DEVICE != "cpu" else None
        if why:
            item.add_marker(pytest.mark.skip(reason=f"on {DEVICE}: {why}"))
