"""A run of Algorithm 1 rehearsed: what it would hold, in memory and on disk, in each of its phases."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import cast

import torch
from torch import Tensor, nn

from gistgnn.checkpoint import KEPT
from gistgnn.errors import InputError
from gistgnn.io.stored_tensor import READING
from gistgnn.layout.axes import Widths, named_tensors
from gistgnn.nn import GNN
from gistgnn.planning.evaluation_memory import Evaluating
from gistgnn.planning.graph_memory import Steps, prepare_graph
from gistgnn.planning.ledger import DISK, Ledger, Work, passing, rehearsing
from gistgnn.planning.shapes import Shapes
from gistgnn.planning.sizes import GraphSizes
from gistgnn.round import Round
from gistgnn.runners.fused import Group, by_shape, try_step
from gistgnn.runners.runner import keeps_moments
from gistgnn.runs.config import RunConfig
from gistgnn.sampling import Batch
from gistgnn.subtrain import subtrain
from gistgnn.theta.memory import InMemory
from gistgnn.theta.registry import STORES

ROUNDS = STEPS = 2  # of the first, some memory is not there yet: moments, the best Θ


@dataclass
class Found:
    """What a rehearsal has found.

    Attributes:
        phases: the most bytes that each place ("cpu", "cuda", "disk") holds in each phase of the run.
        theta: bytes of Θ.
        full: parameters of the full model.
        slices: bytes of every sub-GCN's parameters and buffers.
        parameters: of every sub-GCN.
        training: bytes of the first sub-GCN with gradients and the optimiser's state.
        carried: bytes of every sub-GCN's moments, where they are kept from round to round.
        fused: whether the sub-GCNs train in one pass.
        activations: bytes that a step takes beyond that.
        evaluation: bytes that evaluation takes beyond what is there.
        method: how it is evaluated, "whole", "layers" or "parts".
        steps_per_epoch: steps of an epoch.
        step: what one step does: of one sub-GCN, or of all where they are fused.
        scoring: what one evaluation does.
    """

    phases: dict[str, dict[str, int]] = field(default_factory=dict)
    theta: int = 0
    full: int = 0
    slices: list[int] = field(default_factory=list)
    parameters: list[int] = field(default_factory=list)
    training: int = 0
    carried: list[int] = field(default_factory=list)
    fused: bool = False
    activations: int = 0
    evaluation: int = 0
    method: str = ""
    steps_per_epoch: int = 1
    step: Work = field(default_factory=Work)
    scoring: Work = field(default_factory=Work)

    def peak(self, place: str) -> int:
        """The most bytes that a place holds in any phase."""
        return max(places.get(place, 0) for places in self.phases.values())


def rehearse(
    config: RunConfig, sizes: GraphSizes, store: str = "memory", base: int = 0, limits: Mapping[str, int] | None = None
) -> Found:
    """Rehearse two rounds of a run by the code of training itself, on tensors without memory.

    Where Θ is "disk", it, its moments, the best Θ and the slices that a round has trained lie on the disk; one
    sub-GCN is in memory at a time (all, fused), and evaluation reads weights in blocks. "host": they are on the host.

    Args:
        config: the run.
        sizes: of its graph.
        store: where Θ lies, one of `STORES`.
        base: bytes that the process holds before.
        limits: bytes that may be held, by place; an evaluation that goes by what is available takes half of the rest.

    Raises:
        InputError: a store that there is not, or a model, m or setting out of range.
    """
    if store not in STORES:
        raise InputError(f"store is '{store}', expected one of {', '.join(STORES)}")
    shapes = Shapes(config, sizes)
    _ = shapes.layout  # found before anything is counted
    each = [tuple(map(len, own)) for own in shapes.partition.blocks(0)]
    trained = {widths: _trained_bytes(shapes, widths) for widths in set(each)}
    found = Found(fused=shapes.fused, training=trained[each[0]][0])
    found.carried = [trained[widths][1] if shapes.carries else 0 for widths in each]
    with rehearsing() as ledger:
        ledger.nonzero = sizes.nonzero
        ledger.account("cpu").add(base)
        return _Rehearsal(shapes, store, ledger, limits or {}, found).run()


class _Rehearsal:
    """The phases of one run, in order."""

    def __init__(self, shapes: Shapes, store: str, ledger: Ledger, limits: Mapping[str, int], found: Found) -> None:
        self._shapes, self._ledger, self._limits = shapes, ledger, limits
        self._training, self._config = shapes.training, shapes.config
        self._store, self._mapped, self._streams = store, store == "disk", store != "memory"
        self._found = found
        self._subs: list[nn.Module] = []
        self._place = torch.device(shapes.config.device).type
        self._reading = 0  # bytes that weights outside the model take while they are read

    def run(self) -> Found:
        """Go through the run."""
        shapes, found, config = self._shapes, self._found, self._config
        with self._phase("loading"):
            graph = prepare_graph(config, shapes.sizes)
        with self._phase("parameters"), self._lasting():
            full = self._construct(shapes.widths)
            half = self._mapped and config.store_precision == "bf16"
            tensors = {
                name: tensor.detach().to(torch.bfloat16 if half and tensor.is_floating_point() else tensor.dtype)
                for name, tensor in named_tensors(full).items()
            }
            theta = InMemory(shapes.layout, shapes.widths, tensors)
        if self._streams:
            self._reading = min(READING, _bytes(tensors.values()))
        found.theta, found.full = _bytes(tensors.values()), sum(p.numel() for p in full.parameters())
        del full
        with self._phase("clustering"):
            seen = graph.sampled(config)
        found.steps_per_epoch = seen.per_epoch
        with self._phase("preparing evaluation"), torch.no_grad():
            with self._ledger.placed("Θ itself") if self._streams else nullcontext():
                model = cast(GNN, self._construct(shapes.widths).eval())
            scored = Evaluating(
                config.evaluation, model, graph.whole, shapes.sizes, self._ledger, self._limits, self._reading
            )
            found.method = scored.method
        for number in range(ROUNDS):
            with self._phase("training"):
                saved = self._saved(theta) if number else []  # the last round's state is written meanwhile
                round_ = self._begin(theta, number)  # the one before is gone, with its optimisers
                self._train(round_, seen)
                del saved
            with self._phase("aggregation"), self._lasting():
                journal = passing(self._journalled()) if self._mapped else None
                round_.aggregate()
                del journal
            with self._phase("evaluation"), torch.no_grad():
                self._evaluate(theta, model, scored)
            with self._phase("keeping the best"), self._lasting():
                theta.keep_best()  # the one before is there until this one is
        found.phases["evaluation"][DISK] = found.phases["evaluation"].get(DISK, 0) + scored.disk
        return found

    @contextmanager
    def _phase(self, name: str) -> Iterator[None]:
        """Note the most that is held in the block."""
        with self._ledger.peaks() as peaks:
            yield
        known = self._found.phases.setdefault(name, {})
        for place, size in peaks.items():
            known[place] = max(size, known.get(place, 0))

    def _lasting(self) -> AbstractContextManager[None]:
        """Where Θ and what belongs to it is made."""
        places = {"disk": DISK, "host": "cpu"}
        return self._ledger.placed(places[self._store]) if self._streams else nullcontext()

    def _journalled(self) -> int:
        """Bytes of the trained slices that are in memory: the others are in the journal already."""
        both = [sum(sizes) for sizes in zip(self._found.slices, self._found.carried, strict=True)]
        return sum(both) if self._shapes.fused else both[0]

    def _saved(self, theta: InMemory) -> list[Tensor]:
        """What checkpoints take, unless Θ is in files: the last ones and the next, on disk."""
        if self._mapped:
            return []
        size = sum(part.tensor.nbytes for part in theta.checkpoint().values())
        with self._ledger.placed(DISK):
            return [passing((KEPT + 1) * size)]

    def _construct(self, widths: Widths) -> nn.Module:
        with torch.device(self._config.device):
            return self._shapes.build(widths)

    def _begin(self, theta: InMemory, number: int) -> Round:
        blocks = self._shapes.partition.blocks(0)  # whose sizes, where they are drawn, stand for all rounds'
        if not self._subs:
            for i, own in enumerate(blocks):
                # What is not trained now is beside Θ, where the round streams.
                with nullcontext() if i == 0 or self._shapes.fused else self._lasting():
                    self._subs.append(self._construct(tuple(map(len, own))))
            self._found.slices = [_bytes(named_tensors(sub).values()) for sub in self._subs]
            self._found.parameters = [sum(p.numel() for p in sub.parameters()) for sub in self._subs]
        return Round(theta, number, blocks, lambda i, _: self._subs[i])

    def _train(self, round_: Round, seen: Steps) -> None:
        columns = self._shapes.columns(round_.blocks[0])
        if self._shapes.fused:
            self._train_fused(round_, seen, first=round_.number == 0)
        else:
            self._train_in_turn(round_, seen if columns is None else seen.select_columns(columns))

    def _train_in_turn(self, round_: Round, seen: Steps) -> None:
        """Train the first sub-GCN; give the others what they hold when they have been trained."""
        for i, sub in enumerate(round_):
            with nullcontext() if i == 0 else self._lasting():
                optimizer = self._training.make_optimizer(sub.parameters())
                if keeps := keeps_moments(round_, self._training):
                    round_.carry(i, optimizer)
                if i == 0:
                    ahead = passing(self._found.slices[-1]) if self._streams and len(round_) > 1 else None
                    subtrain(sub, optimizer, self._watched(seen), self._training, lambda _: self._training.lr)
                    del ahead  # the next sub-GCN's slice, taken meanwhile
                else:
                    for parameter in sub.parameters():
                        parameter.grad = torch.empty_like(parameter)
                    if keeps:
                        optimizer.step()
                    if self._streams:
                        sub.zero_grad(set_to_none=True)

    def _train_fused(self, round_: Round, seen: Steps, *, first: bool) -> None:
        if first:  # the runner tries one step on copies
            copies = [self._construct(tuple(map(len, own))) for own in round_.blocks]
            try_step(copies, next(seen.batches(1)), self._training)
            del copies
        groups = [Group(round_, members, self._training) for members in by_shape(round_.subs)]
        for batch in self._watched(seen):
            for group in groups:
                group.step(batch, self._training.lr)
        for group in groups:
            group.finish()

    def _watched(self, seen: Steps) -> Iterator[Batch]:
        """The batches of some steps; of the last one it is noted what it takes and does."""
        for batch in seen.batches(STEPS):
            with self._ledger.observed(self._place) as observed:
                yield batch
        self._found.activations, self._found.step = observed.top - observed.after, observed.work

    def _evaluate(self, theta: InMemory, model: GNN, scored: Evaluating) -> None:
        with self._ledger.observed(self._place) as observed:
            block = passing(self._reading, self._config.device)
            theta.load_into(model)
            scored.run()
            del block
        self._found.evaluation, self._found.scoring = observed.top - observed.before, observed.work


def _trained_bytes(shapes: Shapes, widths: Widths) -> tuple[int, int]:
    """A module's parameters and buffers, gradients and optimiser state; and the last alone."""
    with rehearsing() as ledger:
        sub = shapes.build(widths)
        optimizer = shapes.training.make_optimizer(sub.parameters())
        for parameter in sub.parameters():
            parameter.grad = torch.empty_like(parameter)
        before = ledger.account("cpu").live
        optimizer.step()
        after = ledger.account("cpu").live
        return after, after - before


def _bytes(tensors: Iterable[Tensor]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)
