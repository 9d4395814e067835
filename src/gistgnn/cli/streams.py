"""Standard output and standard error, which may be closed, a full disk, or a program that has
ended.
"""

import contextlib
import io
import os
import sys
from typing import Any


class _Stream(io.FileIO):
    """A standard stream. After the first write that fails, all that is written is dropped.

    Nobody can be told that standard error fails, and a run goes on without its log: `print`, the
    progress bars and torch would raise in the middle of a round. Where standard output fails, the
    first write raises an OSError that names it.
    """

    _failed = False

    def write(self, data: Any) -> int:
        if not self._failed:
            try:
                return super().write(data)
            except OSError as error:
                self._failed = True
                if self.fileno() == 1:
                    raise OSError(error.errno, error.strerror, "standard output") from error
        return memoryview(data).nbytes


def open_streams() -> None:
    """Make the standard streams safe to write.

    Characters without an encoding are written as escapes.

    A closed one goes nowhere: else the next file that is opened would get its number, and what is
    printed.
    """
    for handle in range(3):
        try:
            os.fstat(handle)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    for handle, name in ((1, "stdout"), (2, "stderr")):
        stream = getattr(sys, name)
        if stream is not None and not _writes_to(stream, handle):
            continue  # a caller has replaced it
        settings: dict[str, Any] = {"encoding": "utf-8", "line_buffering": handle == 2}
        if stream is not None:
            for setting in ("encoding", "line_buffering", "write_through"):
                settings[setting] = getattr(stream, setting)
            with contextlib.suppress(OSError):
                stream.flush()
        raw = io.BufferedWriter(_Stream(handle, "w", closefd=False))
        setattr(sys, name, io.TextIOWrapper(raw, errors="backslashreplace", **settings))


def _writes_to(stream: Any, handle: int) -> bool:
    """Whether a text stream writes to one of the standard handles itself."""
    with contextlib.suppress(OSError, ValueError):
        return isinstance(stream, io.TextIOWrapper) and stream.fileno() == handle
    return False
