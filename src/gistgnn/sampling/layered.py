"""Batches whose nodes are sampled layer by layer, from the output nodes down.

Uniform neighbour sampling is here.
"""

import math
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from gistgnn.errors import InputError
from gistgnn.graphs.csr import CSR, index_dtype
from gistgnn.graphs.named import GraphSizes
from gistgnn.nn.sampled import SampledAdjacency
from gistgnn.sampling.batch import Batch
from gistgnn.sampling.sampler import Expected, RandomBatches, Sampling
from gistgnn.sampling.structure import Structure
from gistgnn.utils.checks import AtLeastOne, as_integer, check_count, check_kind, set_field
from gistgnn.utils.tensors import Array, to_device

ALL = -1  # the number that stands for all neighbours of a node

DrawnLayers = tuple[Array, list[SampledAdjacency], dict[str, Tensor]]
"""The numbers of the first layer's input nodes, every layer's edges, and their edge data by name.

The edge data are empty where layers have edges of their own.
"""


class LayeredSampling(Sampling):
    """Settings of a sampler that draws the edges of every layer.

    `per_layer` names the setting that has one number, or one for each layer.
    """

    per_layer: ClassVar[str]
    # A value of that setting, below 1, that means all neighbours; large numbers mean so as well.
    unlimited: ClassVar[int | None] = None
    refuses: ClassVar[str | None] = None  # see `SampledAdjacency`

    batch_size: int  # a field of the subclasses

    def __post_init__(self) -> None:
        super().__post_init__()
        value: Any = getattr(self, self.per_layer)
        if (number := as_integer(value)) is not None:
            set_field(self, self.per_layer, self._checked(number))
            return
        # A list is what result.json has.
        check_kind(self.per_layer, value, (list, tuple), "an integer, or one for each layer")
        if not value:
            raise InputError(f"{self.per_layer} is (), expected at least one number")
        set_field(self, self.per_layer, tuple(map(self._checked, value)))

    def _checked(self, number: Any) -> int:
        """Return a number of a layer as Python's; raise InputError if it is none."""
        if self.unlimited is not None and as_integer(number) == self.unlimited:
            return self.unlimited
        return check_count(self.per_layer, number)

    def numbers(self, layers: int | None) -> tuple[int, ...]:
        """Return the setting's number for each layer of a model.

        ``layers`` is None where the model does not say how many it has.
        """
        name = self.per_layer
        value = getattr(self, name)
        if isinstance(value, int):
            if layers is None:
                raise InputError(
                    f"{name} is {value}, but how many layers the model has is not known (it has no "
                    "num_layers): give "
                    f"one number for each, such as ({value}, {value})"
                )
            return (value,) * layers
        if layers not in (None, len(value)):
            differ = f"{name} has {len(value)} numbers, the model {layers} layers"
            raise InputError(f"{differ}: give one for all, or {layers}")
        return value

    def sampler(self, full_batch: Batch, seed: int, layers: int | None = None) -> "LayeredBatches":
        return LayeredBatches(Structure(full_batch), self, self.numbers(layers), seed)

    @abstractmethod
    def draw_layers(
        self,
        structure: Structure,
        outputs: Array,
        numbers: tuple[int, ...],
        rng: np.random.Generator,
    ) -> DrawnLayers:
        """Draw the edges of every layer.

        Args:
            structure: the graph.
            outputs: the output nodes, [n].
            numbers: the setting `per_layer`, for each layer.
            rng: what is drawn follows from it alone.
        """


