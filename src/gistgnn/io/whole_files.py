"""Files that are written completely or not at all."""

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from safetensors import SafetensorError

from gistgnn.errors import InputError, reason


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside `path`. What is written there becomes `path` if the block ends without an error.

    Raises:
        InputError: the folder cannot be made or written, or the disk is full. An older file at `path` is unchanged.
    """
    temporary = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.stem}-", suffix=path.suffix)
        os.close(handle)
        temporary = Path(name)
        yield temporary
        with temporary.open("r+b") as written:
            os.fsync(written.fileno())
        temporary.chmod(0o666 & ~_umask())
        temporary.replace(path)
    except (OSError, SafetensorError) as error:  # safetensors wraps the system's errors
        raise unwritable(path, error) from error
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)


def check_writable(directory: Path) -> None:
    """Raise InputError before the work starts if a folder cannot be written; leave no trace."""
    missing = [path for path in (directory, *directory.parents) if not path.exists()]
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory):
            pass
    except OSError as error:
        raise unwritable(directory, error) from error
    finally:
        for path in missing:
            with contextlib.suppress(OSError):
                path.rmdir()


def unwritable(path: Path, error: Exception) -> InputError:
    """Return the error for a path that cannot be written."""
    why = getattr(error, "strerror", None) or reason(error)
    return InputError(f"cannot write {path}: {why}; choose a directory that can be written")


def _umask() -> int:
    """Return the umask of the process, which can only be read by setting it."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
