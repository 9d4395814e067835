"""Standard streams that may be closed, or lead to a full disk or to a program that has ended."""

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

    Characters without an encoding are written as escapes. What is printed on a closed stream goes
    nowhere: otherwise it would go into the next file that is opened, which gets its number.
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
        encoding = "utf-8"
        line_buffering = handle == 2
        if stream is not None:
            encoding = stream.encoding
            # With PYTHONUNBUFFERED a stream is written through, and its lines are not buffered.
            line_buffering = stream.line_buffering or stream.write_through
            with contextlib.suppress(OSError):
                stream.flush()
        text = io.TextIOWrapper(
            io.BufferedWriter(_Stream(handle, "w", closefd=False)),
            encoding=encoding,
            errors="backslashreplace",
            line_buffering=line_buffering,
        )
        setattr(sys, name, text)


def _writes_to(stream: Any, handle: int) -> bool:
    """Return whether a text stream writes to one of the standard handles itself."""
    with contextlib.suppress(OSError, ValueError):
        return isinstance(stream, io.TextIOWrapper) and stream.fileno() == handle
    return False
