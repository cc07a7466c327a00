"""Small storms of bad clients; tests/load/storms.py has the large ones."""
import os
import sys

import pytest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../load"))
import storms  # noqa: E402
from tokend import Tokend  # noqa: E402


@pytest.fixture(scope="module")
def server():
    with Tokend(*storms.FLAGS) as s:
        yield s


@pytest.mark.parametrize("name", storms.STORMS)
def test_a_storm_leaves_no_trace(server, name):
    _, wrong = storms.storm(server, name, 200)
    assert not [w for w in wrong if "resident memory" not in w]  # the first of a kind warms it up
