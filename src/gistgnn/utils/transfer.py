"""Copies from the host's memory to a GPU that do not wait for the GPU."""

import torch
from torch import Tensor

_MOST = 2**26  # bytes: larger tensors are copied once, and would take as much memory that the system cannot move


def to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """Return a tensor on a device, as `Tensor.to`.

    Torch copies from ordinary memory only when the GPU has done all that it was asked before. So a thread that makes
    batches would wait for the steps that train. From page-locked memory the copy is put in line behind these steps.
    """
    if device.type != "cuda" or tensor.device.type != "cpu" or not 0 < tensor.nbytes <= _MOST:
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)
