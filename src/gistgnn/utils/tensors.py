"""Tensors: digests of their values, copies to a GPU, and large matrices piece by piece."""

import io
import json
import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
import xxhash
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

Array = npt.NDArray[Any]


class TensorSpec(NamedTuple):
    """The shape and type of a tensor."""

    shape: torch.Size
    dtype: torch.dtype

    @classmethod
    def of(cls, tensor: Tensor) -> "TensorSpec":
        return cls(tensor.shape, tensor.dtype)

    @property
    def nbytes(self) -> int:
        """The bytes of its numbers."""
        return self.shape.numel() * self.dtype.itemsize


def row_pieces(rows: int, row_bytes: int, most: int) -> Iterator[slice]:
    """Cut rows into slices of consecutive ones.

    A slice has at most ``most`` bytes, but at least one row.
    """
    step = max(most // max(row_bytes, 1), 1)
    return (slice(start, min(start + step, rows)) for start in range(0, rows, step))


def column_blocks(width: int, most: int) -> list[slice]:
    """Cut ``width`` columns into the fewest blocks of at most ``most`` columns.

    The blocks have about equal sizes.
    """
    count = -(-width // most)
    cuts = [width * i // count for i in range(count + 1)]
    return [slice(start, stop) for start, stop in pairwise(cuts)]


_MOST_PINNED = 2**26  # bytes of a tensor that is copied to a GPU by way of page-locked memory
_PIECE = 2**26  # bytes of a large matrix that are worked on at a time


def to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """Return a tensor on a device, as `Tensor.to`, without waiting for the GPU's steps."""
    # Torch copies from ordinary memory only when the GPU has done all that it was asked; a copy
    # from page-locked memory is put in line behind these steps. So a thread that makes batches does
    # not wait for the steps that train. A large tensor would take as much memory that the system
    # cannot move.
    gains_by_pinning = tensor.device.type == "cpu" and 0 < tensor.nbytes <= _MOST_PINNED
    if device.type != "cuda" or not gains_by_pinning:
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)


def copied(rows: Tensor, device: torch.device, dtype: torch.dtype) -> Tensor:
    """Return a copy of a matrix, or of a part of its columns, made some rows at a time.

    The matrix may be mapped from a file.
    """
    out = torch.empty(rows.shape, dtype=dtype, device=device)
    for piece in row_pieces(len(rows), rows.shape[1] * dtype.itemsize, _PIECE):
        out[piece] = rows[piece]
    return out


_mapped_digests = WeakIdKeyDictionary()  # by mapped tensor


def remember_digest(mapped: Tensor, digest: str) -> Tensor:
    """Remember the digest of the `.npy` file that a tensor is mapped from.

    So nobody has to read all of it. It counts for this tensor alone, and not for a slice or a copy.
    Nothing can be written into the tensor: its pages are read-only.
    """
    _mapped_digests[mapped] = digest
    return mapped


def tensor_digest(tensor: Tensor) -> str:
    """Return the digest, xxh3_128, of the `.npy` file that holds a tensor.

    It covers the tensor's type, shape and values. So a tensor in memory and one that is mapped from
    a file have the same digest. A sparse tensor has the digest of its parts.
    """
    if (remembered := _mapped_digests.get(tensor)) is not None:
        return str(remembered)
    tensor = tensor.detach()
    if tensor.layout is torch.sparse_csr:
        parts = (tensor.crow_indices(), tensor.col_indices(), tensor.values())
        return digest_of([str(tensor.layout), list(tensor.shape), *map(tensor_digest, parts)])
    if tensor.layout is not torch.strided:
        tensor = tensor.to_sparse_coo().coalesce()
        return digest_of(
            [list(tensor.shape), tensor_digest(tensor.indices()), tensor_digest(tensor.values())]
        )
    hasher = xxhash.xxh3_128(_npy_header(tensor))
    if not tensor.dim():
        tensor = tensor.reshape(1)
    row_bytes = tensor[:1].numel() * tensor.element_size()
    for rows in row_pieces(len(tensor), row_bytes, _PIECE):
        # This copies the rows only if they are not contiguous on the host.
        piece = tensor[rows].cpu().contiguous().reshape(-1)
        hasher.update(piece.view(torch.uint8).numpy().data)
    return hasher.hexdigest()


def _npy_header(tensor: Tensor) -> bytes:
    """Return the header of the `.npy` file that holds a tensor.

    For types that NumPy lacks it is a text.
    """
    try:
        dtype = torch.empty(0, dtype=tensor.dtype).numpy().dtype
    except TypeError:
        return f"{tensor.dtype} {list(tensor.shape)}".encode()
    buffer = io.BytesIO()
    facts = {"descr": dtype.str, "fortran_order": False, "shape": tuple(tensor.shape)}
    np.lib.format.write_array_header_1_0(buffer, facts)
    return buffer.getvalue()


def digest_of(content: Any) -> str:
    """Return a digest of what JSON can hold, whatever the order of keys.

    It has 128 bits, as 32 hexadecimal digits.
    """
    text = json.dumps(content, separators=(",", ":"), sort_keys=True, default=np.generic.item)
    return xxhash.xxh3_128_hexdigest(text.encode())


def is_digest(value: object) -> bool:
    """Whether a value is what `digest_of` and `tensor_digest` return.

    Such a value says nothing to a user.
    """
    return isinstance(value, str) and re.fullmatch("[0-9a-f]{32}", value) is not None
