"""What commands print beside their results."""

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


def test_a_log_has_the_outermost_of_the_tasks_that_are_logged(capsys: pytest.CaptureFixture[str]) -> None:
    with console.spinner("thinking", shown=True), console.spinner("inside", shown=True, logged=True):
        pass
    with console.spinner("outside", shown=True, logged=True), console.spinner("within", shown=True, logged=True):
        pass
    assert capsys.readouterr().err == "gistgnn: inside\ngistgnn: outside\n"
