"""Pack tensors of several types and shapes into one buffer of bytes."""

from collections.abc import Sequence

import torch
from torch import Tensor

Form = tuple[torch.Size, torch.dtype]

_ALIGNED = 8  # bytes of the largest item


def pack(tensors: Sequence[Tensor], device: torch.device) -> Tensor:
    """Copy tensors into one buffer, the types with the largest items first: uint8 [`packed_bytes`]."""
    forms = [(tensor.shape, tensor.dtype) for tensor in tensors]
    buffer = torch.empty(packed_bytes(forms), dtype=torch.uint8, device=device)
    for tensor, place in zip(tensors, unpack(buffer, forms), strict=True):
        place.copy_(tensor)
    return buffer


def unpack(buffer: Tensor, forms: Sequence[Form]) -> list[Tensor]:
    """Return the tensors of a buffer that `pack` has made; they share its memory."""
    order = sorted(range(len(forms)), key=lambda k: -forms[k][1].itemsize)
    sizes = [forms[k][0].numel() * forms[k][1].itemsize for k in order]
    found = dict(zip(order, buffer[: sum(sizes)].split(sizes), strict=True))
    return [found[k].view(dtype).view(shape) for k, (shape, dtype) in enumerate(forms)]


def packed_bytes(forms: Sequence[Form]) -> int:
    """Return the size of the buffer that `pack` makes."""
    size = sum(shape.numel() * dtype.itemsize for shape, dtype in forms)
    return -(-size // _ALIGNED) * _ALIGNED
