"""The folder in which a graph is made: it becomes the target when it is whole, and is gone on with after a kill."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import shutil
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gistgnn.errors import GistError, InputError
from gistgnn.graphs.on_disk.manifest import MANIFEST, Manifest
from gistgnn.graphs.on_disk.npy import values_begin
from gistgnn.storage.folder_lock import locked
from gistgnn.storage.records import RecordError, load_record, write_record
from gistgnn.storage.whole_files import TEMPORARY, unwritable
from gistgnn.utils.checksums import digest_of
from gistgnn.utils.formats import size

_PROGRESS, _VERSION = "progress.json", 1

log = logging.getLogger(__name__)


class Making:
    """A folder beside the target in which a graph is made, pass by pass.

    What a pass has reached is recorded, so that the same command goes on there when it is run again.

    Args:
        target: the folder that the graph will have.
        made_from: a digest of all that decides the graph. A folder of another graph is not gone on with.

    Attributes:
        folder: where files are written.
        needed: about how many bytes the disk must have for all passes, for the message of a full disk.
    """

    def __init__(self, target: Path, made_from: str) -> None:
        self.target, self.made_from = target, made_from
        self.folder = target.with_name(f"{TEMPORARY}convert-{target.name}")
        self.needed = 0
        if self.folder.is_symlink() or (self.folder.exists() and not self.folder.is_dir()):
            raise InputError(f"{self.folder} is in the way, and is no folder: remove it")
        self._reached: dict[str, Any] = {}
        try:
            record = load_record(self.folder / _PROGRESS, _VERSION, {"made_from": str, "reached": dict})
            if record["made_from"] == made_from:
                self._reached = record["reached"]
        except (OSError, RecordError):
            pass
        if self._reached:
            log.info("going on with %s, which was interrupted", target)
        else:
            self.discard()
        self.folder.mkdir(parents=True, exist_ok=True)

    def reached(self, what: str) -> Any:
        """Return what was recorded of a pass; None: nothing."""
        return self._reached.get(what)

    def record(self, what: str, value: Any) -> None:
        """Record how far a pass has come. What it has written must be on the disk."""
        self._reached[what] = value
        write_record(self.folder / _PROGRESS, {"made_from": self.made_from, "reached": self._reached}, _VERSION)

    def publish(self, manifest: Manifest) -> None:
        """Give the folder the name of the target.

        Raises:
            InputError: a file of a pass that was finished before is not what it was, by its size.
        """
        for name, array in manifest.arrays.items():
            values_begin(self.folder / f"{name}.npy", array)
        manifest.write(self.folder)
        for path in self.folder.iterdir():
            if path.name != MANIFEST and path.name.removesuffix(".npy") not in manifest.arrays:
                path.unlink()
        os.rename(self.folder, self.target)

    def discard(self) -> None:
        """Remove the folder and what is in it."""
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(self.folder)

    def full(self, error: BaseException) -> InputError:
        """Return the error for a disk that is full."""
        with contextlib.suppress(OSError):
            held = sum(path.stat().st_size for path in self.folder.iterdir())
            return InputError(
                f"the disk of {self.target} is full: the graph takes about {size(self.needed)} while it is made, "
                f"{size(held)} of it are written: make room, and run the same command again to go on"
            )
        return unwritable(self.target, error if isinstance(error, Exception) else OSError())


@contextlib.contextmanager
def making(target: Path, identity: Mapping[str, Any]) -> Iterator[Making | None]:
    """Lock a target and yield the folder in which it is made; None if the same graph is there already.

    Bad input leaves nothing behind. After a kill, Ctrl-C, an error of the system or a full disk, passes that are
    finished stay.

    Args:
        target: must not exist, or be an empty folder. A link stands for the place that it leads to.
        identity: all that decides the graph, for JSON.

    Raises:
        InputError: the target exists, is being made by another process, or cannot be written.
    """
    target = _behind_links(target)
    made_from = digest_of(identity)
    if _is_made(target, made_from):
        yield None
        return
    with locked(target, beside=True, advice="choose another folder"):
        try:
            work = Making(target, made_from)
        except OSError as error:
            raise unwritable(target, error) from error
        try:
            yield work
        except KeyboardInterrupt:
            if work._reached:
                log.info("what is finished is kept in %s: run the same command again to go on", work.folder)
            else:
                work.discard()
            raise
        except (GistError, OSError) as error:
            cause = error if isinstance(error, OSError) else error.__cause__
            if isinstance(cause, OSError) and cause.errno in (errno.ENOSPC, errno.EDQUOT):
                raise work.full(cause) from error
            if isinstance(error, GistError):
                work.discard()
                raise
            raise unwritable(target, error) from error


def read_numbers(path: Path, dtype: np.dtype[Any], count: int, begin: int = 0) -> npt.NDArray[Any]:
    """Return all numbers of a file that a pass has written, from byte ``begin`` on: [count].

    Raises:
        InputError: it does not hold so many, as after a failure of the machine. What is made begins anew then.
    """
    size = begin + count * dtype.itemsize
    about = path.stat() if path.exists() else None
    if about is not None and not stat.S_ISREG(about.st_mode):
        raise InputError(f"{path} is no regular file: run the same command again, which begins anew")
    found = about.st_size if about else 0
    if found != size and (about or count):
        raise InputError(
            f"{path} is damaged: {found:,} bytes, expected {size:,}: run the same command again, which begins anew"
        )
    return np.fromfile(path, dtype, offset=begin) if about else np.empty(0, dtype)


def _behind_links(target: Path) -> Path:
    """Return the place that a link leads to: a folder takes that name in the end, and cannot take a link's."""
    if not target.is_symlink():
        return target
    behind = Path(os.path.realpath(target))
    if behind.is_symlink():
        raise InputError(f"{target} is a link that leads back to itself: choose another folder")
    return behind


def _is_made(target: Path, made_from: str) -> bool:
    """Whether the target is there already, made from the same source.

    Raises:
        InputError: something else is there.
    """
    try:
        if not target.exists() or (target.is_dir() and not any(target.iterdir())):
            return False
    except OSError as error:
        raise unwritable(target, error) from error
    if (target / MANIFEST).exists() and Manifest.read(target).made_from == made_from:
        return True
    raise InputError(f"{target} is there already, and is not this graph: choose another folder, or remove it")
