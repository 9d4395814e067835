"""A tensor that lies in a file."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from gistgnn.errors import InputError
from gistgnn.io.tensors import Place, Readable, TensorFile, row_pieces
from gistgnn.utils.prefetch import prefetch

BLOCK = 2**26  # bytes of rows that are read at once
_BLOCKS = 4  # in memory at once: in use, waiting, being made, and as it was read
READING = _BLOCKS * BLOCK  # bytes that a model with weights in files takes for them while it runs, at most

BY_BLOCKS: dict[Any, Callable[..., Any]] = {}
"""The operations that never read the whole tensor (see `stored_products`); NotImplemented: this one must."""

_HALF = (torch.float16, torch.bfloat16)
_METHODS = ("size", "dim", "numel", "nelement", "element_size", "is_floating_point", "is_complex", "__len__")
_ATTRIBUTES = ("shape", "dtype", "device", "layout", "ndim", "nbytes", "itemsize", "is_cuda", "is_cpu", "is_meta")
_ABOUT = {getattr(Tensor, name) for name in _METHODS}  # what is known without a value
_ABOUT |= {getattr(Tensor, name).__get__ for name in (*_ATTRIBUTES, "requires_grad", "is_leaf", "grad_fn", "grad")}


@dataclass(frozen=True)
class _Part:
    """Rows and columns of a tensor in a file, columns None where it is no matrix."""

    file: Readable
    place: Place
    rows: slice
    columns: slice | None

    @property
    def shape(self) -> tuple[int, ...]:
        rest = self.place.shape[1:] if self.columns is None else (self.columns.stop - self.columns.start,)
        return (self.rows.stop - self.rows.start, *rest)

    def cut(self, rows: slice, columns: slice = slice(None)) -> _Part:
        """Some rows and columns of these, counted from the first of these."""
        cut = replace(self, rows=_within(self.rows, rows))
        return cut if self.columns is None else replace(cut, columns=_within(self.columns, columns))

    def read(self) -> Tensor:
        return self.file.read(self.place, self.rows, self.columns)


class StoredTensor(Tensor):
    """A tensor that lies in a file and is read when something is computed with it.

    `F.linear(x, W, b)` and products with W or its transpose on the right read W block of rows by block of rows, the
    next one in the background, and hold no more than a few blocks. Slices of rows and columns ``W[a:b, c:d]``,
    ``W.t()``, ``W.detach()`` and ``W.to(device)`` read nothing and give a stand-in again. Every other operation reads
    the whole tensor for as long as it runs. Numbers of half precision become float32. Its device is where what was
    read is moved to. The values cannot be changed, and no gradient is computed for them.

    Raises:
        InputError: from any operation: the file was cut short, or the operation would change the tensor.
    """

    part: _Part
    turned: bool

    @staticmethod
    def __new__(
        cls, part: _Part, dtype: torch.dtype, device: torch.device | str = "cpu", *, turned: bool = False
    ) -> StoredTensor:
        """The stand-in of a part of a file, ``turned``: of its transpose; see `at`."""
        shape = part.shape[::-1] if turned else part.shape
        stand_in = Tensor._make_wrapper_subclass(cls, shape, dtype=dtype, device=torch.device(device))
        stand_in.part, stand_in.turned = part, turned
        return stand_in

    @classmethod
    def at(cls, place: Place, file: Readable | None = None) -> StoredTensor:
        """The stand-in of a tensor with at least one dimension; ``file`` is its file, where that is open already."""
        columns = slice(0, place.shape[1]) if len(place.shape) == 2 else None
        part = _Part(file or TensorFile(place.path), place, slice(0, place.shape[0]), columns)
        return cls(part, torch.float32 if place.dtype in _HALF else place.dtype)

    def load(self) -> Tensor:
        """The tensor itself, in fresh memory on its device."""
        read = self.part.read().to(self.device, self.dtype)
        return read.t() if self.turned else read

    def blocks(self) -> Generator[tuple[slice, Tensor], None, None]:
        """Consecutive rows, as they lie in the file: which, and their values on the tensor's device.

        The caller closes the iterator where it does not exhaust it.
        """
        part, device, dtype = self.part, self.device, self.dtype
        rows, *rest = part.shape
        pieces = list(row_pieces(rows, torch.Size(rest).numel() * dtype.itemsize, BLOCK))
        read = ((piece, part.cut(piece).read().to(dtype)) for piece in pieces)
        if len(pieces) == 1:
            yield from ((piece, block.to(device)) for piece, block in read)
            return
        with closing(prefetch(read)) as ready:
            for piece, block in ready:
                yield piece, block.to(device)

    def cut(self, rows: slice, columns: slice = slice(None)) -> StoredTensor:
        """The stand-in of some rows and columns of a tensor that is not turned."""
        return type(self)(self.part.cut(rows, columns), self.dtype, self.device)

    def turn(self) -> StoredTensor:
        """The stand-in of a matrix's transpose."""
        return type(self)(self.part, self.dtype, self.device, turned=not self.turned)

    def moved(self, device: torch.device | str | None, dtype: torch.dtype | None = None) -> StoredTensor:
        """The stand-in on another device, or with numbers of another type."""
        return type(self)(self.part, dtype or self.dtype, device or self.device, turned=self.turned)

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        return f"StoredTensor(shape={tuple(self.shape)}, dtype={self.dtype}, file='{self.part.place.path}')"

    def __deepcopy__(self, memo: Any) -> StoredTensor:
        return self  # it cannot be changed

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Compute by blocks what can be."""
        kwargs = kwargs or {}
        if func in _ABOUT:
            with torch._C.DisableTorchFunctionSubclass():
                return func(*args, **kwargs)
        if func in BY_BLOCKS and (found := BY_BLOCKS[func](*args, **kwargs)) is not NotImplemented:
            return found
        return _with_values(func, args, kwargs)

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Compute what torch calls from inside."""
        return _with_values(func, args, kwargs or {})


def reading_bytes(module: nn.Module) -> int:
    """The memory that a model's stored tensors take while it runs; 0 where it has none."""
    return _BLOCKS * BLOCK if any(isinstance(buffer, StoredTensor) for buffer in module.buffers()) else 0


def _with_values(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Read whole tensors and compute with them."""
    read: dict[int, Tensor] = {}

    def values(argument: Any) -> Any:
        if isinstance(argument, StoredTensor):
            if id(argument) not in read:
                read[id(argument)] = argument.load()
            return read[id(argument)]
        return type(argument)(map(values, argument)) if type(argument) in (list, tuple) else argument

    out = func(*values(args), **{key: values(argument) for key, argument in kwargs.items()})
    if any(not tensor.is_inference() and tensor._version for tensor in read.values()):
        name = getattr(func, "__name__", func)
        raise InputError(f"'{name}' changes a weight that lies in a file: load the model into memory to change it")
    return out


def _within(outer: slice, inner: slice) -> slice:
    start, stop, _ = inner.indices(outer.stop - outer.start)
    return slice(outer.start + start, outer.start + max(start, stop))
