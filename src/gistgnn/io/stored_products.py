"""Operations on stored tensors that never hold the whole tensor. Importing this module registers them."""

from __future__ import annotations

from contextlib import closing
from functools import partial
from typing import Any, TypeGuard

import torch
from torch import Tensor
from torch.nn import functional as F

from gistgnn.io.stored_tensor import BY_BLOCKS, StoredTensor


def _linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Any:
    """X Wᵀ + b: [..., d_out], for `x`: [..., d_in] and `weight`: [d_out, d_in]."""
    if isinstance(x, StoredTensor) or not _is_matrix(weight, transposed=False):
        return NotImplemented
    if not x.shape[:-1].numel():
        return x.new_empty(*x.shape[:-1], len(weight))
    bias = bias.load() if isinstance(bias, StoredTensor) else bias
    out: Tensor | None = None
    with closing(weight.moved(x.device).blocks()) as blocks:
        for rows, block in blocks:
            columns = F.linear(x, block, None if bias is None else bias[rows])
            if len(block) == len(weight):
                return columns
            if out is None:  # autocast decides on its type
                out = columns.new_empty(*columns.shape[:-1], len(weight))
            out[..., rows] = columns
    return out


def _matmul(x: Tensor, other: Tensor) -> Any:
    """X W or X Wᵀ."""
    if isinstance(x, StoredTensor) or x.layout != torch.strided:
        return NotImplemented
    if _is_matrix(other, transposed=True):
        return _linear(x, other.t())
    if not _is_matrix(other, transposed=False) or x.shape[-1] != len(other):
        return NotImplemented
    out: Tensor | None = None
    with closing(other.moved(x.device).blocks()) as blocks:
        for rows, block in blocks:
            product = x[..., rows] @ block
            out = product if out is None else out + product
    return out


def _addmm_(out: Tensor, one: Tensor, other: Tensor, **scales: float) -> Any:
    """Add the product of sparse features `one`: [n, d_in] with Wᵀ to `out`: [n, d_out]."""
    if isinstance(out, StoredTensor) or isinstance(one, StoredTensor) or not _is_matrix(other, transposed=True):
        return NotImplemented
    if len(out):
        with closing(other.moved(out.device).blocks()) as blocks:
            for rows, block in blocks:
                out[:, rows] = out[:, rows].contiguous().addmm_(one, block.t(), **scales)
    return out


def _item(tensor: StoredTensor, index: Any) -> Any:
    slices = index if isinstance(index, tuple) else (index,)
    if tensor.transposed or len(slices) > (2 if tensor.dim() == 2 else 1):
        return NotImplemented
    if not all(isinstance(cut, slice) and cut.step in (None, 1) for cut in slices):
        return NotImplemented
    return tensor.cut(*slices)


def _to(tensor: StoredTensor, *args: Any, **kwargs: Any) -> Any:
    if args and isinstance(args[0], Tensor):
        return tensor.moved(args[0].device, args[0].dtype)
    device, dtype, *_ = torch._C._nn._parse_to(*args, **kwargs)
    return tensor.moved(device, dtype)


def _new(method: str, tensor: StoredTensor, *args: Any, **kwargs: Any) -> Any:
    """Call a method such as `new_zeros` on an empty tensor of the same type and device."""
    return getattr(torch.empty(0, dtype=tensor.dtype, device=tensor.device), method)(*args, **kwargs)


def _transpose(tensor: StoredTensor) -> Any:
    return tensor.transpose_matrix() if tensor.dim() == 2 else NotImplemented


def _is_matrix(weight: Any, *, transposed: bool) -> TypeGuard[StoredTensor]:
    """Return whether it is a stored matrix that is not empty."""
    stored = isinstance(weight, StoredTensor) and weight.dim() == 2 and weight.numel() > 0
    return stored and weight.transposed == transposed


BY_BLOCKS[F.linear] = _linear
for _name in ("matmul", "mm", "__matmul__"):
    BY_BLOCKS[getattr(Tensor, _name)] = _matmul
BY_BLOCKS |= {torch.matmul: _matmul, torch.mm: _matmul, Tensor.addmm_: _addmm_}
BY_BLOCKS |= {Tensor.__getitem__: _item, Tensor.to: _to, Tensor.t: _transpose, torch.t: _transpose}
for _name in ("T", "mT"):
    BY_BLOCKS[getattr(Tensor, _name).__get__] = _transpose
for _name in ("new_empty", "new_zeros", "new_ones", "new_full", "new_tensor"):
    BY_BLOCKS[getattr(Tensor, _name)] = partial(_new, _name)
BY_BLOCKS[Tensor.cpu] = lambda tensor: tensor.moved("cpu")
BY_BLOCKS[Tensor.cuda] = lambda tensor, device=None, **_: tensor.moved("cuda" if device is None else device)
for _same in (Tensor.detach, getattr(Tensor, "data").__get__):  # noqa: B009 (mypy sees the attribute's type)
    BY_BLOCKS[_same] = lambda tensor: tensor
