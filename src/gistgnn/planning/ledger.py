"""An account of the memory and the work of code that runs on tensors without values.

Inside `rehearsing` every tensor has a shape, a type and a device, but no memory: a step of a model of billions of
parameters runs in milliseconds, by the very code of training. What it would hold, multiply and move is counted.
"""

from __future__ import annotations

import contextlib
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

_MAPPED = 2**25  # bytes from which the C library gives freed memory back, and
_KEPT = 2**30  # what it keeps of the rest (see `keep_freed_memory`)

aten = torch.ops.aten
DISK = "disk"


@dataclass(frozen=True)
class Product:
    """A dense product, ``count`` times [rows, inner] [inner, columns]."""

    count: int
    rows: int
    inner: int
    columns: int
    dtype: torch.dtype

    @property
    def flops(self) -> int:
        """A multiplication and an addition for each pair."""
        return 2 * self.count * self.rows * self.inner * self.columns


@dataclass
class Work:
    """What a stretch of code does.

    Attributes:
        products: how often each dense product is taken.
        bytes: read and written by everything else, in memory.
        sparse: multiplications and additions of the sparse products.
    """

    products: Counter[Product] = field(default_factory=Counter)
    bytes: int = 0
    sparse: int = 0

    @property
    def flops(self) -> int:
        """Of the dense and sparse products."""
        return self.sparse + sum(product.flops * times for product, times in self.products.items())


@dataclass
class Observed:
    """Of a stretch of code: what it does, and the bytes of tensors in one place before, after and at most."""

    before: int
    top: int = 0
    after: int = 0
    work: Work = field(default_factory=Work)


class Account:
    """Bytes held in one place, now and at most.

    Holes between tensors are not counted, in which the C library's heap can lose as much again as tensors of 1 to 32
    MiB take, or nothing: it depends on where every small object of Python lies.

    Args:
        keeps: whether memory of small tensors stays held when they are gone, as the C library has it.
    """

    def __init__(self, keeps: bool) -> None:
        self._keeps = keeps
        self._small = self._large = self._high = 0
        self.peak = self.top = 0  # of what is held, and of the tensors there are

    @property
    def live(self) -> int:
        """Bytes of the tensors that there are."""
        return self._small + self._large

    @property
    def held(self) -> int:
        """Bytes that the process holds."""
        kept = min(self._high, self._small + _KEPT) if self._keeps else self._small
        return self._large + kept

    def add(self, size: int) -> None:
        """Count a tensor of ``size`` bytes that begins (ends, where it is below 0)."""
        if abs(size) < _MAPPED:
            self._small += size
            self._high = max(self._high, self._small)
        else:
            self._large += size
        self.peak, self.top = max(self.peak, self.held), max(self.top, self.live)


