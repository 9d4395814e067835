"""Counts the memory and the work of code that runs on tensors without values.

Inside `rehearsing` every tensor has a shape, a type and a device, but no memory. So the code of training itself runs a
step of a model of billions of parameters in milliseconds, and the ledger counts what it would hold, multiply and move.
"""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from gistgnn.utils.process_memory import Kept

DISK = "disk"
DISK_DEVICE = "lazy"  # tensors in files have this device, a type of torch's that nothing else uses here
_MAPPED = 2**25  # bytes of a tensor whose memory the system hands out page by page

aten = torch.ops.aten
_PRODUCTS = (aten.mm, aten.addmm, aten.bmm, aten.baddbmm)
_SPARSE_PRODUCTS = {aten.addmm_: 1, aten.sparse_sampled_addmm: 0}  # with the dense factor's dimension of features


class Product(NamedTuple):
    """``times`` dense products [rows, inner] [inner, columns]."""

    times: int
    rows: int
    inner: int
    columns: int
    dtype: torch.dtype


class SparseProduct(NamedTuple):
    """A sparse matrix with some entries times a dense one, [inputs, columns]."""

    entries: int
    inputs: int
    columns: int


@dataclass
class Work:
    """What a block of code computes, and the bytes of its tensors (see `Ledger.observed`)."""

    products: Counter[Product] = field(default_factory=Counter)
    sparse: Counter[SparseProduct] = field(default_factory=Counter)
    bytes: int = 0  # that all other operations read and write, but for those that make a large tensor
    large: int = 0  # bytes of large tensors that are made, and of what is read for them (products read nothing here)
    filed: int = 0  # bytes written into files and read from them
    ahead: int = 0  # bytes that are read from the files of a graph while something is computed
    read: int = 0  # bytes that are read from them while nothing is computed
    operations: int = 0
    scored: int = 0  # nodes whose predictions are compared with labels
    before: int = 0  # bytes of tensors when the block begins, at most, and when it ends
    top: int = 0
    after: int = 0

    def add(self, other: Work, times: float = 1.0) -> None:
        """Add what another block computes, so many times; the bytes of its tensors are not added."""
        for name in ("products", "sparse"):
            mine, others = getattr(self, name), getattr(other, name)
            for shape, count in others.items():
                mine[shape] += count * times
        for name in ("bytes", "large", "filed", "ahead", "read", "operations", "scored"):
            setattr(self, name, getattr(self, name) + round(getattr(other, name) * times))


class Account:
    """Bytes that are held in one place, without the gaps between tensors.

    In the C library's heap the gaps take nothing, or as much again as the tensors of 1 to 32 MiB.

    Args:
        kept: what stays with the process when it is freed.
    """

    def __init__(self, kept: Kept) -> None:
        self.kept = kept
        self._small = self._most_small = 0
        self.live = self.top = 0  # bytes of the tensors that exist, and the most of them
        self.peak = 0  # the most of what is held

    @property
    def held(self) -> int:
        """Bytes that the process holds: tensors, and freed memory that it keeps."""
        return self.live + min(self._most_small - self._small, self.kept.most)

    def add(self, size: int) -> None:
        """Count a new tensor of ``size`` bytes; below 0: a tensor that is freed."""
        self.live += size
        if abs(size) < self.kept.below:
            self._small += size
            self._most_small = max(self._most_small, self._small)
        self.peak, self.top = max(self.peak, self.held), max(self.top, self.live)


