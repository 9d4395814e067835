"""What `mypy --strict` says of users' code, and what the public surface shows."""

import inspect
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import get_args

import gistgnn
from gistgnn import GIST
from gistgnn.partition import KINDS
from gistgnn.runners.registry import RUNNERS, RunnerName
from gistgnn.sampling.registry import FULL, SAMPLERS, SamplerName
from gistgnn.theta.registry import SHARDED, STORES, StoreName
from gistgnn.training.names import NAMES, LossName, MetricName, OptimizerName, ScheduleName
from tests.examples.test_examples import PROGRAM
from tests.test_docs import README_BLOCKS

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


def test_mypy_accepts_users_code_and_finds_their_mistakes(tmp_path: Path) -> None:
    """One run of mypy for all, with the cache of `make types`."""
    for number, block in enumerate(README_BLOCKS):
        (tmp_path / f"readme_{number}.py").write_text(block)
    for path in (HERE / "calls.py", *(ROOT / "examples").glob("*.py")):
        shutil.copy(path, tmp_path)
    (tmp_path / "notebook.py").write_text(PROGRAM)
    options = ("--no-error-summary", "--hide-error-context")
    words = [sys.executable, "-m", "mypy", *options, *map(str, tmp_path.glob("*.py"))]
    out = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=300).stdout
    errors = re.findall(r"^(.*)\.py:(\d+): error: .*\[(.*)\]$", out, flags=re.MULTILINE)
    lines = (HERE / "calls.py").read_text().splitlines()
    expected = [
        (str(number), line.rpartition("# ")[2])
        for number, line in enumerate(lines, 1)
        if "  # " in line
    ]
    assert len(expected) >= 10
    in_calls = [(line, code) for path, line, code in errors if path.endswith("calls")]
    assert Counter(in_calls) == Counter(expected), out
    assert len(in_calls) == len(errors), out


def test_the_names_for_type_checkers_are_those_of_the_registries() -> None:
    literals = (LossName, MetricName, OptimizerName, ScheduleName)
    assert list(NAMES.values()) == [get_args(literal) for literal in literals]
    assert get_args(RunnerName) == tuple(RUNNERS)
    assert get_args(SamplerName) == (FULL, *SAMPLERS)
    assert get_args(StoreName) == (
        *(name for name, store in STORES.items() if store.holds != "disk"),
        SHARDED,
    )
    parameter = inspect.signature(GIST).parameters["partition"]
    assert get_args(parameter.annotation) == KINDS


def test_the_package_lists_its_public_names() -> None:
    assert {"GIST", "Graph", "Result", "Training", "Callback", "Metric", "load_run"} <= set(
        dir(gistgnn)
    )
    assert all(getattr(gistgnn, name) is not None for name in dir(gistgnn))
    assert issubclass(gistgnn.InputError, ValueError)
