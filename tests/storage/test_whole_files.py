import errno
import os
import signal
import stat
import time
from pathlib import Path

import pytest

from gistgnn.errors import InputError
from gistgnn.storage.whole_files import check_writable, remove_leftovers, replacing
from tests.helpers.commands import Forked
from tests.helpers.refusals import refused


def test_the_file_appears_whole_when_the_block_ends(tmp_path: Path) -> None:
    path = tmp_path / "new" / "deep" / "result.json"
    with replacing(path) as temporary:
        assert temporary.parent == path.parent
        assert temporary.suffix == ".json"
        temporary.write_text("whole")
        assert not path.exists()
    assert path.read_text() == "whole"
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, SystemExit])
def test_an_error_leaves_the_old_file_and_nothing_else(tmp_path: Path, error: type[BaseException]) -> None:
    path = tmp_path / "result.json"
    path.write_text("old")

    def failing() -> None:
        with replacing(path) as temporary:
            temporary.write_text("half")
            raise error

    with pytest.raises(error):
        failing()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o077, 0o600), (0o002, 0o664)])
def test_permissions_follow_the_umask(tmp_path: Path, umask: int, mode: int) -> None:
    before = os.umask(umask)
    try:
        with replacing(tmp_path / "file") as temporary:
            temporary.write_text("x")
        assert os.umask(umask) == umask
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == mode


def test_a_full_disk_is_refused_and_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    path = tmp_path / "result.json"
    path.write_text("old")
    monkeypatch.setattr(os, "fsync", full)
    with refused("cannot write", str(path), "No space left on device"), replacing(path) as temporary:
        temporary.write_text("new")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_parent_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    for path in (tmp_path / "file" / "result.json", tmp_path / "file" / "deep" / "result.json"):
        with refused("cannot write", str(path)), replacing(path):
            pytest.fail("there is no place to write to")
    assert (tmp_path / "file").read_text() == "mine"


def test_a_directory_in_the_place_of_the_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "result.json").mkdir()
    with refused("cannot write", "result.json"), replacing(tmp_path / "result.json") as temporary:
        temporary.write_text("x")
    assert list(tmp_path.iterdir()) == [tmp_path / "result.json"]


def test_check_writable_leaves_no_trace(tmp_path: Path) -> None:
    check_writable(tmp_path)
    check_writable(tmp_path / "new" / "out")
    assert list(tmp_path.iterdir()) == []


def test_check_writable_keeps_what_is_there(tmp_path: Path) -> None:
    for name in ("probe", "result.json", ".probe"):
        (tmp_path / name).write_text("mine")
    check_writable(tmp_path)
    assert {p.name: p.read_text() for p in tmp_path.iterdir()} == dict.fromkeys(
        ("probe", "result.json", ".probe"), "mine"
    )


def test_check_writable_refuses(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with refused("cannot write", "file"):
        check_writable(tmp_path / "file")


def leave(folder: str) -> None:
    """Begin to write two files, and wait."""
    with (
        replacing(Path(folder) / "model.safetensors") as model,
        replacing(Path(folder) / "deep/in/curves.png") as curves,
    ):
        model.write_text("half")
        curves.write_text("half")
        (Path(folder) / "begun").touch()
        time.sleep(60)


def test_what_a_killed_process_left_is_removed_and_nothing_else(tmp_path: Path) -> None:
    process = Forked(tmp_path, leave, str(tmp_path))
    until = time.monotonic() + 60
    while not (tmp_path / "begun").exists():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < until
        time.sleep(0.01)
    for name in (".model-mine.safetensors", "gistgnn-mine", ".gistgnn.lock"):
        (tmp_path / name).write_text("mine")
    (tmp_path / ".gistgnn-folder").mkdir()
    precious = tmp_path / "precious"
    precious.write_text("mine")
    (tmp_path / ".gistgnn-link").symlink_to(precious)
    os.mkfifo(tmp_path / ".gistgnn-fifo")

    def halves() -> list[Path]:
        return [*tmp_path.glob(".gistgnn-*-model.safetensors"), *tmp_path.glob("deep/in/.gistgnn-*-curves.png")]

    remove_leftovers(tmp_path, ["deep/*", "missing/*"])
    assert len(halves()) == 2  # their process lives
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert len(halves()) == 2
    remove_leftovers(tmp_path)
    assert len(halves()) == 1
    remove_leftovers(tmp_path, ["deep/*", "missing/*"])
    assert halves() == []
    assert precious.read_text() == "mine"
    for name in (".model-mine.safetensors", "gistgnn-mine", ".gistgnn.lock", ".gistgnn-folder", ".gistgnn-link"):
        assert (tmp_path / name).exists()


def test_a_pipe_is_not_replaced(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "out.csv")
    with pytest.raises(InputError, match="it is a pipe, a socket or a device"), replacing(tmp_path / "out.csv"):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["out.csv"]
