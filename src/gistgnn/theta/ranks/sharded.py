"""Θ dealt to the ranks of a run: each owns 1/W of the rows of every tensor, and nobody holds it whole."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from gistgnn.checkpoint import Checkpoint, Part
from gistgnn.distributed import Ranks, communication
from gistgnn.distributed.agreement import lead
from gistgnn.distributed.packing import pack, packed_bytes, unpack
from gistgnn.layout.axes import Layout
from gistgnn.partition import Blocks
from gistgnn.theta.disk.tensor_file import Spec
from gistgnn.theta.keys import BEST, MOMENTS, check_held, keyed, moment_of, name_of
from gistgnn.theta.memory import merge_shared
from gistgnn.theta.ranks.agreement import DealtPending, OnRanks, full_moments
from gistgnn.theta.ranks.reader import Reader
from gistgnn.theta.ranks.shares import Piece, Shares
from gistgnn.theta.slices import gather, scatter
from gistgnn.theta.theta import Moments, Theta, fill, is_counter

T = TypeVar("T")


class Sharded(OnRanks, Theta):
    """Θ, its moments and the best Θ by rows over the ranks, in memory.

    Before a round each rank receives the slices of its sub-GCNs from their owners, after it it sends them back: one
    all-to-all each way.

    Args:
        layout: how the model's tensors lie along the hidden axes.
        widths: the full widths.
        specs: the shape and type of every parameter and buffer.
        ranks: the processes of the run.
        device: where this rank's rows are.
    """

    streams = True

    def __init__(
        self, layout: Layout, widths: Sequence[int], specs: Mapping[str, Spec], ranks: Ranks, device: torch.device
    ) -> None:
        super().__init__(layout, widths)
        self.ranks, self.device = ranks, device
        self.shards, self.shard = ranks.count, ranks.rank
        self.shares = Shares(self.slices, specs, ranks.count)
        self.rows = {
            name: torch.zeros(self.shares.shape(name, ranks.rank), dtype=spec.dtype, device=device)
            for name, spec in specs.items()
        }
        self.moments: Moments = {}  # rows of those that are cut
        self.counters: dict[str, dict[str, float]] = {}
        self.best: dict[str, Tensor] = {}
        self._reader = Reader(self)

    @property
    def shapes(self) -> dict[str, torch.Size]:
        """The shape of every parameter and buffer."""
        return {name: spec.shape for name, spec in self.shares.specs.items()}

    def write_flat(self, name: str, start: int, values: Tensor) -> None:
        """Set entries of a tensor, from one of the flat tensor on; those of other ranks are passed over."""
        own, rest = self.shares.rows(name, self.ranks.rank), self.shares.specs[name].shape[1:].numel()
        first, last = max(start, own.start * rest), min(start + len(values), own.stop * rest)
        if first < last:
            self.rows[name].view(-1)[first - own.start * rest : last - own.start * rest] = values[
                first - start : last - start
            ]

    def begin(self, number: int, blocks: Sequence[Blocks]) -> PendingSharded:
        """Begin round t: this rank's sub-GCNs receive their slices."""
        return PendingSharded(self, number, blocks)

    def keep_best(self) -> None:
        """Copy this rank's rows as those of the best Θ."""
        self.best = {name: tensor.clone() for name, tensor in self.rows.items()}

    def checkpoint(self) -> dict[str, Part]:
        """This rank's rows of Θ, the best Θ and the moments; counters are rank 0's."""
        parts = {}
        for key, tensor in keyed(self.rows, self.moments, self.best).items():
            if tensor.numel():
                parts[key] = self._part(name_of(key), tensor)
        if self.ranks.leads:
            for name, counts in self.counters.items():
                parts |= {f"{MOMENTS}{name}/{key}": Part.whole(torch.tensor(n)) for key, n in counts.items()}
        return parts

    def restore(self, saved: Checkpoint, rounds: int) -> None:
        """Go on from a checkpoint: this rank reads its own rows."""
        check_held(saved, self.shapes)
        self.round = rounds
        parts = {}
        for key, (shape, _) in saved.tensors.items():
            name, rows = name_of(key), self.rows[name_of(key)]
            if key.startswith(BEST):
                rows = self.best[name] = torch.empty_like(rows)
            elif key.startswith(MOMENTS) and is_counter(moment_of(key), shape, self.shapes[name]):
                self.counters.setdefault(name, {})[moment_of(key)] = float(saved.read_whole(key))
                continue
            elif key.startswith(MOMENTS):
                rows = self.moments.setdefault(name, {})[moment_of(key)] = torch.empty_like(rows)
            if rows.numel():
                parts[key] = self._part(name, rows)
        saved.read(parts)

    def _part(self, name: str, rows: Tensor) -> Part:
        shape = self.shapes[name]
        return Part(
            rows.view(-1, *shape[1:]) if shape else rows.view(()), shape, self.shares.rows(name, self.ranks.rank).start
        )

    def led(self, work: Callable[[], T]) -> T:
        """Do some work on rank 0 that reads Θ through `stand_in`, and give all ranks what it returns."""
        return lead(self.ranks, self._reader.closing(work), self._reader.serve)

    def communication(self, local_steps: int) -> dict[str, Any]:
        """What the ranks have exchanged so far."""
        size = sum(spec.nbytes for spec in self.shares.specs.values())
        return communication(self.ranks, size, local_steps, sharded=True)

    def stand_in(self, module: nn.Module, *, best: bool = False) -> nn.Module:
        """Give a module on the meta device the parameters of Θ, the large ones to be read from the other ranks.

        On rank 0, within `led`; see `gistgnn.io.stored_model`.
        """
        return self._reader.model(module, best=best and bool(self.best))


