"""What a run trains, by sizes alone: its phases, their sub-GCNs, and the batches that these see."""

import itertools
from copy import copy
from dataclasses import replace
from functools import cached_property
from typing import NamedTuple

from torch import nn

from gistgnn.accounting.costs import Operations, moments_of, slice_bytes, theta_bytes
from gistgnn.graphs.named import GraphSizes
from gistgnn.runs.config import RunConfig
from gistgnn.sampling import chosen_sampling, expected_batch
from gistgnn.sampling.batch import SPARSE_BELOW
from gistgnn.schedule import RoundPlan, Schedule, check_phases


class Factors(NamedTuple):
    """How many numbers a training step of a kind of model holds, measured (`benchmarks/plan.py` checks them)."""

    kept: float  # of each node and output feature of a hidden layer, until the gradient has passed
    norm: float  # more of them in a layer with a norm
    passing: float  # of each node and feature of the layer that the gradient passes
    attending: float  # of each edge and head of a layer
    product: float  # of each node and input feature, for the first layer's sums of neighbours
    entry: int  # bytes of each edge and self-loop in the operators, and in their transposes


FACTORS = {
    "gcn": Factors(2, 1, 2.5, 0, 1, 27),
    "graphsage": Factors(2, 1, 2.5, 0, 2.4, 19),
    "gin": Factors(3, 2.3, 3, 0, 1, 27),
    "gat": Factors(3.1, 1, 3.8, 2, 0, 50),
    "gatv2": Factors(4.1, 1, 3.8, 1.4, 0, 45),
}
"""By the model's name. A model of the user's own counts as a GCN."""


class PhaseShape(NamedTuple):
    """A phase of a run; a run without phases has one."""

    number: int  # from 1
    first: RoundPlan  # of its first round
    rounds: range
    epochs: float
    evaluations: int
    slices: list[int]  # bytes of every sub-GCN's parameters and buffers
    parameters: list[int]  # how many numbers they have
    hidden: list[tuple[int, ...]]  # features of their hidden layers
    narrow: nn.Module  # the first sub-GCN, without values
    trained: int  # how many sub-GCNs train: one where the others are copies of it
    moments: int  # of each parameter that the optimiser keeps
    carried: list[int]  # bytes of every sub-GCN's moments that stay with Θ


class RunShape:
    """A run of the method "gist" on a graph of given sizes; an m, phase or setting out of range is an InputError.

    `other`: the same run with another m, whose model has been checked already.
    """

    def __init__(self, config: RunConfig, sizes: GraphSizes, other: "RunShape | None" = None) -> None:
        config = replace(config, sampler=chosen_sampling(config.sampler, sizes.nodes))
        self.config, self.sizes = config, sizes
        if other is None:
            alike = replace(config, store="memory", share="whole", store_precision="float32", device="cpu")
            self._gist = alike.trainer(sizes.features, sizes.classes)
        else:
            self._gist = copy(other._gist)
            self._gist.partition = other._gist.partition.split_into(config.sub_gcns)
        gist = self._gist
        self._spec = spec = gist._full_spec
        self.theta, self.model = theta_bytes(spec), spec.on_meta()
        self.full = _count(self.model)  # numbers in all parameters
        self.seen = sizes.training() if config.inductive else sizes  # by training
        self.expected = expected_batch(config.sampler, self.seen, config.model.layers)
        self.factors = FACTORS.get(config.model.name, FACTORS["gcn"])
        self.heads = config.model.heads if self.factors.attending else 0  # 0: the model does not attend
        self.hidden = tuple(max(self.heads, 1) * width for width in config.model.hidden)
        self.standardised = sizes.nonzero >= SPARSE_BELOW if config.standardise is None else config.standardise
        self.sparse = sizes.nonzero < SPARSE_BELOW and not self.standardised  # features are multiplied as such a matrix
        independent = config.sampler is not None and config.sampler.batches == "independent"
        self.shares_batches = not independent and gist.input_axis is None  # all sub-GCNs see the same batches
        check_phases(config.training.phases, gist.partition)
        counted = (spec, gist.partition, sizes, config.sampler, config.evaluation)
        operations = Operations(*counted, inductive=config.inductive)
        self.schedule = Schedule(config.training, self.expected.steps, gist.workers, operations)

    @cached_property
    def phases(self) -> list[PhaseShape]:
        epochs = [phase.epochs for phase in self.config.training.phases] or [self.config.training.all_epochs]
        return [self._phase(*each) for each in zip(itertools.count(1), self.schedule.phases, epochs)]

    def activations(self, phase: PhaseShape, sub: int = 0) -> int:
        """Bytes that a step of a sub-GCN holds, beside parameters: features for the gradient, and the gradient."""
        # Layer l keeps a·n·d_l numbers; while the gradient passes it, it takes b·n·d_l more.
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

    def _phase(self, number: int, rounds: range, epochs: float) -> PhaseShape:
        gist, first = self._gist, self.schedule.plan(rounds.start)
        counts = gist._partition_of(first).sizes(first.draw)
        widths = [gist.layout.widths(each) for each in counts]
        models = {each: replace(self._spec, widths=each).on_meta() for each in {*widths}}
        parameters = [_count(models[each]) for each in widths]
        hidden = [tuple(max(self.heads, 1) * d for d in each[gist.input_axis is not None :]) for each in widths]
        keeps = first.training.keeps_moments or len(counts) == 1
        moments, every = moments_of(first.training), first.evaluate_every
        # The phase ends with one.
        evaluations = rounds.stop // every - rounds.start // every + bool(rounds.stop % every)
        return PhaseShape(
            number, first, rounds, epochs, evaluations, slice_bytes(self._spec, counts), parameters, hidden,
            narrow=models[widths[0]], trained=first.copies or len(counts), moments=moments,
            carried=[4 * keeps * moments * count for count in parameters],
        )  # fmt: skip


def _count(model: nn.Module) -> int:
    return sum(each.numel() for each in model.parameters())