class Ledger(TorchDispatchMode):
    """Counts tensors and operations, and answers where code asks for a value that a tensor does not have.

    A number that is read from a tensor is 1 (true), a mask chooses everything, a sparse matrix has the entries of its
    pattern, and a share ``nonzero`` of a dense matrix's entries are not 0.
    """

    nonzero = 1.0

    def __init__(self) -> None:
        super().__init__()
        self.accounts: dict[str, Account] = {}
        self._known: dict[int, weakref.finalize[Any, Any]] = {}
        self._counting, self._work = True, Work()
        self._answers = {
            aten._local_scalar_dense.default: lambda _: 1,
            aten.equal.default: lambda *_: True,
            aten.nonzero.default: self._nonzero,
            aten.sparse_compressed_tensor.comp_plain_value_size: _csr_matrix,
            aten.sparse_sampled_addmm.out: self._sampled_product,
        }

    def account(self, place: str) -> Account:
        """Return the account of a place: `DISK`, or a type of device such as "cpu"."""
        return self.accounts.setdefault(place, Account(Kept.under(None) if place == "cpu" else Kept(0, 0)))

    def peaks(self) -> dict[str, int]:
        """Return the most bytes that every place has held since the last call."""
        found = {place: account.peak for place, account in self.accounts.items()}
        for account in self.accounts.values():
            account.peak = account.held
        return found

    @contextmanager
    def uncounted(self) -> Iterator[None]:
        """Do not count the memory of tensors that are made in the block."""
        self._counting = False
        yield
        self._counting = True

    @contextmanager
    def observed(self, place: str) -> Iterator[Work]:
        """Observe the block, and the tensors in a place; the result is complete when the block ends."""
        account = self.account(place)
        account.top = account.live
        self._work = work = Work(before=account.live)
        yield work
        work.top, work.after, self._work = account.top, account.live, Work()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operation on tensors without values."""
        if func is aten.index.Tensor:
            args = (args[0], [_without_mask(index) for index in args[1]])
        out = self._answers.get(func, func)(*args, **(kwargs or {}))
        made = [tensor for tensor in _tensors(out) if self._enter(tensor)]
        self._count(func, args, _tensors((args, kwargs)), made)
        return out

    def _enter(self, tensor: Any) -> bool:
        """Count a tensor's storage; return False where it is known already."""
        storage, device = tensor.untyped_storage(), tensor.device.type
        key, size = storage._cdata, storage.nbytes() if self._counting else 0
        if key in self._known or hasattr(tensor, "entries"):
            return False
        account = self.account(DISK if device == DISK_DEVICE else device)
        account.add(size)

        def leave() -> None:
            del self._known[key]
            account.add(-size)

        self._known[key] = weakref.finalize(storage, leave)
        return True

    def _count(self, func: Any, args: Any, read: list[Any], made: list[Any]) -> None:
        packet = func.overloadpacket
        if packet in _PRODUCTS:
            left, right = read[-2:]
            rows, inner = left.shape[-2:]
            count = left.numel() // max(rows * inner, 1)
            self._work.products[Product(count, rows, inner, right.shape[-1], left.dtype)] += 1
            self._work.large += bytes_of(tensor for tensor in made if tensor.nbytes >= _MAPPED)
        elif matrices := [tensor for tensor in read if hasattr(tensor, "entries")]:
            if packet in _SPARSE_PRODUCTS:
                dense, axis = _tensors(args)[-1], _SPARSE_PRODUCTS[packet]
                columns, inputs = dense.shape[axis], dense.shape[1 - axis]
                self._work.sparse[SparseProduct(matrices[0].entries.numel(), inputs, columns)] += 1
        else:
            arguments = zip(args, func._schema.arguments, strict=False)
            written = _tensors([value for value, a in arguments if a.alias_info and a.alias_info.is_write])
            moved = bytes_of([*read, *made, *written])
            if any(tensor.nbytes >= _MAPPED for tensor in made):
                self._work.large += moved
            elif made or written:
                self._work.bytes += moved
        self._work.operations += bool(made) or packet in _SPARSE_PRODUCTS

    def _sampled_product(self, at: Any, left: Tensor, right: Tensor, **_: Any) -> Any:
        """Copy factors that are parts of larger tensors, as torch does on the CPU. The entries change in place."""
        copies = [tensor.clone() for tensor in (left, right.t()) if not tensor.is_contiguous()]
        for copy in copies:
            self._enter(copy)
        return at

    def _nonzero(self, x: Tensor) -> Tensor:
        share = self.nonzero if x.dim() == 2 else 1.0
        return x.new_empty((round(share * x.numel()), x.dim()), dtype=torch.int64)


@contextmanager
def rehearsing() -> Iterator[Ledger]:
    """Run the block on tensors without values, and keep a ledger."""
    with FakeTensorMode(allow_non_fake_inputs=True), Ledger() as ledger:
        yield ledger


def filler(size: int, device: torch.device | str = "cpu") -> Tensor:
    """Return a tensor of ``size`` bytes, for what code other than torch's holds."""
    return torch.empty(size, dtype=torch.uint8, device=device)


def bytes_of(tensors: Iterable[Tensor]) -> int:
    """Add up the bytes of some tensors."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def _tensors(values: Any) -> list[Any]:
    return [value for value in tree_leaves(values) if isinstance(value, Tensor)]


def _csr_matrix(rowptr: Tensor, col: Tensor, value: Tensor, shape: Any, **_: Any) -> Any:
    """Stand for a CSR matrix: a dense matrix of one number, which knows its entries."""
    matrix: Any = value.new_empty(1, 1).expand(shape)
    matrix.entries = value
    return matrix


def _without_mask(index: Any) -> Any:
    """Replace a mask by as many numbers as it could choose."""
    return index.new_empty(index.numel(), dtype=torch.int64) if getattr(index, "dtype", None) == torch.bool else index
