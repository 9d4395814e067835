"""Θ shared out to the ranks of a run: each owns 1/W of the rows of every tensor, and nobody holds all of it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import torch
from torch import Tensor, nn

from gistgnn.distributed import Ranks, World
from gistgnn.partition import Blocks
from gistgnn.storage.checkpoints import Checkpoint, Part
from gistgnn.storage.tensors import LargeTensorsInFiles, assign, temporary_tensors
from gistgnn.theta.between_ranks import BetweenRanks
from gistgnn.theta.model_spec import ModelSpec, TensorSpec
from gistgnn.theta.registry import Store
from gistgnn.theta.slices import THETA, Cut, gather, is_counter, name_of, shape_of, value_of
from gistgnn.theta.theta import Theta


@dataclass(frozen=True)
class Piece:
    """The part of a sub-GCN's slice of a tensor that one rank owns."""

    name: str  # of the tensor
    rows: slice  # of the sub-GCN's slice
    cut: Cut  # the same entries as a cut of the rank's rows
    spec: TensorSpec  # of the piece


Item = tuple[int, str, Piece]  # a sub-GCN, the key of a tensor or moment, and a piece of its slice


# Before a round the owners send each rank the slices of its sub-GCNs, and get them back after it: two all-to-alls.
class Sharded(Theta):
    """Θ, its moments and the best Θ by rows over the ranks, in memory on the spec's device."""

    streams = True
    exchange: BetweenRanks

    def __init__(self, spec: ModelSpec, ranks: Ranks) -> None:
        super().__init__(spec.layout, spec.widths, spec.tensor_specs(), BetweenRanks(ranks, sharded=True))
        self.ranks, self.device = ranks, spec.device
        self.shards = ranks.count
        self._keys: list[str] = []  # of the moments when the open round began
        self._received: dict[tuple[int, str], list[tuple[slice, Tensor]]] = {}

    @classmethod
    def make(cls, store: Store, spec: ModelSpec, ranks: World, *, replace: bool = False) -> "Sharded":
        """Make Θ with the model's initial values; every rank keeps its own rows."""
        assert isinstance(ranks, Ranks)
        theta = cls(spec, ranks)
        with LargeTensorsInFiles():
            for name, value in spec.initial_tensors().items():
                theta.tensors[name] = theta._rows_of(name, value).to(spec.device, copy=True)
        return theta

    def begin(self, number: int, blocks: Sequence[Blocks]) -> list[int]:
        """Open round t: every rank sends of its rows what others' sub-GCNs take, and receives the slices of its own."""
        members, ranks, m = super().begin(number, blocks), self.ranks, len(blocks)
        self._keys = [key for key, value in self.moments.items() if value.dim()]
        given = []
        for rank in range(ranks.count):
            items = self._items(self.exchange.members_of(rank, m), ranks.rank, self._keys)
            given.append([gather(self._target(key), piece.cut) for _, key, piece in items])
        expected = [self._items(members, owner, self._keys) for owner in range(ranks.count)]
        self._received = {}
        for (i, key, piece), value in self._all_to_all(given, expected):
            self._received.setdefault((i, key), []).append((piece.rows, value))
        return members

    def slice_of(self, i: int) -> dict[str, Tensor]:
        return {name: self._assembled(i, f"{THETA}{name}") for name in self.specs}

    def moments_of(self, i: int) -> dict[str, Tensor]:
        counters = {key: value.clone() for key, value in self.moments.items() if not value.dim()}
        return {key: self._assembled(i, key) for key in self._keys} | counters

    def full_model(self, spec: ModelSpec, *, best: bool = False, module: nn.Module | None = None) -> nn.Module:
        """The full model on rank 0, with its large weights in a temporary file; see `Theta.full_model`."""
        found = self._collect(self.best if best and self.best else self.tensors)
        full = spec.on_meta()
        return assign(full, found, "Θ").to(spec.device) if self.ranks.leads else full

    def commit(self, loss: float) -> None:
        """Send the trained slices to their owners, and write what arrives here into this rank's rows (subAgg)."""
        ranks, keys = self.ranks, self.exchange.keys
        given = [self._sent_back(owner) for owner in range(ranks.count)]
        self.trained = {}
        senders = [self.exchange.members_of(rank, len(self._blocks)) for rank in range(ranks.count)]
        arrived = self._all_to_all(given, [self._items(subs, ranks.rank, keys) for subs in senders])
        for key in keys:
            self._target(key)  # is made on all ranks, even on one that owns no row of it
        merged: dict[str, dict[int, tuple[Cut, Tensor]]] = {}
        for (i, key, piece), value in arrived:
            merged.setdefault(key, {})[i] = piece.cut, value
        for key, found in merged.items():
            name, (cuts, values) = name_of(key), zip(*(found[i] for i in sorted(found)), strict=True)
            self.slices.merge(name, self._blocks, self._target(key), [{name: cut} for cut in cuts], values)
        self.moments |= self.exchange.counts()
        self.round, self.loss = self.number + 1, loss

    def owned(self, name: str, rank: int) -> range:
        """The rows of a tensor that a rank owns, as `torch.chunk` deals them; a single number is a row of rank 0."""
        rows = (*self.specs[name].shape, 1)[0]
        each = -(-rows // self.ranks.count)
        return range(min(rank * each, rows), min((rank + 1) * each, rows))

    def _pieces(self, blocks: Blocks, rank: int) -> Iterator[Piece]:
        """Yield the pieces of a sub-GCN's slice that a rank owns, one for a tensor, without empty ones."""
        for name, cut in self.slices.cuts(blocks).items():
            own, spec = self.owned(name, rank), self.specs[name]
            chosen, *columns = cut or (None,)
            if chosen is None:
                rows, places = slice(own.start, own.stop), None
            else:
                ends = torch.tensor([own.start, own.stop], device=chosen.device)
                first, last = torch.searchsorted(chosen, ends).tolist()
                rows, places = slice(first, last), chosen[first:last] - own.start
            others = (n if p is None else len(p) for n, p in zip(spec.shape[1:], columns, strict=True))
            shape = torch.Size((rows.stop - rows.start, *others))
            if shape.numel():
                yield Piece(name, rows, (places, *columns), TensorSpec(shape, spec.dtype))

    def _all_to_all(self, given: list[list[Tensor]], expected: list[list[Item]]) -> list[tuple[Item, Tensor]]:
        """Send each rank its tensors; return the items that each rank sends here, and their values."""
        forms = [[piece.spec for *_, piece in items] for items in expected]
        return list(zip(chain(*expected), chain(*self.ranks.exchange(given, forms, self.device)), strict=True))

    def _items(self, subs: Sequence[int], owner: int, keys: Sequence[str]) -> list[Item]:
        """The pieces that a rank owns of the slices of some sub-GCNs: of Θ, and of the moments under these keys."""
        return [
            (i, key, piece)
            for i in subs
            for piece in self._pieces(self._blocks[i], owner)
            for key in (f"{THETA}{piece.name}", *(key for key in keys if name_of(key) == piece.name))
        ]

    def _assembled(self, i: int, key: str) -> Tensor:
        """A sub-GCN's slice of a tensor or moment, put together from the pieces of its owners."""
        spec = self.specs[name_of(key)]
        shape = shape_of(spec.shape, self._cuts[i][name_of(key)])
        tensor = torch.empty(shape, dtype=spec.dtype, device=self.device)
        for rows, value in self._received[i, key]:
            tensor.view(-1, *shape[1:])[rows].copy_(value)
        return tensor

    def _sent_back(self, owner: int) -> list[Tensor]:
        """The pieces of this rank's trained sub-GCNs that go to an owner."""
        tensors = []
        for i, key, piece in self._items(self.exchange.members(len(self._blocks)), owner, self.exchange.keys):
            whole = value_of(self.trained[i], key)
            tensors.append(whole.reshape(-1, *whole.shape[1:])[piece.rows])
        return tensors

    def _rows_of(self, name: str, tensor: Tensor) -> Tensor:
        """This rank's rows of a whole tensor."""
        own = self.owned(name, self.ranks.rank)
        return tensor.view(-1, *tensor.shape[1:])[own.start : own.stop]

    def _part(self, key: str, tensor: Tensor) -> Part | None:
        """This rank's rows of a tensor; rank 0 has the step counts, too."""
        if not tensor.dim():
            return Part.whole(tensor) if self.ranks.leads else None
        if not tensor.numel():
            return None
        shape = self.specs[name_of(key)].shape
        own = tensor.view(-1, *shape[1:]) if shape else tensor.view(())
        return Part(own, shape, self.owned(name_of(key), self.ranks.rank).start)

    def _saved_part(self, saved: Checkpoint, key: str) -> Tensor:
        name, shape = name_of(key), saved.shapes[key]
        if not shape:
            whole = saved.tensor(key)
            return whole if is_counter(key, whole, self.specs[name].shape) else self._rows_of(name, whole)
        own = self.owned(name, self.ranks.rank)
        return saved.rows(key, own.start, own.stop)

    def _collect(self, rows: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """All of the tensors of which the ranks have rows, on rank 0 and in a temporary file; elsewhere nothing."""
        ranks = self.ranks
        if not ranks.leads:
            for tensor in rows.values():
                if tensor.numel():
                    ranks.send(tensor.contiguous().cpu())
            return {}
        whole = temporary_tensors(self.specs)
        for name in rows:
            target = whole[name].view(-1, *self.specs[name].shape[1:])
            for rank in range(ranks.count):
                own = self.owned(name, rank)
                part = target[own.start : own.stop]
                if part.numel() and rank == ranks.rank:
                    part.copy_(rows[name].view_as(part))
                elif part.numel():
                    ranks.receive(part, rank)
        return whole
