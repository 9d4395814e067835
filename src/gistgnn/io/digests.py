"""Digests of whole safetensors files: every file that gistgnn writes once carries its own in its metadata.

The digest is xxh3_128 of all bytes of the file, with zeros in the digest's own place. It is the first entry of the
metadata, so the place is the same in every file. Another entry is the run that wrote the file (see `run_id`).
"""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import xxhash

from gistgnn.errors import InputError, reason
from gistgnn.utils.checksums import digest_of

DIGEST, RUN = "digest", "run"  # in the metadata
UNKNOWN = "0" * 32  # until all values are written

_BEGIN = f'{{"__metadata__":{{"{DIGEST}":"'.encode()
PLACE = 8 + len(_BEGIN)  # of the digest in the file; the header's length comes first
_PIECE = 2**22  # bytes


class _NotOursError(ValueError):
    """What is wrong with a file that `write_tensors` has not written, in a few words."""


def run_id(identity: dict[str, Any]) -> str:
    """Return the id of a run: a digest of the settings and of the graph that a resumed run must have in common."""
    return digest_of(json.loads(json.dumps(identity, sort_keys=True)))


def check_file(path: Path, advice: str, *, digest: str | None = None, run: str | None = None) -> None:
    """Read a safetensors file once, a piece at a time, and compare it with its digest.

    Args:
        path: a file of `gistgnn.io.tensors.write_tensors`.
        advice: what to do about a damaged file; it ends the message.
        digest: the one that the file must have; None: any.
        run: the id of the run that must have written it; None: any.

    Raises:
        InputError: the file is missing, damaged, of another run, or another one of this run.
    """
    if problem := problem_with(path, digest=digest, run=run):
        raise InputError(f"{path} {problem}; {advice}")


def problem_with(path: Path, *, digest: str | None = None, run: str | None = None) -> str | None:
    """Return what is wrong with a file, such as "is damaged", or None; the arguments are as for `check_file`."""
    try:
        said, found = _digests(path)
        writer = _metadata(path).get(RUN) if said == found else None
    except _NotOursError as error:
        return str(error)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        return f"cannot be read ({getattr(error, 'strerror', None) or reason(error)})"
    if said != found:
        return "is damaged: its checksum does not fit"
    if run is not None and writer != run:
        return "is of another run"
    if digest is not None and found != digest:
        return "is another file than the one that was written here"
    return None


def digest_in(path: Path) -> str:
    """Return the digest that a file of ours says it has; its values are not read.

    Raises:
        OSError: the file cannot be read.
        ValueError: it has none.
    """
    with path.open("rb") as file:
        return _said(file.read(PLACE + len(UNKNOWN)))


def _digests(path: Path) -> tuple[str, str]:
    """Return the digest that a file says it has, and the one that it has."""
    if not stat.S_ISREG(path.stat().st_mode):  # a pipe would wait for ever
        raise _NotOursError("is no regular file")
    with path.open("rb", buffering=0) as file:
        begin = file.read(PLACE + len(UNKNOWN))
        said = _said(begin)
        hashed = xxhash.xxh3_128(begin[:PLACE] + UNKNOWN.encode())
        piece = memoryview(bytearray(_PIECE))
        while count := file.readinto(piece):
            hashed.update(piece[:count])
    return said, hashed.hexdigest()


def _said(begin: bytes) -> str:
    if begin[8:PLACE] != _BEGIN or len(begin) < PLACE + len(UNKNOWN):
        raise _NotOursError("has no checksum, so it is damaged, or an earlier version made it")
    return begin[PLACE:].decode("latin-1")


def _metadata(path: Path) -> dict[str, str]:
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        metadata: dict[str, str] = json.loads(file.read(length))["__metadata__"]
    return metadata
