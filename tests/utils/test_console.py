"""What commands print beside their results."""

import time
from pathlib import Path

import pytest

from gistgnn.utils import console


def test_a_long_path_in_a_table_is_never_broken(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    path = str(Path("runs", *["a-very-long-name"] * 12))
    console.print_table(f"of {path}", ("run", "test"), [(path, "0.9"), ("short", "0.95")], left=["run"])
    title, _, first, second = capsys.readouterr().out.splitlines()
    assert title == f"of {path}"
    assert first.split() == [path, "0.9"]
    assert len(first) == len(second)  # the numbers end in one column


def test_only_slow_tasks_are_named_in_a_log(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(console, "SLOW", 0.01)
    with console.spinner("thinking", shown=True), console.spinner("inside", shown=True):
        time.sleep(0.1)
    assert capsys.readouterr().err == "gistgnn: thinking\n"
    monkeypatch.setattr(console, "SLOW", 5.0)
    with console.spinner("thinking", shown=True):
        pass
    with console.spinner("thinking", shown=False):
        pass
    assert capsys.readouterr().err == ""
