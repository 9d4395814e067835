"""Stored tensors: their values stay in a file, and are read in blocks when something is computed with them."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, Protocol, TypeGuard

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gistgnn.errors import InputError
from gistgnn.io.tensors import row_pieces
from gistgnn.utils.prefetch import prefetch

_PAGE = 4096
BLOCK = 2**26  # bytes of rows that are read at once
_BLOCKS = 4  # in memory at once: in use, waiting, being converted, and as it was read
READING = _BLOCKS * BLOCK  # bytes that the stored tensors of a model take while it runs, at most


@dataclass(frozen=True)
class Place:
    """Where a tensor lies: ``offset`` is the position of its first byte in the safetensors file."""

    path: Path
    offset: int
    shape: tuple[int, ...]
    dtype: torch.dtype

    @property
    def nbytes(self) -> int:
        """Bytes in the file."""
        return math.prod(self.shape) * self.dtype.itemsize


class Readable(Protocol):
    """A source of tensors that can be read in parts: a file, memory, or other ranks."""

    def read(self, place: Place, rows: slice | None = None, columns: slice | None = None) -> Tensor:
        """Read a tensor, or some rows and columns of it; see `TensorFile.read`."""


class TensorFile:
    """An open safetensors file that several threads may read. It stays readable when another file takes its name.

    Raises:
        InputError: the file cannot be opened.
    """

    def __init__(self, path: Path, mode: Literal["rb", "r+b"] = "rb") -> None:
        self.path, self._lock = path, threading.Lock()
        try:
            self._file = path.open(mode, buffering=0)
        except OSError as error:
            raise InputError(f"{path} cannot be opened ({error.strerror}): make it again") from error

    def read(self, place: Place, rows: slice | None = None, columns: slice | None = None) -> Tensor:
        """Read a tensor of this file, or some rows and columns with start and stop, into new memory on the host.

        Raises:
            InputError: the file is cut short, or cannot be read.
        """
        if rows is None:
            out = torch.empty(place.shape, dtype=place.dtype, device="cpu")
            self.fill(out, place.offset)
            return out
        width = math.prod(place.shape[1:])
        offset = place.offset + rows.start * width * place.dtype.itemsize
        columns = columns or slice(0, width)
        wanted = columns.stop - columns.start
        if wanted == width or wanted * place.dtype.itemsize < _PAGE:  # the disk gives whole pages, so whole rows
            out = torch.empty(rows.stop - rows.start, *place.shape[1:], dtype=place.dtype, device="cpu")
            self.fill(out, offset)
            return out if wanted == width else out[:, columns].contiguous()
        out = torch.empty(rows.stop - rows.start, wanted, dtype=place.dtype, device="cpu")
        starts = range(columns.start, len(out) * width, width)
        self.fill_from(out, [(offset + start * out.itemsize, wanted * out.itemsize) for start in starts])
        return out

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def fill(self, out: Tensor, offset: int) -> None:
        """Read consecutive bytes, from a position of the file on, into a contiguous tensor; see `fill_from`."""
        self.fill_from(out, [(offset, out.nbytes)])

    def fill_from(self, out: Tensor, spans: Sequence[tuple[int, int]]) -> None:
        """Read several spans of the file, each a position and a number of bytes, one after another into a tensor.

        Raises:
            InputError: the file is cut short, or cannot be read.
        """
        data, done = memoryview(out.view(-1).view(torch.uint8).numpy().data), 0
        try:
            with self._lock:
                for offset, size in spans:
                    self._file.seek(offset)
                    end = done + size
                    while done < end:  # the system moves at most 2 GiB at once
                        if not (count := self._file.readinto(data[done:end])):
                            raise OSError("it is cut short")
                        done += count
        except OSError as error:
            raise InputError(f"{self.path} cannot be read ({error.strerror or error}): make it again") from error


_METHODS = ("size", "dim", "numel", "nelement", "element_size", "is_floating_point", "is_complex", "__len__")
_ATTRIBUTES = ("shape", "dtype", "device", "layout", "ndim", "nbytes", "itemsize", "is_cuda", "is_cpu", "is_meta")
_WITHOUT_VALUES = {getattr(Tensor, name) for name in _METHODS}
_WITHOUT_VALUES |= {getattr(Tensor, n).__get__ for n in (*_ATTRIBUTES, "requires_grad", "is_leaf", "grad_fn", "grad")}


@dataclass(frozen=True)
class Part:
    """Some rows and columns of a tensor in a file; columns are None if it is no matrix."""

    file: Readable
    place: Place
    rows: slice
    columns: slice | None

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the part."""
        rest = self.place.shape[1:] if self.columns is None else (self.columns.stop - self.columns.start,)
        return (self.rows.stop - self.rows.start, *rest)

    def cut(self, rows: slice, columns: slice = slice(None)) -> Part:
        """Return some of its rows and columns."""
        cut = replace(self, rows=_within(self.rows, rows))
        return cut if self.columns is None else replace(cut, columns=_within(self.columns, columns))

    def read(self) -> Tensor:
        """Read the values."""
        return self.file.read(self.place, self.rows, self.columns)


