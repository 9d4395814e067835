import os
import signal
import stat
import time
from pathlib import Path

import pytest

from gistgnn.storage.whole_files import remove_leftovers, replacing
from tests.cli.in_process import wait_until
from tests.helpers.commands import Forked
from tests.helpers.refusals import full_disk, refused


def test_the_file_appears_whole_when_the_block_ends(tmp_path: Path) -> None:
    path = tmp_path / "new" / "deep" / "result.json"
    with replacing(path) as temporary:
        assert temporary.parent == path.parent
        assert temporary.suffix == ".json"
        temporary.write_text("whole")
        assert not path.exists()
    assert path.read_text() == "whole"
    assert list(path.parent.iterdir()) == [path]
    for umask, mode in ((0o022, 0o644), (0o077, 0o600), (0o002, 0o664)):
        before = os.umask(umask)
        try:
            with replacing(path) as temporary:
                temporary.write_text("x")
        finally:
            assert os.umask(before) == umask
        assert stat.S_IMODE(path.stat().st_mode) == mode


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_an_error_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, error: type[BaseException]
) -> None:
    path = tmp_path / "result.json"
    path.write_text("old")
    with pytest.raises(error), replacing(path) as temporary:  # noqa: PT012
        temporary.write_text("half")
        raise error
    assert (path.read_text(), list(tmp_path.iterdir())) == ("old", [path])


def test_a_full_disk_is_refused_and_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "result.json"
    path.write_text("old")
    monkeypatch.setattr(os, "fsync", full_disk)
    with (
        refused("cannot write", str(path), "No space left on device"),
        replacing(path) as temporary,
    ):
        temporary.write_text("new")
    assert (path.read_text(), list(tmp_path.iterdir())) == ("old", [path])


def test_what_cannot_be_written_is_refused_and_stays(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    before = sorted(tmp_path.iterdir())
    for name in ("file/result.json", "file/deep/result.json", "folder", "pipe"):
        path = tmp_path / name
        with refused("cannot write", str(path)), replacing(path) as temporary:
            temporary.write_text("x")
    assert sorted(tmp_path.iterdir()) == before
    assert (tmp_path / "file").read_text() == "mine"


def leave(folder: str) -> None:
    """Begin to write two files, and wait."""
    model = Path(folder) / "model.safetensors"
    curves = Path(folder) / "deep/in/report.html"
    with replacing(model) as one, replacing(curves) as other:
        one.write_text("half")
        other.write_text("half")
        (Path(folder) / "begun").touch()
        time.sleep(60)


MINE = (
    ".model-mine.safetensors",
    "gistgnn-mine",
    ".gistgnn.lock",
    ".gistgnn-folder",
    ".gistgnn-link",
    ".gistgnn-fifo",
)


def test_what_a_killed_process_left_is_removed_and_nothing_else(tmp_path: Path) -> None:
    process = Forked(tmp_path, leave, str(tmp_path))
    wait_until((tmp_path / "begun").exists, process)
    precious = tmp_path / "precious"
    for name in ("precious", *MINE[:3]):
        (tmp_path / name).write_text("mine")
    (tmp_path / ".gistgnn-folder").mkdir()
    (tmp_path / ".gistgnn-link").symlink_to(precious)
    os.mkfifo(tmp_path / ".gistgnn-fifo")

    def halves() -> int:
        models = [*tmp_path.glob(".gistgnn-*-model.safetensors")]
        reports = [*tmp_path.glob("deep/in/.gistgnn-*-report.html")]
        return len(models) + len(reports)

    remove_leftovers(tmp_path, ["deep/*", "missing/*"])
    assert halves() == 2  # their process lives
    process.send_signal(signal.SIGKILL)
    process.communicate()
    remove_leftovers(tmp_path)
    assert halves() == 1
    remove_leftovers(tmp_path, ["deep/*", "missing/*"])
    assert halves() == 0
    assert precious.read_text() == "mine"
    assert {path.name for path in tmp_path.iterdir()} == {*MINE, "precious", "begun", "deep"}
