"""Copies of tensors: to a GPU without waiting for it, and of matrices larger than what should be copied at once."""

import torch
from torch import Tensor

from gistgnn.utils.pieces import row_pieces

_MOST = 2**26  # bytes: larger tensors are copied once, and would take as much memory that the system cannot move


def to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """Return a tensor on a device, as `Tensor.to`.

    Torch copies from ordinary memory only when the GPU has done all that it was asked before. So a thread that makes
    batches would wait for the steps that train. From page-locked memory the copy is put in line behind these steps.
    """
    if device.type != "cuda" or tensor.device.type != "cpu" or not 0 < tensor.nbytes <= _MOST:
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)


def copied(rows: Tensor, device: torch.device, dtype: torch.dtype) -> Tensor:
    """Return a copy of a matrix that may be mapped from a file, or a part of its columns, some rows at a time."""
    out = torch.empty(rows.shape, dtype=dtype, device=device)
    for piece in row_pieces(len(rows), rows.shape[1] * dtype.itemsize, _MOST):
        out[piece] = rows[piece]
    return out
