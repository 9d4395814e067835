"""A folder that one process writes is refused to others, until that process has ended."""

import errno
import fcntl
import os
import signal
import socket
import time
from pathlib import Path

import pytest

from gistgnn.storage.folder_lock import FolderInUseError, FolderLock, waiting_lock
from tests.cli.in_process import wait_until
from tests.helpers.commands import Forked
from tests.helpers.logs import logged
from tests.helpers.refusals import refused


def hold(folder: str, seconds: float) -> int:
    """Lock a folder for some time; the status says whether it was refused."""
    try:
        with FolderLock(Path(folder)):
            Path(folder, f"won-{os.getpid()}").touch()
            time.sleep(seconds)
    except FolderInUseError as error:
        print(error)
        return 2
    return 0


def test_a_folder_in_use_is_refused_with_its_holder(tmp_path: Path) -> None:
    process = Forked(tmp_path, hold, "run", 60)
    try:
        (mark,) = wait_until(lambda: [*tmp_path.glob("run/won-*")], process)
        pid = mark.name.removeprefix("won-")
        message = f"run is being written by process {pid} on host {socket.gethostname()} since 20"
        with refused(message, "UTC: wait for it, or give another --out", error=FolderInUseError):
            FolderLock(tmp_path / "run", advice="give another --out")
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()
    assert (tmp_path / "run/.gistgnn.lock").exists()  # but nobody holds it
    with FolderLock(tmp_path / "run"):
        pass
    assert not (tmp_path / "run/.gistgnn.lock").exists()


def test_of_several_processes_one_wins(tmp_path: Path) -> None:
    processes = [Forked(tmp_path, hold, str(tmp_path / "run"), 4) for _ in range(4)]
    results = [process.completed() for process in processes]
    assert sorted(result.returncode for result in results) == [0, 2, 2, 2]
    for result in results:
        assert ("is being written by process" in result.stdout) == (result.returncode == 2)
    assert len(list(tmp_path.glob("run/won-*"))) == 1


def test_a_lock_leaves_no_trace(tmp_path: Path) -> None:
    folder = tmp_path / "new/deep"
    with FolderLock(folder), FolderLock(folder), FolderLock(folder, beside=True):
        assert sorted(path.name for path in folder.parent.iterdir()) == [
            ".gistgnn-deep.lock",
            "deep",
        ]
        assert (folder / ".gistgnn.lock").exists()
    assert list(tmp_path.iterdir()) == []
    lock = FolderLock(folder)
    again = FolderLock(folder)
    (folder / "result").touch()
    lock.free()
    lock.free()
    assert (folder / ".gistgnn.lock").exists()
    del again  # frees it, too
    assert [path.name for path in folder.iterdir()] == ["result"]


def test_what_cannot_be_locked_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("precious")
    with refused("cannot write", "mine/run"):
        FolderLock(tmp_path / "mine/run")
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
    (tmp_path / "run").mkdir()
    (tmp_path / "run/.gistgnn.lock").symlink_to(tmp_path / "mine")
    with refused("cannot write"):
        FolderLock(tmp_path / "run")
    assert (tmp_path / "mine").read_text() == "precious"


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.ENOTSUP, errno.ENOLCK, errno.EIO])
def test_a_file_system_without_locks_is_told_and_one_that_fails_is_refused(
    tmp_path: Path, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def flock(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", flock)
    if number == errno.EIO:
        with refused("cannot write", "run"):
            FolderLock(tmp_path / "run")
        return
    for _ in range(2):  # nothing is left that would refuse the next run
        with (
            logged() as notes,
            FolderLock(tmp_path / "run"),
            FolderLock(tmp_path / "run", beside=True),
        ):
            (tmp_path / "run" / "result").touch()
            with waiting_lock(tmp_path / "run" / "lock"):
                pass
        assert len(notes) == 3
        assert all(f"{tmp_path / 'run'}: its file system has no locks" in note for note in notes)
        assert not list(tmp_path.rglob(".gistgnn*"))
