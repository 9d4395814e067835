"""Where a result says that it comes from."""

import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from gistgnn import __version__
from gistgnn.utils.machine import git_commit, provenance


def test_everything_that_the_docs_name_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for argv, shown in {
        ("/somewhere/bin/gistgnn", "train", "--out", "a run"): "gistgnn train --out 'a run'",
        ("/x/gistgnn/__main__.py", "train"): "python -m gistgnn train",
        ("own.py", "--fast"): "python own.py --fast",
        ("",): "python",
    }.items():
        monkeypatch.setattr("sys.argv", list(argv))
        assert provenance("cpu")["command"] == shown
    found = provenance("cpu")
    assert found["version"] == __version__
    assert timedelta(0) <= datetime.now(UTC) - datetime.fromisoformat(found["date"]) < timedelta(minutes=5)
    assert "cores" in found["machine"]
    assert found["libraries"]["torch"]
    assert found["git"] is None


def test_the_commit_and_whether_files_differ(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def git(*words: str) -> str:
        identity = ("-c", "user.name=a", "-c", "user.email=a@example.org")
        return subprocess.check_output(["git", *identity, *words], cwd=tmp_path, text=True).strip()

    git("init", "--quiet")
    assert git_commit(tmp_path) is None, "a repository without a commit"
    (tmp_path / "model.py").write_text("x = 1")
    git("add", ".")
    git("commit", "--quiet", "--no-verify", "-m", "one")
    (tmp_path / "notes.txt").write_text("untracked")
    assert git_commit(tmp_path) == {"commit": git("rev-parse", "HEAD"), "changed": False}
    (tmp_path / "model.py").write_text("x = 2")
    assert git_commit(tmp_path)["changed"] is True
    monkeypatch.setenv("PATH", "")  # git is not installed
    assert git_commit(tmp_path) is None
