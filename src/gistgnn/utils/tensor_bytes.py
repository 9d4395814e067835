"""A tensor's bytes."""

import torch
from torch import Tensor


def bytes_of(tensor: Tensor) -> memoryview:
    """Return the bytes of a tensor of any type; they are copied only if it is not contiguous on the host."""
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    return memoryview(flat.view(torch.uint8).numpy().data)