class LayeredBatches(RandomBatches):
    """Batches in which every layer has its own edges.

    A layer's output nodes are the first of its input nodes. An epoch is a random permutation of the
    training nodes, cut into groups. A group are the output nodes of the last layer.
    """

    def __init__(
        self, structure: Structure, settings: LayeredSampling, numbers: tuple[int, ...], seed: int
    ) -> None:
        super().__init__(seed, independent=settings.batches == "independent")
        self._structure = structure
        self._settings = settings
        self._numbers = numbers
        self.steps_per_epoch = -(-len(structure.train) // settings.batch_size)

    def _drawn(self, first_step: int, steps: int) -> Iterator[tuple[int, Array]]:
        return self._shuffled(
            len(self._structure.train), self._settings.batch_size, first_step, steps
        )

    def make(self, drawn: tuple[int, Array]) -> Batch:
        structure = self._structure
        step, places = drawn
        outputs = structure.train[places]
        rng = self._generator("layers", step)
        nodes, layers, edge_data = self._settings.draw_layers(
            structure, outputs, self._numbers, rng
        )
        first, *above = layers
        adj = SampledAdjacency(
            first.pattern, first.degrees, first.weight, above=above, refuses=self._settings.refuses
        )
        y = structure.y
        labels = y.index_select(0, to_device(torch.from_numpy(outputs), y.device))
        x = structure.features(torch.from_numpy(nodes))
        output_places = torch.arange(len(outputs), device=y.device)
        return Batch(
            x, adj.to(y.device), labels, output_places, sparse=structure.sparse, edge_data=edge_data
        )


@dataclass(frozen=True)
class NeighborSampling(LayeredSampling):
    """Uniform neighbour sampling as in GraphSAGE, with the layout of PyG's ``NeighborLoader``.

    Starting at the output nodes, every node that a hop reaches draws k of its neighbours without
    replacement. It draws once and uses them in all layers. Their edges get the weight degree / k,
    so that sums over them are unbiased.

    Args:
        fanouts: k, the same for every layer of the model; or one number for each hop, the output
            nodes' first. -1 takes all neighbours.
        batch_size: output nodes of a batch, on which the loss is.
    """

    name = "neighbor"
    per_layer = "fanouts"
    unlimited = ALL

    fanouts: int | tuple[int, ...] = 10
    batch_size: AtLeastOne = 512

    def expected(self, graph: GraphSizes, layers: int) -> Expected:
        """Count neighbours as if every node drew them from all nodes."""
        nodes = [float(min(self.batch_size, graph.train))]
        edges = [0.0]
        new = nodes[0]
        for fanout in self.numbers(layers):
            drawn = new * (graph.degree if fanout == ALL else min(fanout, graph.degree))
            new = (graph.nodes - nodes[-1]) * -math.expm1(-drawn / graph.nodes)
            nodes.append(nodes[-1] + new)
            edges.append(edges[-1] + drawn)
        return Expected.layered(graph, nodes, edges[1:])

    def draw_layers(
        self,
        structure: Structure,
        outputs: Array,
        numbers: tuple[int, ...],
        rng: np.random.Generator,
    ) -> DrawnLayers:
        """Draw the neighbours that every hop reaches; see `LayeredSampling.draw_layers`."""
        place_of_node = np.full(structure.nodes, -1, np.int32)  # of a node among those of the batch
        place_of_node[outputs] = np.arange(len(outputs))
        nodes = outputs
        reached = [len(outputs)]
        counts_of_hops = []
        chosen = []
        sources = []
        for fanout in numbers:
            # The neighbours of a node are drawn once.
            frontier = nodes[reached[-2] if len(reached) > 1 else 0 :]
            entries, counts = draw_edges(structure, frontier, fanout, rng)
            drawn = structure.edges.indices[entries]
            new = np.unique(drawn[place_of_node[drawn] < 0])
            place_of_node[new] = np.arange(len(nodes), len(nodes) + len(new))
            nodes = np.concatenate([nodes, new])
            reached.append(len(nodes))
            counts_of_hops.append(counts)
            chosen.append(entries)
            sources.append(place_of_node[drawn])
        data = structure.data_of(np.concatenate(chosen))
        drawn_edges = np.concatenate(counts_of_hops)
        layers = _edges_of_layers(
            structure, nodes, reached, drawn_edges, np.concatenate(sources), data
        )
        return nodes, layers, data


def _edges_of_layers(
    structure: Structure,
    nodes: Array,
    reached: list[int],
    drawn_edges: Array,
    sources: Array,
    data: dict[str, Tensor],
) -> list[SampledAdjacency]:
    """Return every layer's edges: all drawn edges into its output nodes.

    Args:
        structure: the graph.
        nodes: those of the batch, by number.
        reached: how many nodes the batch has before any hop, after the first hop, and so on. A
            layer's output nodes are the first nodes of the batch, and so are its input nodes.
        drawn_edges: how many edges into each node were drawn, by node of the batch.
        sources: of these edges, by place in the batch.
        data: edge data of these edges, by name.
    """
    batch_nodes = torch.from_numpy(nodes)
    counts_of_nodes = torch.from_numpy(drawn_edges)
    degrees = structure.degrees.of(batch_nodes)
    counts = structure.counts[batch_nodes[: len(counts_of_nodes)]]
    weight = (counts.to(degrees.plain.dtype) / counts_of_nodes).repeat_interleave(counts_of_nodes)
    if "edge_weight" in data:
        weight *= data["edge_weight"].to(weight)
    rowptr = torch.cat([counts_of_nodes.new_zeros(1), counts_of_nodes.cumsum(0)])
    dtype = index_dtype(len(nodes), len(sources))
    all_edges = CSR(
        rowptr.to(dtype), torch.from_numpy(sources).to(dtype), (len(counts_of_nodes), len(nodes))
    )
    layers: list[SampledAdjacency] = []
    for rows, columns in pairwise(reached):
        part = CSR(
            all_edges.rowptr[: rows + 1],
            all_edges.col[: int(all_edges.rowptr[rows])],
            (rows, columns),
        )
        layers.insert(
            0, SampledAdjacency(part, degrees.of(slice(columns)), weight[: part.num_edges])
        )
    return layers


def draw_edges(
    structure: Structure, nodes: Array, fanout: int, rng: np.random.Generator
) -> tuple[Array, Array]:
    """Draw ``fanout`` edges into each node without replacement, or all of them.

    Returns their entries, and how many each node has: [n].
    """
    starts = structure.edges.indptr[nodes].astype(np.int64)
    degree = structure.edges.indptr[nodes + 1].astype(np.int64) - starts
    counts = degree if fanout == ALL else np.minimum(degree, fanout)
    before = counts.cumsum() - counts
    # At first these are the first edges of every node.
    entries = (starts - before).repeat(counts) + np.arange(counts.sum())
    has_more = degree > counts
    if has_more.any():
        chosen = _distinct(degree[has_more], fanout, rng)
        entries[has_more.repeat(counts)] = (starts[has_more, None] + chosen).ravel()
    return entries, counts


def _distinct(sizes: Array, count: int, rng: np.random.Generator) -> Array:
    """Draw ``count`` distinct numbers in 0..n-1 for each size n: [sizes, count].

    Floyd's algorithm does so for all sizes at once.
    """
    chosen = np.empty((len(sizes), count), np.int64)
    for t in range(count):
        last = sizes - count + t
        drawn = (rng.random(len(sizes)) * (last + 1)).astype(np.int64)
        before = (chosen[:, :t] == drawn[:, None]).any(axis=1)
        chosen[:, t] = np.where(before, last, drawn)
    return chosen
