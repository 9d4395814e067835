"""Θ shared out to the ranks of a run: each owns 1/W of the rows of every tensor, and nobody holds all of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from gistgnn.distributed import Ranks, World
from gistgnn.distributed.packing import pack, packed_bytes, unpack
from gistgnn.partition import Blocks
from gistgnn.storage.checkpoints import Checkpoint, Part
from gistgnn.storage.tensors import LargeTensorsInFiles, assign
from gistgnn.theta.model_spec import ModelSpec
from gistgnn.theta.ranks.between_ranks import BetweenRanks, full_moments
from gistgnn.theta.ranks.shares import Piece, Shares, collect
from gistgnn.theta.slices import Cut, gather
from gistgnn.theta.store import Store
from gistgnn.theta.theta import Theta
from gistgnn.theta.trained import (
    BEST,
    MOMENTS,
    Moments,
    Trained,
    check_held,
    fill,
    give_moments,
    is_counter,
    keyed,
    moment_of,
    name_of,
)

Entry = tuple[str, str | None]  # a tensor's name, and the key of its moment (None: the tensor itself)
Item = tuple[int, Piece, str | None]  # a sub-GCN, a piece of its slice, and the key of a moment likewise


class Sharded(Theta):
    """Θ, its moments and the best Θ by rows over the ranks, in memory.

    Before a round the owners send each rank the slices of its sub-GCNs; after the round each rank sends them back: one
    all-to-all each way.

    Args:
        spec: the model, with the device on which this rank's rows are.
        ranks: the processes of the run.
    """

    streams = True
    exchange: BetweenRanks

    def __init__(self, spec: ModelSpec, ranks: Ranks) -> None:
        super().__init__(spec.layout, spec.widths, spec.tensor_specs(), BetweenRanks(ranks, sharded=True))
        self.ranks, self.device = ranks, spec.device
        self.shards = ranks.count
        self.shares = Shares(self.slices, self.specs, ranks.count)
        self.rows = {
            name: torch.zeros(self.shares.shape(name, ranks.rank), dtype=own.dtype, device=spec.device)
            for name, own in self.specs.items()
        }
        self.moments: Moments = {}  # this rank's rows
        self.counters: dict[str, dict[str, float]] = {}
        self.best: dict[str, Tensor] = {}
        self._keys: dict[str, list[str]] = {}  # of the moments when the open round began
        self._received: dict[tuple[int, str, str | None], list[tuple[slice, Tensor]]] = {}

    @classmethod
    def make(cls, store: Store, spec: ModelSpec, ranks: World, *, replace: bool = False) -> Sharded:
        """Make Θ with the model's initial values; every rank keeps its own rows."""
        assert isinstance(ranks, Ranks)
        theta = cls(spec, ranks)
        with LargeTensorsInFiles():
            for name, value in spec.initial_tensors().items():
                own = theta.shares.rows(name, ranks.rank)
                theta.rows[name].copy_(value.view(-1, *value.shape[1:])[own.start : own.stop])
        return theta

    def begin(self, number: int, blocks: Sequence[Blocks]) -> list[int]:
        """Open round t: this rank receives the slices of its sub-GCNs."""
        members = super().begin(number, blocks)
        self._keys = {name: list(moments) for name, moments in self.moments.items()}
        self._received = self._receive()
        return members

    def slice_of(self, i: int) -> dict[str, Tensor]:
        """The slice of Θ that belongs to sub-GCN i, by name."""
        return {name: self._assembled(i, name, None) for name in self.specs}

    def load(self, i: int, sub: nn.Module) -> None:
        """Copy the slice of Θ that belongs to sub-GCN i into its module."""
        fill(sub, self.slice_of(i))

    def load_moments(self, i: int, sub: nn.Module, optimizer: Optimizer) -> None:
        """Give an optimiser of sub-GCN i the moments of its slice."""
        moments = {name: {key: self._assembled(i, name, key) for key in keys} for name, keys in self._keys.items()}
        for name, counts in self.counters.items():
            moments.setdefault(name, {}).update({key: torch.tensor(value) for key, value in counts.items()})
        give_moments(sub, optimizer, moments)

    def forget_moments(self) -> None:
        """Drop this rank's rows of all moments."""
        self.moments, self.counters = {}, {}

    def keep(self, i: int, trained: Trained) -> None:
        """Hold a copy of a trained sub-GCN until the end of the round."""
        self._trained[i] = trained.copy_to(dict.fromkeys(trained.tensors, self.device))

    def keep_best(self) -> None:
        """Copy this rank's rows as rows of the best Θ."""
        self.best = {name: tensor.clone() for name, tensor in self.rows.items()}

    def checkpoint(self) -> dict[str, Part]:
        """This rank's rows of Θ, the best Θ and the moments; rank 0 has the counters, too."""
        parts = {}
        for key, tensor in keyed(self.rows, self.moments, self.best).items():
            if tensor.numel():
                parts[key] = self._part(name_of(key), tensor)
        if self.ranks.leads:
            for name, counts in self.counters.items():
                parts |= {f"{MOMENTS}{name}/{key}": Part.whole(torch.tensor(n)) for key, n in counts.items()}
        return parts

    def restore(self, saved: Checkpoint, rounds: int) -> None:
        """Resume from a checkpoint: this rank reads its own rows."""
        check_held(saved, self.shapes)
        self.round = rounds
        for key, shape in saved.shapes.items():
            name, rows = name_of(key), self.rows[name_of(key)]
            if key.startswith(BEST):
                rows = self.best[name] = torch.empty_like(rows)
            elif key.startswith(MOMENTS) and is_counter(moment_of(key), shape, self.specs[name].shape):
                self.counters.setdefault(name, {})[moment_of(key)] = float(saved.tensor(key))
                continue
            elif key.startswith(MOMENTS):
                rows = self.moments.setdefault(name, {})[moment_of(key)] = torch.empty_like(rows)
            if rows.numel():
                own = self.shares.rows(name, self.ranks.rank)
                rows.copy_((saved.rows(key, own.start, own.stop) if shape else saved.tensor(key)).view_as(rows))

    def _part(self, name: str, rows: Tensor) -> Part:
        shape = self.specs[name].shape
        own = rows.view(-1, *shape[1:]) if shape else rows.view(())
        return Part(own, shape, self.shares.rows(name, self.ranks.rank).start)

    def full_model(self, spec: ModelSpec, *, best: bool = False, module: nn.Module | None = None) -> nn.Module:
        """The full model on rank 0, with its large weights in a temporary file; see `Theta.full_model`."""
        found = collect(self.ranks, self.shares, self.best if best and self.best else self.rows)
        full = spec.on_meta()
        return assign(full, found, "Θ").to(spec.device) if self.ranks.leads else full

    def commit(self, loss: float) -> None:
        """Send the trained slices to their owners, and write what arrives here into this rank's rows (subAgg)."""
        ranks, keys = self.ranks, self.exchange.keys
        parts = [pack(self._sent_back(owner), self.device) for owner in range(ranks.count)]
        self._trained = {}
        senders = [self.exchange.members_of(rank, len(self._blocks)) for rank in range(ranks.count)]
        arrived = self._all_to_all(parts, [self._items(subs, ranks.rank, keys) for subs in senders])
        for name, names in keys.items():  # on all ranks, even one that owns no row of them
            for key in names:
                self.moments.setdefault(name, {}).setdefault(key, torch.zeros_like(self.rows[name]))
        merged: dict[Entry, dict[int, tuple[Cut, Tensor]]] = {}
        for (i, piece, moment), value in arrived:
            merged.setdefault((piece.name, moment), {})[i] = piece.cut, value
        for entry, found in merged.items():
            cuts, values = zip(*(found[i] for i in sorted(found)), strict=True)
            self.slices.merge(entry[0], self._blocks, self._own(*entry), cuts, values)
        self.counters |= self.exchange.counters
        self._finish_round(loss)

    def _receive(self) -> dict[tuple[int, str, str | None], list[tuple[slice, Tensor]]]:
        """Send the other ranks what their sub-GCNs take of this rank's rows, and receive what this rank's take."""
        ranks, keys, m = self.ranks, self._keys, len(self._blocks)
        parts = []
        for rank in range(ranks.count):
            items = self._items(self.exchange.members_of(rank, m), ranks.rank, keys)
            parts.append(pack([gather(self._own(piece.name, key), piece.cut) for _, piece, key in items], self.device))
        expected = [self._items(self.exchange.members(m), owner, keys) for owner in range(ranks.count)]
        received: dict[tuple[int, str, str | None], list[tuple[slice, Tensor]]] = {}
        for (i, piece, key), value in self._all_to_all(parts, expected):
            received.setdefault((i, piece.name, key), []).append((piece.rows, value))
        return received

    def _all_to_all(self, parts: list[Tensor], expected: list[list[Item]]) -> list[tuple[Item, Tensor]]:
        """Send each rank its packed part, and free it; return the items that each rank sends here, and their values."""
        forms = [[piece.spec for _, piece, _ in items] for items in expected]
        buffers = self.ranks.exchange(parts, [packed_bytes(form) for form in forms])
        parts.clear()
        values = (unpack(buffer, form) for buffer, form in zip(buffers, forms, strict=True))
        return list(zip(chain(*expected), chain.from_iterable(values), strict=True))

    def _assembled(self, i: int, name: str, key: str | None) -> Tensor:
        """A sub-GCN's slice of a tensor or moment, put together from the pieces of its owners."""
        shape = self.slices.shape(name, self.specs[name].shape, self._blocks[i])
        tensor = torch.empty(shape, dtype=self.specs[name].dtype, device=self.device)
        for rows, value in self._received[i, name, key]:
            tensor.view(-1, *shape[1:])[rows].copy_(value)
        return tensor

    def _items(self, subs: Sequence[int], owner: int, keys: Mapping[str, Sequence[str]]) -> list[Item]:
        """The pieces of the slices of some sub-GCNs that a rank owns: of tensors (key None) and of their moments."""
        return [
            (i, piece, key)
            for i in subs
            for piece in self.shares.pieces(self._blocks[i], owner)
            for key in (None, *keys.get(piece.name, ()))
        ]

    def _own(self, name: str, key: str | None) -> Tensor:
        return self.rows[name] if key is None else self.moments[name][key]

    def _sent_back(self, owner: int) -> list[Tensor]:
        """The pieces of this rank's trained sub-GCNs that go to an owner."""
        keys, tensors = self.exchange.keys, []
        moments = {i: full_moments(trained, keys) for i, trained in self._trained.items()}
        for i, piece, key in self._items(self.exchange.members(len(self._blocks)), owner, keys):
            whole = self._trained[i].tensors[piece.name] if key is None else moments[i][piece.name][key]
            tensors.append(whole.reshape(-1, *whole.shape[1:])[piece.rows])
        return tensors
