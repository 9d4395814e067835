"""The products Ā x that a graph folder keeps beside x, in its folder ``products``."""

from __future__ import annotations

import contextlib
import errno
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path

from torch import Tensor

from gistgnn.errors import InputError
from gistgnn.graphs.on_disk.clustered import Files
from gistgnn.graphs.on_disk.features import FeatureFile, StoredFeatures
from gistgnn.graphs.on_disk.manifest import StoredArray
from gistgnn.graphs.on_disk.npy import ArrayWriter
from gistgnn.graphs.on_disk.reading import ArrayFile
from gistgnn.io import file_locks
from gistgnn.io.records import RecordError, load_record, write_record
from gistgnn.io.whole_files import TEMPORARY, replacing
from gistgnn.utils.checksums import checksum, digest_of

PRODUCTS = "products"

_VERSION = 1
_SCHEMA = {"dtype": str, "shape": list, "checksums": list}
_WAIT = 0.2  # seconds, for another process that computes the same product
_UNWRITABLE = (errno.EACCES, errno.EPERM, errno.EROFS)


def place_of(files: Files, x: FeatureFile, operator: str) -> Path:
    """Return where the product of an operator with features is. The name follows from all that decides its values."""
    scaling = [None if part is None else checksum(part) for part in (x.mean, x.std)]
    digest = digest_of([files.identity, operator, scaling])
    return files.folder / PRODUCTS / f"{operator}-{digest[:16]}.npy"


def opened(place: Path) -> StoredFeatures | None:
    """Return a product that is there; None: it is not, or it is not whole."""
    try:
        return StoredFeatures.of(FeatureFile(ArrayFile(place, _recorded(place))))
    except (OSError, RecordError, InputError):
        return None


def kept(folder: Path) -> Iterator[tuple[Path, StoredArray]]:
    """Yield the products of a folder, and what is recorded of each. Those without a record are computed again."""
    for place in sorted((folder / PRODUCTS).glob("[a-z]*.npy")):
        with contextlib.suppress(OSError, RecordError):
            yield place, _recorded(place)


def _recorded(place: Path) -> StoredArray:
    record = load_record(place.with_suffix(".json"), _VERSION, _SCHEMA)
    return StoredArray(record["dtype"], tuple(record["shape"]), tuple(record["checksums"]))


@contextlib.contextmanager
def making(place: Path) -> Iterator[StoredFeatures | Path]:
    """Yield a product if it is there, else where it has to be written. Processes that want the same one wait for it.

    Where the folder cannot be written, that is a temporary file.
    """
    if (found := opened(place)) is not None:
        yield found
        return
    try:
        place.parent.mkdir(exist_ok=True)
        handle = os.open(place.with_name(f"{TEMPORARY}{place.stem}.lock"), os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as error:
        if error.errno not in _UNWRITABLE:
            raise InputError(f"{place.parent} cannot be written ({error.strerror})") from error
        yield Path(tempfile.gettempdir()) / f"gistgnn-{os.getpid()}-{place.name}"
        return
    try:
        _wait_for(handle)
        found = opened(place)
        yield place if found is None else found
    finally:
        os.close(handle)


def write(
    target: Path, place: Path, features: int, compute: Callable[[Callable[[Tensor], None]], None]
) -> StoredFeatures:
    """Write a product to ``target`` and return it.

    Args:
        target: what `making` gave.
        place: see `place_of`. A target elsewhere is removed when this process ends.
        features: F.
        compute: gives the rows of the product in order to the function that it is called with.

    Raises:
        InputError: the disk is full.
    """
    with replacing(target) as temporary, ArrayWriter(temporary, "float32", (features,)) as file:
        compute(lambda rows: file.append(rows.numpy()))
        array = file.finish()
    if target == place:
        write_record(place.with_suffix(".json"), asdict(array), _VERSION)
    product = StoredFeatures.of(FeatureFile(ArrayFile(target, array)))
    if target != place:
        with contextlib.suppress(OSError):  # an open file stays until it is closed
            target.unlink()
    return product


def _wait_for(handle: int) -> None:
    while True:
        try:
            file_locks.lock(handle)
            return
        except BlockingIOError:
            time.sleep(_WAIT)
        except OSError as error:
            if error.errno in file_locks.NO_LOCKS:
                return
            raise
