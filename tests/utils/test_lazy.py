import subprocess
import sys

import pytest

from gistgnn.nn import GCN, MODELS
from gistgnn.utils.lazy import Registry

LIST = """
import sys
from gistgnn.nn import MODELS
print(*MODELS, "gat" in MODELS, "torch" in sys.modules)
"""


def test_a_lookup_imports_the_module() -> None:
    numbers = Registry[float]({"pi": "math:pi", "missing": "math:no_such_number"})
    assert numbers["pi"] == pytest.approx(3.14159, abs=1e-5)
    assert list(numbers) == ["pi", "missing"]
    assert len(numbers) == 2
    with pytest.raises(AttributeError):
        numbers["missing"]
    with pytest.raises(KeyError):
        numbers["e"]


def test_the_models_are_listed_without_torch() -> None:
    listed = subprocess.run([sys.executable, "-c", LIST], capture_output=True, text=True, check=True)
    assert listed.stdout.split() == ["gcn", "graphsage", "gat", "gatv2", "gin", "True", "False"]
    assert MODELS["gcn"] is GCN


def test_an_unknown_public_name() -> None:
    import gistgnn.nn

    with pytest.raises(AttributeError, match=r"module 'gistgnn\.nn' has no attribute 'NoSuchModel'"):
        _ = gistgnn.nn.NoSuchModel
