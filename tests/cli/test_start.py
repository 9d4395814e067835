"""What a command says and imports before its first step."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.commands import environment

SLOW = ("torch", "numpy", "scipy", "torch_geometric")
NOT_NEEDED = ("sklearn", "pandas", "torch._dynamo", "matplotlib", "torch_geometric", "scipy.stats")

# Runs a command and prints, for each line on standard error, which of some modules were imported when it was written.
WATCH = """
import json, sys
class Told:
    def __init__(self, stream): self.stream, self.lines = stream, []
    def __getattr__(self, name): return getattr(self.stream, name)
    def write(self, text):
        if text.strip():
            self.lines.append((text.strip(), [name for name in sys.argv[1].split() if name in sys.modules]))
        return len(text)
told = sys.stderr = Told(sys.stderr)
from gistgnn.cli.main import main
status = main(sys.argv[2:])
print(json.dumps(told.lines))
sys.exit(status)
"""


def watch(folder: Path, *args: str) -> list[tuple[str, list[str]]]:
    words = [sys.executable, "-c", WATCH, " ".join((*SLOW, *NOT_NEEDED)), *args]
    done = subprocess.run(words, cwd=folder, env=environment(), capture_output=True, text=True, check=True)
    return [(line, modules) for line, modules in json.loads(done.stdout.splitlines()[-1])]


@pytest.mark.parametrize("sampler", [(), ("--sampler", "ladies")], ids=["full", "ladies"])
def test_the_first_line_comes_before_torch_and_the_first_step_without_what_it_does_not_need(
    tmp_path: Path, sampler: tuple[str, ...]
) -> None:
    lines = watch(tmp_path, "train", *sampler, "--hidden", "16", "16", "--epochs", "4", "--out", "run")
    assert lines[0] == ("gistgnn: starting: GCN 16-16, m = 4, on digits", [])
    first_round = next(modules for line, modules in lines if line.startswith("round 1/"))
    assert not set(first_round) & set(NOT_NEEDED)
    assert "torch" in first_round


def test_a_comparison_says_what_it_compares_before_torch_is_imported(tmp_path: Path) -> None:
    words = ("compare", "--hidden", "16", "16", "--sub-gcns", "2", "--epochs", "2", "--out", "table")
    assert watch(tmp_path, *words)[0] == ("gistgnn: starting: GCN 16-16, m = 2, on digits", [])


def test_phases_say_their_m_later(tmp_path: Path) -> None:
    lines = watch(tmp_path, "train", "--hidden", "16", "--phases", "2:2", "1:1", "--dataset", "digits", "--out", "run")
    assert lines[0] == ("gistgnn: starting: GCN 16, on digits", [])