class StoredTensor(Tensor):
    """A tensor whose values stay in a file and are read when something is computed with it.

    `F.linear(x, W, b)`, and products with W or its transpose on the right, read W block of rows by block of rows, the
    next block in the background. They hold no more than a few blocks. Slices `W[a:b, c:d]`, `W.t()`, `W.detach()` and
    `W.to(device)` read nothing and return a stored tensor again. Every other operation reads the whole tensor for as
    long as it runs.

    Numbers in half precision become float32. Blocks are moved to the tensor's device when they have been read. The
    values cannot be changed, and no gradient is computed for them.

    Raises:
        InputError: from any operation: the file is cut short, or the operation would change the tensor.
    """

    part: Part
    transposed: bool

    @staticmethod
    def __new__(
        cls, part: Part, dtype: torch.dtype, device: torch.device | str = "cpu", *, transposed: bool = False
    ) -> StoredTensor:
        """Make a stored tensor of a part of a file, or of its transpose. Users call `at`."""
        shape = part.shape[::-1] if transposed else part.shape
        stored = Tensor._make_wrapper_subclass(cls, shape, dtype=dtype, device=torch.device(device))
        stored.part, stored.transposed = part, transposed
        return stored

    @classmethod
    def at(cls, place: Place, file: Readable | None = None) -> StoredTensor:
        """Return the stored tensor at a place; it has at least one dimension. ``file`` None: open the place's file."""
        columns = slice(0, place.shape[1]) if len(place.shape) == 2 else None
        part = Part(file or TensorFile(place.path), place, slice(0, place.shape[0]), columns)
        return cls(part, torch.float32 if place.dtype in (torch.float16, torch.bfloat16) else place.dtype)

    def load(self) -> Tensor:
        """Return the tensor in new memory on its device."""
        values = self.part.read().to(self.device, self.dtype)
        return values.t() if self.transposed else values

    def blocks(self) -> Generator[tuple[slice, Tensor], None, None]:
        """Yield blocks of rows as they lie in the file: which rows, and their values. Close it if not exhausted."""
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
        """Return some rows and columns, as a stored tensor; not for a transposed one."""
        return type(self)(self.part.cut(rows, columns), self.dtype, self.device)

    def transpose_matrix(self) -> StoredTensor:
        """Return the transpose of a matrix, as a stored tensor."""
        return type(self)(self.part, self.dtype, self.device, transposed=not self.transposed)

    def moved(self, device: torch.device | str | None, dtype: torch.dtype | None = None) -> StoredTensor:
        """Return the same tensor on another device, or with another type of numbers."""
        return type(self)(self.part, dtype or self.dtype, device or self.device, transposed=self.transposed)

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        return f"StoredTensor(shape={tuple(self.shape)}, dtype={self.dtype}, file='{self.part.place.path}')"

    def __deepcopy__(self, memo: Any) -> StoredTensor:
        return self  # it cannot be changed

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in _WITHOUT_VALUES:
            with torch._C.DisableTorchFunctionSubclass():
                return func(*args, **kwargs)
        if func in _BY_BLOCKS and (out := _BY_BLOCKS[func](*args, **kwargs)) is not NotImplemented:
            return out
        return _with_values(func, args, kwargs)

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        return _with_values(func, args, kwargs or {})


def reading_bytes(module: nn.Module) -> int:
    """Return the memory that a model's stored tensors take while it runs; 0: it has none."""
    return _BLOCKS * BLOCK if any(isinstance(buffer, StoredTensor) for buffer in module.buffers()) else 0


def _with_values(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Read the stored tensors among the arguments whole, and call the function."""
    loaded: dict[int, Tensor] = {}

    def values(argument: Any) -> Any:
        if isinstance(argument, StoredTensor):
            if id(argument) not in loaded:
                loaded[id(argument)] = argument.load()
            return loaded[id(argument)]
        return type(argument)(map(values, argument)) if type(argument) in (list, tuple) else argument

    out = func(*values(args), **{key: values(argument) for key, argument in kwargs.items()})
    changed = any(not tensor.is_inference() and tensor._version for tensor in loaded.values())
    loaded.clear()  # `values` refers to itself: it would hold them until Python looks for cycles
    if changed:
        name = getattr(func, "__name__", func)
        raise InputError(f"'{name}' changes a weight that lies in a file: load the model into memory to change it")
    return out


def _within(outer: slice, inner: slice) -> slice:
    start, stop, _ = inner.indices(outer.stop - outer.start)
    return slice(outer.start + start, outer.start + max(start, stop))


def _linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Any:
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
    matrix = isinstance(weight, StoredTensor) and weight.dim() == 2 and weight.numel() > 0
    return matrix and weight.transposed == transposed


_SAME = (Tensor.detach, getattr(Tensor, "data").__get__)  # noqa: B009 (mypy sees the attribute's type)
_TRANSPOSES = (torch.t, Tensor.t, *(getattr(Tensor, name).__get__ for name in ("T", "mT")))
_PRODUCTS = (torch.matmul, torch.mm, Tensor.matmul, Tensor.mm, Tensor.__matmul__)
_MAKERS = ("new_empty", "new_zeros", "new_ones", "new_full", "new_tensor")

# How to compute functions of torch without reading the whole tensor. What returns NotImplemented cannot do so for its
# arguments; then the whole tensor is read.
_BY_BLOCKS: dict[Any, Callable[..., Any]] = {
    F.linear: _linear,
    Tensor.addmm_: _addmm_,
    Tensor.__getitem__: _item,
    Tensor.to: _to,
    Tensor.cpu: lambda tensor: tensor.moved("cpu"),
    Tensor.cuda: lambda tensor, device=None, **_: tensor.moved("cuda" if device is None else device),
    **dict.fromkeys(_PRODUCTS, _matmul),
    **dict.fromkeys(_TRANSPOSES, _transpose),
    **dict.fromkeys(_SAME, lambda tensor: tensor),
    **{getattr(Tensor, name): partial(_new, name) for name in _MAKERS},
}
