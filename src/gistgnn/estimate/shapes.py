"""What a run trains, by sizes alone: its phases, their sub-GCNs, and the batches that these see."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import NamedTuple

from torch import nn

from gistgnn.accounting.footprint import moments_of, theta_bytes
from gistgnn.accounting.operations import Operations
from gistgnn.errors import InputError
from gistgnn.graphs.sizes import GraphSizes
from gistgnn.partition import Partition
from gistgnn.runs.config import RunConfig
from gistgnn.sampling import expected_batch
from gistgnn.sampling.batch import SPARSE_BELOW
from gistgnn.schedule import RoundPlan, Schedule, check_phases


class Factors(NamedTuple):
    """Measured factors of a kind of model: how many numbers a training step holds (`benchmarks/plan.py` checks them).

    Attributes:
        kept: of each node and output feature of a hidden layer, until the gradient has passed.
        norm: more of them in a layer with a norm.
        passing: of each node and feature of the layer that the gradient passes.
        attending: of each edge and head of a layer.
        product: of each node and input feature, for the first layer's sums of neighbours.
        entry: bytes of each edge and self-loop in the operators, and in their transposes.
    """

    kept: float
    norm: float
    passing: float
    attending: float
    product: float
    entry: int


FACTORS = {
    "gcn": Factors(2, 1, 2.5, 0, 1, 27),
    "graphsage": Factors(2, 1, 2.5, 0, 2.4, 19),
    "gin": Factors(3, 2.3, 3, 0, 1, 27),
    "gat": Factors(3.1, 1, 3.8, 2, 0, 50),
    "gatv2": Factors(4.1, 1, 3.8, 1.4, 0, 45),
}
"""By the model's name. A model of the user's own counts as a GCN."""


@dataclass(frozen=True)
class PhaseShape:
    """A phase of a run; a run without phases has one. Sizes are in bytes.

    Attributes:
        first: the plan of its first round.
        rounds: the numbers of its rounds.
        epochs: its epochs.
        slices: parameters and buffers of every sub-GCN.
        parameters: numbers in every sub-GCN's parameters.
        matrix: the largest parameter of the first sub-GCN.
        hidden: features of the hidden layers of every sub-GCN.
        moments: moments of each parameter that the optimiser keeps.
        keeps: whether moments stay with Θ between rounds.
    """

    first: RoundPlan
    rounds: range
    epochs: float
    slices: list[int]
    parameters: list[int]
    matrix: int
    hidden: list[tuple[int, ...]]
    moments: int
    keeps: bool

    @property
    def trained(self) -> int:
        """How many sub-GCNs train: one where the others are copies of it."""
        return 1 if self.first.copies else len(self.slices)

    @property
    def carried(self) -> list[int]:
        """Bytes of every sub-GCN's moments that stay with Θ."""
        return [4 * self.keeps * self.moments * count for count in self.parameters]

    @property
    def evaluations(self) -> int:
        """How many evaluations it has: it ends with one."""
        every, rounds = self.first.evaluate_every, self.rounds
        return rounds.stop // every - rounds.start // every + bool(rounds.stop % every)


