"""Tiny random models of every architecture, in odd shapes, through the real engine: their logits,
greedy answers and prompt scores are those of a plain forward pass in NumPy."""
import os
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "reference"))
import tiny_checkpoints  # noqa: E402
import tiny_models  # noqa: E402


@pytest.mark.parametrize("name", tiny_models.MODELS)
def test_a_tiny_model_gives_the_numbers_of_the_reference(name, tmp_path):
    seed = int(os.environ.get("TOKEND_SEED", 1))
    tiny_models.make(tmp_path, name, seed)
    run = subprocess.run([os.environ["TOKEND_TEST_GOLDEN"], tmp_path], capture_output=True,
                         text=True, timeout=120)
    assert run.returncode == 0, f"TOKEND_SEED={seed}\n{run.stdout}\n{run.stderr}"
    assert "1 test(s) run" in run.stdout + run.stderr


@pytest.mark.parametrize("name", [*tiny_checkpoints.HF, *tiny_checkpoints.OTHERS])
def test_a_tiny_checkpoint_gives_the_same_numbers(name, tmp_path):
    seed = int(os.environ.get("TOKEND_SEED", 1))
    tiny_checkpoints.OTHERS.get(name, tiny_checkpoints.make)(tmp_path, name, seed)
    run = subprocess.run([os.environ["TOKEND_TEST_GOLDEN_HF"], tmp_path], capture_output=True,
                         text=True, timeout=120)
    assert run.returncode == 0, f"TOKEND_SEED={seed}\n{run.stdout}\n{run.stderr}"
    assert "1 test(s) run" in run.stdout + run.stderr
