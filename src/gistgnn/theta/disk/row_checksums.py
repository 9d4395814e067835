"""Checksums of blocks of rows, by which damage to tensors on disk is found when the rows are read.

Rows are read and written as a whole, so a checksum of them costs no further read. Short rows share one: a block is as
many rows as fit into 16 KiB, or one row.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
import xxhash
from torch import Tensor

from gistgnn.io.digests import RUN, check_file
from gistgnn.io.tensors import TensorFile, find_tensors, write_tensors
from gistgnn.io.whole_files import replacing
from gistgnn.theta.model_spec import TensorSpec
from gistgnn.utils.tensor_bytes import bytes_of

BLOCK = 2**14  # bytes

Numbers = npt.NDArray[np.uint64]


def row_bytes(spec: TensorSpec) -> int:
    """Return the bytes of a row; a single number is one row."""
    return math.prod(spec.shape[1:]) * spec.dtype.itemsize


def block_rows(spec: TensorSpec) -> int:
    """Return how many rows share a checksum."""
    return max(BLOCK // max(row_bytes(spec), 1), 1)


def block_checksums(rows: Tensor, spec: TensorSpec) -> Numbers:
    """Return the checksum of every block of consecutive rows, the first of which begins a block."""
    data, step = bytes_of(rows), max(block_rows(spec) * row_bytes(spec), 1)
    starts = range(0, len(data), step)
    return np.fromiter((xxhash.xxh3_64_intdigest(data[a : a + step]) for a in starts), np.uint64, len(starts))


@dataclass
class Checksums:
    """Checksums of one file.

    Args:
        run: the id of the run that the file belongs to.
        header: the checksum of the file's header.
        blocks: those of the blocks of every tensor, by name.
    """

    run: str
    header: int
    blocks: dict[str, Numbers]

    @classmethod
    def of_zeros(cls, run: str, header: bytes, specs: Mapping[str, TensorSpec]) -> Checksums:
        """Return the checksums of a file of zeros."""
        return cls(run, xxhash.xxh3_64_intdigest(header), {name: _of_zeros(spec) for name, spec in specs.items()})


def _of_zeros(spec: TensorSpec) -> Numbers:
    step = max(block_rows(spec) * row_bytes(spec), 1)
    found = np.full(-(-spec.nbytes // step), xxhash.xxh3_64_intdigest(bytes(min(step, spec.nbytes))), np.uint64)
    if rest := spec.nbytes % step:
        found[-1] = xxhash.xxh3_64_intdigest(bytes(rest))
    return found


def header_checksum(path: Path) -> int:
    """Return the checksum of a safetensors file's header with its length, or of what is there of it."""
    with path.open("rb") as file:
        length = file.read(8)
        rest = min(int.from_bytes(length, "little"), path.stat().st_size)
        return xxhash.xxh3_64_intdigest(length + file.read(rest))


def save_checksums(path: Path, files: Mapping[str, Checksums], run: str) -> str:
    """Write the checksums of several files, by their names, into one file, and return its digest.

    Raises:
        InputError: it cannot be written.
    """
    numbers = {name: np.array([own.header], np.uint64) for name, own in files.items()}
    numbers |= {f"{name}/{key}": blocks for name, own in files.items() for key, blocks in own.blocks.items()}
    specs = {key: (found.shape, torch.int64) for key, found in numbers.items()}
    with replacing(path) as temporary:
        return write_tensors(temporary, specs, lambda key: [torch.from_numpy(numbers[key].view(np.int64))], {RUN: run})


def load_checksums(path: Path, advice: str, *, digest: str, run: str) -> dict[str, Checksums]:
    """Read what `save_checksums` has written; the arguments are as for `check_file`."""
    check_file(path, advice, digest=digest, run=run)
    places, files = find_tensors(path), dict[str, Checksums]()
    with closing(TensorFile(path)) as file:
        found = {key: file.read(place).numpy().view(np.uint64) for key, place in places.items()}
    for key, numbers in found.items():
        name, slash, tensor = key.partition("/")
        own = files.setdefault(name, Checksums(run, 0, {}))
        if slash:
            own.blocks[tensor] = numbers
        else:
            own.header = int(numbers[0])
    return files