class RunShape:
    """A run of the method "gist" on a graph of given sizes.

    Attributes:
        config: the run.
        sizes: of its graph.
        seen: of the part that training sees.
        expected: the sizes of a batch.
        theta: bytes of the full model's parameters and buffers.
        full: numbers in its parameters.

    Raises:
        InputError: a model, m, phase or setting out of range.
    """

    def __init__(self, config: RunConfig, sizes: GraphSizes) -> None:
        self.config, self.sizes = config, sizes
        alike = replace(config, store="memory", store_precision="float32", device="cpu")
        self._gist = alike.trainer(sizes.features, sizes.classes)
        self._spec = self._gist._full_spec
        self.theta, self.full = theta_bytes(self._spec), _count(self.model)
        self.seen = sizes.training() if config.inductive else sizes
        self.expected = expected_batch(config.sampler, self.seen, config.model.layers)
        check_phases(config.training.phases, self._gist.partition)
        counted = Operations.of_run(
            self._spec, self._gist.partition, sizes, config.sampler, config.evaluation, inductive=config.inductive
        )
        self.schedule = Schedule(config.training, self.expected.steps, self._gist.workers, counted)

    @cached_property
    def model(self) -> nn.Module:
        """The full model, without values."""
        return self._spec.on_meta()

    @cached_property
    def phases(self) -> list[PhaseShape]:
        """The phases of the run."""
        epochs = [phase.epochs for phase in self.config.training.phases] or [self.config.training.epochs]
        return [self._phase(*each) for each in zip(self.schedule.phases, epochs, strict=True)]

    def narrow_model(self, phase: PhaseShape) -> nn.Module:
        """Return the first sub-GCN of a phase, without values."""
        counts = self._gist._partition_of(phase.first).sizes(phase.first.draw)[0]
        return replace(self._spec, widths=self._gist.layout.widths(counts)).on_meta()

    @property
    def splits_inputs(self) -> bool:
        """Whether every sub-GCN sees features of its own."""
        return self._gist.input_axis is not None

    @property
    def shares_batches(self) -> bool:
        """Whether all sub-GCNs see the same batches."""
        return not (self.config.sampler is not None and self.config.sampler.independent) and not self.splits_inputs

    @property
    def factors(self) -> Factors:
        """The factors of its kind of model."""
        return FACTORS.get(self.config.model.name, FACTORS["gcn"])

    @property
    def sparse(self) -> bool:
        """Whether the features are multiplied as a sparse matrix."""
        return self.sizes.nonzero < SPARSE_BELOW and not self.standardised

    @property
    def standardised(self) -> bool:
        """Whether the features are scaled."""
        wanted = self.config.standardise
        return self.sizes.nonzero >= SPARSE_BELOW if wanted is None else wanted

    def activations(self, phase: PhaseShape, sub: int = 0) -> int:
        """Bytes that a step of a sub-GCN holds, beside parameters: features for the gradient, and the gradient.

        Layer l keeps a·n·d_l numbers; while the gradient passes it, it takes b·n·d_l more.
        """
        own, model, batch = self.factors, self.config.model, self.expected
        kept, most = 0.0, 0.0
        for layer, width in enumerate(phase.hidden[sub]):
            nodes = batch.nodes[min(layer + 1, len(batch.nodes) - 1)] * width
            kept += (own.kept + own.norm * (model.norm != "none")) * nodes
            most = max(most, kept + own.passing * nodes)
        edges = sum(batch.edges) if len(batch.edges) > 1 else batch.edges[0] * model.layers
        attending = own.attending * self.heads * (edges + batch.nodes[0] * model.layers)
        first = 0.0 if self.config.sampler is None or batch.precomputed else own.product * batch.nodes[0]
        outputs = 3 * batch.nodes[-1] * self.sizes.classes
        return round(4 * (most + attending + first * self.sizes.features + outputs))

    @property
    def hidden(self) -> tuple[int, ...]:
        """Features of the full model's hidden layers."""
        return tuple(max(self.heads, 1) * width for width in self.config.model.hidden)

    @property
    def heads(self) -> int:
        """Attention heads; 0: the model does not attend."""
        return self.config.model.heads if self.factors.attending else 0

    def _phase(self, rounds: range, epochs: float) -> PhaseShape:
        gist, first = self._gist, self.schedule.plan(rounds.start)
        counts = gist._partition_of(first).sizes(first.draw)
        widths = [gist.layout.widths(each) for each in counts]
        specs = {each: replace(self._spec, widths=each) for each in {*widths}}
        models = {each: spec.on_meta() for each, spec in specs.items()}
        sizes = {each: theta_bytes(spec) for each, spec in specs.items()}
        begin, per_head = int(self.splits_inputs), max(self.heads, 1)
        return PhaseShape(
            first=first,
            rounds=rounds,
            epochs=epochs,
            slices=[sizes[each] for each in widths],
            parameters=[_count(models[each]) for each in widths],
            matrix=max(4 * prod(each.shape) for each in models[widths[0]].parameters()),
            hidden=[tuple(per_head * width for width in each[begin:]) for each in widths],
            moments=moments_of(first.training),
            keeps=first.training.optimizer_state == "carry" or first.lasting or len(counts) == 1,
        )


def _count(model: nn.Module) -> int:
    return sum(each.numel() for each in model.parameters())


def possible_sub_gcns(config: RunConfig, sizes: GraphSizes, candidates: Sequence[int]) -> list[int]:
    """Return those of some m into which the run's widths can be split."""
    widths = enumerate((sizes.features, *config.model.hidden))
    split, possible = [width for dim, width in widths if dim in config.partitioned_dims], []
    for m in candidates:
        with suppress(InputError):
            Partition(split, m, kind=config.partition)
            possible.append(m)
    return possible
