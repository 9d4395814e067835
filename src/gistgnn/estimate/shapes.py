"""What a run trains, by sizes alone: its sub-GCNs, its rounds, and the batches that they see."""

from copy import copy
from dataclasses import replace
from typing import NamedTuple

from torch import nn

from gistgnn.accounting.costs import Operations, moments_of, slice_bytes, theta_bytes
from gistgnn.graphs.features import SPARSE_BELOW
from gistgnn.graphs.named import GraphSizes
from gistgnn.runs.config import RunConfig
from gistgnn.sampling import chosen_sampling, expected_batch
from gistgnn.schedule import Schedule


class Factors(NamedTuple):
    """How many numbers a training step of a kind of model holds.

    They were measured; `benchmarks/plan.py` checks them.
    """

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


class SubShape(NamedTuple):
    """The sizes of one sub-GCN."""

    slice: int  # bytes of its parameters and buffers
    parameters: int  # how many numbers are trained
    hidden: tuple[int, ...]  # features of its hidden layers
    carried: int  # bytes of its moments that stay with Θ between rounds


class RunShape:
    """A run of the method "gist" on a graph of given sizes.

    Args:
        config: the run.
        sizes: of the graph.
        other: the same run with another m, whose model has been checked already.

    Attributes:
        config: the run, with the sampler that it takes.
        gist: its `GIST`.
        theta: bytes of Θ.
        model: the full model, without values.
        full: how many numbers the full model trains.
        hidden: features of its hidden layers.
        subs: the sub-GCNs of the first round.
        moments: how many the optimiser keeps of each parameter.
        schedule: the rounds.
        evaluations: how often the model is scored.
        seen: the graph that is trained on.
        expected: the batch of a step.
        factors: of this kind of model.
        standardised: the features are scaled.
        sparse: the features are multiplied as a sparse matrix.
        shares_batches: all sub-GCNs see the same batches.

    Raises:
        InputError: an m or a setting is out of range.
    """

    def __init__(
        self, config: RunConfig, sizes: GraphSizes, other: "RunShape | None" = None
    ) -> None:
        config = replace(config, sampler=chosen_sampling(config.sampler, sizes.nodes))
        self.config = config
        self.sizes = sizes
        if other is None:
            alike = replace(
                config, store="memory", share="whole", store_precision="float32", device="cpu"
            )
            self.gist = alike.trainer(sizes.features, sizes.classes)
        else:
            self.gist = copy(other.gist)
            self.gist.partition = other.gist.partition.split_into(config.sub_gcns)
        self._spec = self.gist.full_spec
        self.theta = theta_bytes(self._spec)
        self.model = self._spec.on_meta()
        self.full = _count(self.model)
        self.factors = FACTORS.get(config.model.name, FACTORS["gcn"])
        self._heads = config.model.heads if self.factors.attending else 0  # 0: it does not attend
        self.hidden = self._features(config.model.hidden)

        self.seen = sizes.training() if config.inductive else sizes
        self.expected = expected_batch(config.sampler, self.seen, config.model.layers)
        is_dense = sizes.nonzero >= SPARSE_BELOW
        self.standardised = is_dense if config.standardise is None else config.standardise
        self.sparse = not is_dense and not self.standardised
        if self.sparse:  # they are multiplied by the weights first
            self.expected = replace(self.expected, precomputed=False)
        has_own_batches = config.sampler is not None and config.sampler.batches == "independent"
        self.shares_batches = not has_own_batches and self.gist.input_axis is None

        self.moments = moments_of(config.training)
        self.subs = self._sub_shapes()
        self.schedule = self._make_schedule()
        self.evaluations = -(-self.schedule.rounds // self.schedule.evaluate_every)

    @property
    def narrow(self) -> nn.Module:
        """The first sub-GCN, without values."""
        widths = self.gist.layout.widths(self.gist.partition.sizes(0)[0])
        return replace(self._spec, widths=widths).on_meta()

    @property
    def moved(self) -> list[int]:
        """The bytes that every sub-GCN reads from Θ and writes into it in a round."""
        return [2 * (sub.slice + sub.carried) for sub in self.subs]

    @property
    def largest_slice(self) -> int:
        """The bytes of the largest sub-GCN's parameters and buffers."""
        return max(sub.slice for sub in self.subs)

    def activations(self, sub: SubShape) -> int:
        """Return the bytes that a step of a sub-GCN holds, beside its parameters.

        These are the features that its gradient needs, and the gradient.
        """
        # Of every node and feature, a layer keeps `of_a_layer` numbers until the gradient has
        # passed it; while the gradient passes, it takes `factors.passing` more.
        factors = self.factors
        batch = self.expected
        layers = self.config.model.layers
        of_a_layer = factors.kept
        if self.config.model.norm != "none":
            of_a_layer += factors.norm
        until_backward = most = 0.0
        for layer, width in enumerate(sub.hidden, start=1):
            features = width * batch.nodes[min(layer, len(batch.nodes) - 1)]
            until_backward += of_a_layer * features
            most = max(most, until_backward + factors.passing * features)
        edges = sum(batch.edges) if len(batch.edges) > 1 else layers * batch.edges[0]
        attending = factors.attending * self._heads * (edges + layers * batch.nodes[0])
        product = 0.0
        if self.config.sampler is not None and not batch.precomputed and not self.sparse:
            product = factors.product * batch.nodes[0] * self.sizes.features
        outputs = 3 * batch.nodes[-1] * self.sizes.classes
        return round(4 * (most + attending + product + outputs))

    def _sub_shapes(self) -> list[SubShape]:
        gist = self.gist
        blocks = gist.partition.sizes(0)
        widths_of_subs = [gist.layout.widths(sizes) for sizes in blocks]
        models = {
            widths: replace(self._spec, widths=widths).on_meta() for widths in set(widths_of_subs)
        }
        keeps_moments = self.config.training.keeps_moments or len(blocks) == 1
        first_hidden = 0 if gist.input_axis is None else 1
        shapes = []
        for widths, size in zip(widths_of_subs, slice_bytes(self._spec, blocks), strict=True):
            parameters = _count(models[widths])
            carried = 4 * self.moments * parameters if keeps_moments else 0
            shapes.append(
                SubShape(size, parameters, self._features(widths[first_hidden:]), carried)
            )
        return shapes

    def _make_schedule(self) -> Schedule:
        config = self.config
        gist = self.gist
        operations = Operations(
            self._spec,
            gist.partition,
            self.sizes,
            config.sampler,
            config.evaluation,
            inductive=config.inductive,
        )
        return Schedule(config.training, self.expected.steps, gist.workers, operations)

    def _features(self, widths: tuple[int, ...]) -> tuple[int, ...]:
        """Return the features of hidden layers by their widths, which are those of a head."""
        return tuple(max(self._heads, 1) * width for width in widths)


def _count(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())
