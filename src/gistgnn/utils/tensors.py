"""Tensors: checksums of their bytes, copies to a GPU without waiting for it, and large matrices piece by piece."""

import json
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import xxhash
from torch import Tensor

Array = npt.NDArray[Any]


def row_pieces(rows: int, row_bytes: int, most: int) -> Iterator[slice]:
    """Cut rows into slices of consecutive ones, of at most ``most`` bytes each but at least one row."""
    step = max(most // max(row_bytes, 1), 1)
    return (slice(start, min(start + step, rows)) for start in range(0, rows, step))


def column_blocks(width: int, most: int) -> list[slice]:
    """Cut ``width`` columns into the fewest blocks of at most ``most`` columns, of about equal size."""
    count = -(-width // most)
    cuts = [width * i // count for i in range(count + 1)]
    return [slice(start, stop) for start, stop in pairwise(cuts)]


_MOST = 2**26  # bytes: larger tensors are copied once, and would take as much memory that the system cannot move


def to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """Return a tensor on a device, as `Tensor.to`, without waiting for the steps that the GPU still has to do."""
    # Torch copies from ordinary memory only when the GPU has done all that it was asked; a copy from page-locked memory
    # is put in line behind these steps. So a thread that makes batches does not wait for the steps that train.
    if device.type != "cuda" or tensor.device.type != "cpu" or not 0 < tensor.nbytes <= _MOST:
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)


def copied(rows: Tensor, device: torch.device, dtype: torch.dtype) -> Tensor:
    """Return a copy of a matrix that may be mapped from a file, or a part of its columns, some rows at a time."""
    out = torch.empty(rows.shape, dtype=dtype, device=device)
    for piece in row_pieces(len(rows), rows.shape[1] * dtype.itemsize, _MOST):
        out[piece] = rows[piece]
    return out


def checksum(tensor: Tensor, start: int = 0) -> int:
    """Return a checksum of 32 bits of a tensor's bytes; `start` is the checksum of what comes before."""
    flat = tensor.detach().cpu().contiguous().reshape(-1)  # a copy only if it is not contiguous on the host
    return xxhash.xxh32_intdigest(flat.view(torch.uint8).numpy().data, start)


def digest_of(content: Any) -> str:
    """Return a digest of 128 bits, as 32 hexadecimal digits, of what JSON can hold, whatever the order of keys."""
    text = json.dumps(content, separators=(",", ":"), sort_keys=True, default=np.generic.item)
    return xxhash.xxh3_128_hexdigest(text.encode())