class Ledger(TorchDispatchMode):
    """Counts what lives and what is done, and answers for tensors without values where code asks for one.

    A number read from a tensor is 1 (true), a mask chooses everything, sparse matrices keep the entries that their
    patterns say, and of the entries of a matrix ``nonzero`` are not 0.
    """

    nonzero = 1.0

    def __init__(self) -> None:
        super().__init__()
        self._accounts: dict[str, Account] = {}
        self._known: dict[int, weakref.finalize[Any, Any]] = {}
        self._place: str | None = None
        self.work = Work()
        self._instead: dict[Any, Callable[..., Any]] = {
            aten._local_scalar_dense.default: lambda _: 1,
            aten.equal.default: lambda *_: True,
            aten.nonzero.default: self._nonzero,
            aten.sparse_compressed_tensor.comp_plain_value_size: _matrix,
            aten.sparse_sampled_addmm.default: self._sampled,
            aten.values.default: lambda at: at.entries.clone(),
        }

    def account(self, place: str) -> Account:
        """That of "cpu", "cuda", `DISK` or any other place."""
        return self._accounts.setdefault(place, Account(place == "cpu"))

    @contextlib.contextmanager
    def placed(self, place: str) -> Iterator[None]:
        """What is made in the block is counted in a place, wherever it is."""
        before, self._place = self._place, place
        try:
            yield
        finally:
            self._place = before

    @contextlib.contextmanager
    def peaks(self) -> Iterator[dict[str, int]]:
        """Give the most that every place has held in the block, when it has ended."""
        found: dict[str, int] = {}
        before = {place: account.peak for place, account in self._accounts.items()}
        for account in self._accounts.values():
            account.peak = account.held
        yield found
        for place, account in self._accounts.items():
            found[place] = account.peak
            account.peak = max(account.peak, before.get(place, 0))

    @contextlib.contextmanager
    def observed(self, place: str) -> Iterator[Observed]:
        """Observe the block; the result is complete when it has ended."""
        account, outside = self.account(place), self.work
        observed = Observed(account.live)
        account.top, self.work = account.live, observed.work
        yield observed
        observed.top, observed.after, self.work = account.top, account.live, outside

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operation without values."""
        kwargs = kwargs or {}
        if func is aten.index.Tensor:
            args = (args[0], [_without_mask(index) for index in args[1]])
        out = self._instead[func](*args, **kwargs) if func in self._instead else func(*args, **kwargs)
        made = [tensor for tensor in tree_leaves(out) if isinstance(tensor, Tensor) and self._enter(tensor)]
        self._count(func, args, kwargs, made)
        return out

    def _enter(self, tensor: Tensor) -> bool:
        """Count a tensor's storage; False if it is counted already."""
        storage = tensor.untyped_storage()
        key, size = storage._cdata, storage.nbytes()
        if key in self._known or hasattr(tensor, "entries"):
            return False
        account = self.account(self._place or tensor.device.type)
        account.add(size)

        def leave() -> None:
            del self._known[key]
            account.add(-size)

        self._known[key] = weakref.finalize(storage, leave)
        return True

    def _count(self, func: Any, args: Any, kwargs: Any, made: list[Tensor]) -> None:
        given = [tensor for tensor in tree_leaves((args, kwargs)) if isinstance(tensor, Tensor)]
        packet = func.overloadpacket
        if packet in (aten.mm, aten.addmm, aten.bmm, aten.baddbmm):
            left, right = given[-2:]
            rows, inner = left.shape[-2:]
            count = left.numel() // max(rows * inner, 1)
            self.work.products[Product(count, rows, inner, right.shape[-1], left.dtype)] += 1
            return
        if matrices := [tensor for tensor in given if hasattr(tensor, "entries")]:
            # A product with `given[-1]`: [C, d], or samples of one of [R, d] and `given[-1]`: [d, C].
            depth = {aten.addmm_: 1, aten.sparse_sampled_addmm: 0}.get(packet)
            if depth is not None:
                self.work.sparse += 2 * matrices[0].entries.numel() * given[-1].shape[depth]
            return
        written = [a for a, argument in zip(args, func._schema.arguments, strict=False) if _is_written(argument)]
        if made or written:
            touched = [*given, *made, *(t for t in tree_leaves(written) if isinstance(t, Tensor))]
            self.work.bytes += sum(map(_size, touched))

    def _sampled(self, at: Any, left: Tensor, right: Tensor, **_: Any) -> Any:
        """Copy both factors, and the entries three times, as torch does on the CPU."""
        sizes = [_size(left), _size(right), *[_size(at.entries)] * 3]
        for size in (*sizes, *(-size for size in sizes)):
            self.account(at.device.type).add(size)
        return at

    def _nonzero(self, x: Tensor) -> Tensor:
        share = self.nonzero if x.dim() == 2 else 1.0
        return x.new_empty((round(share * x.numel()), x.dim()), dtype=torch.int64)


def passing(size: int, device: torch.device | str = "cpu") -> Tensor:
    """So many bytes, held as long as the result is."""
    return torch.empty(size, dtype=torch.uint8, device=device)


@contextlib.contextmanager
def rehearsing() -> Iterator[Ledger]:
    """A context in which tensors have no values, and a ledger is kept."""
    with FakeTensorMode(allow_non_fake_inputs=True), Ledger() as ledger:
        yield ledger


def _matrix(rowptr: Tensor, col: Tensor, value: Tensor, shape: Any, **_: Any) -> Any:
    """Stands for a CSR matrix: dense and of one number, but it knows its entries."""
    matrix: Any = value.new_empty(1, 1).expand(shape)
    matrix.entries = value
    return matrix


def _without_mask(index: Tensor | None) -> Tensor | None:
    """The numbers of everything that a mask could choose."""
    if index is None or index.dtype != torch.bool:
        return index
    return index.new_empty(index.numel(), dtype=torch.int64)


def _is_written(argument: Any) -> bool:
    return argument.alias_info is not None and argument.alias_info.is_write


def _size(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()