class PendingSharded(DealtPending):
    """One round's two exchanges."""

    def __init__(self, theta: Sharded, number: int, blocks: Sequence[Blocks]) -> None:
        super().__init__(theta, theta.ranks, number, blocks)
        self._theta = theta
        self._known = {name: list(moments) for name, moments in theta.moments.items()}  # when the round began
        self._arrived = self._receive()

    def take(self, i: int, sub: nn.Module) -> None:
        """Copy the slice of Θ that belongs to sub-GCN i into its module; see `Pending`."""
        fill(sub, self.slices(i))

    def slices(self, i: int) -> dict[str, Tensor]:
        """The slice of Θ that belongs to sub-GCN i, by name."""
        return {name: self._assembled(i, name, None) for name in self._theta.shapes}

    def take_moments(self, i: int, sub: nn.Module, optimizer: Optimizer) -> None:
        """Give an optimiser of sub-GCN i its moments."""
        theta = self._theta
        moments = {name: {key: self._assembled(i, name, key) for key in keys} for name, keys in self._known.items()}
        for name, counts in theta.counters.items():
            moments.setdefault(name, {}).update({key: torch.tensor(value) for key, value in counts.items()})
        theta.give_moments(sub, optimizer, moments)

    def commit(self, loss: float) -> None:
        """Send the trained slices to their owners, and write what arrives here into this rank's rows (subAgg)."""
        theta, ranks = self._theta, self._ranks
        parts = [pack(self._sent_back(owner), theta.device) for owner in range(ranks.count)]
        self._kept.clear()
        whose = [self.members_of(rank) for rank in range(ranks.count)]
        items = [[(i, *item) for i in own for item in self._items(i, ranks.rank, self._keys)] for own in whose]
        forms = [[(piece.shape, piece.dtype) for _, piece, _ in each] for each in items]
        arrived = ranks.exchange(parts, [packed_bytes(each) for each in forms])
        del parts
        for name, keys in self._keys.items():  # on all ranks, whether they own a row of them or not
            for each in keys:
                theta.moments.setdefault(name, {}).setdefault(each, torch.zeros_like(theta.rows[name]))
        merged: dict[tuple[str, str | None], dict[int, tuple[Piece, Tensor]]] = {}
        for buffer, sent, form in zip(arrived, items, forms, strict=True):
            for (i, piece, key), value in zip(sent, unpack(buffer, form), strict=True):
                merged.setdefault((piece.name, key), {})[i] = piece, value
        for (name, kind), found in merged.items():
            self._merge(self._own(name, kind), name, [found[i] for i in sorted(found)])
        theta.counters |= self._counters
        theta.round, theta.loss = self.number + 1, loss

    def _receive(self) -> dict[tuple[int, str, str | None], list[tuple[slice, Tensor]]]:
        """Send what other ranks' sub-GCNs take of this rank's rows, and receive what this rank's take."""
        theta, ranks = self._theta, self._ranks
        parts = []
        for rank in range(ranks.count):
            items = [item for i in self.members_of(rank) for item in self._items(i, ranks.rank, self._known)]
            rows = [gather(self._own(piece.name, key), piece.cut) for piece, key in items]
            parts.append(pack(rows, theta.device))
        items_of = [
            [(i, *item) for i in self.members for item in self._items(i, owner, self._known)]
            for owner in range(ranks.count)
        ]
        forms = [[(piece.shape, piece.dtype) for _, piece, _ in items] for items in items_of]
        found: dict[tuple[int, str, str | None], list[tuple[slice, Tensor]]] = {}
        arrived = ranks.exchange(parts, [packed_bytes(each) for each in forms])
        for buffer, each, form in zip(arrived, items_of, forms, strict=True):
            for (i, piece, key), value in zip(each, unpack(buffer, form), strict=True):
                found.setdefault((i, piece.name, key), []).append((piece.rows, value))
        return found

    def _assembled(self, i: int, name: str, key: str | None) -> Tensor:
        """A sub-GCN's slice of a tensor or moment, from the pieces that its owners have sent."""
        spec = self._theta.shares.specs[name]
        shape = self._theta.slices.shape(name, spec.shape, self.blocks[i])
        tensor = torch.empty(shape, dtype=spec.dtype, device=self._theta.device)
        for rows, value in self._arrived[i, name, key]:
            tensor.view(-1, *shape[1:])[rows].copy_(value)
        return tensor

    def _items(self, i: int, owner: int, keys: Mapping[str, Sequence[str]]) -> list[tuple[Piece, str | None]]:
        """What a rank owns of sub-GCN i's slice: pieces of tensors (key None) and of their moments."""
        found: list[tuple[Piece, str | None]] = []
        for piece in self._theta.shares.pieces(self.blocks[i], owner):
            found += [(piece, key) for key in (None, *keys.get(piece.name, ()))]
        return found

    def _own(self, name: str, key: str | None) -> Tensor:
        return self._theta.rows[name] if key is None else self._theta.moments[name][key]

    def _sent_back(self, owner: int) -> list[Tensor]:
        tensors = []
        for i in self.members_of(self._ranks.rank):
            trained = self._kept[i]
            moments = full_moments(trained.tensors, self._keys, trained)
            for piece, key in self._items(i, owner, self._keys):
                whole = trained.tensors[piece.name] if key is None else moments[piece.name][key]
                tensors.append(whole.reshape(-1, *whole.shape[1:])[piece.rows])
        return tensors

    def _merge(self, target: Tensor, name: str, found: list[tuple[Piece, Tensor]]) -> None:
        cuts = [piece.cut for piece, _ in found]
        if self._theta.slices.disjoint(name, self.blocks) and target.dtype != torch.bool:
            for cut, (_, value) in zip(cuts, found, strict=True):
                scatter(target, cut, value)
        else:
            merge_shared(target, cuts, [value for _, value in found])
