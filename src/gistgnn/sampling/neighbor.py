"""Uniform neighbour sampling (Hamilton et al., 2017)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from gistgnn.graphs.csr import CSR, index_dtype
from gistgnn.graphs.sizes import GraphSizes
from gistgnn.nn.sampled import SampledAdjacency
from gistgnn.sampling.layered import LayeredSampling, Layers
from gistgnn.sampling.sampler import Array, Expected
from gistgnn.sampling.structure import Structure

ALL = -1  # neighbours


@dataclass(frozen=True)
class NeighborSampling(LayeredSampling):
    """Uniform neighbour sampling as in GraphSAGE, with the layout of PyG's ``NeighborLoader``.

    Starting at the output nodes, every node that a hop reaches draws k of its neighbours without replacement. It draws
    once and uses them in all layers. Their edges get the weight degree / k, so that sums over them are unbiased.

    Args:
        fanouts: k, the same for every layer of the model; or one number for each hop, the output nodes' first; -1: all
            neighbours.
        batch_size: output nodes of a batch, on which the loss is.
        batches: see `Sampling`.
    """

    name = "neighbor"
    per_layer = "fanouts"
    also = ALL

    fanouts: int | tuple[int, ...] = 10
    batch_size: int = 512

    def expected(self, graph: GraphSizes, layers: int) -> Expected:
        """Count neighbours as if every node drew them from all nodes."""
        nodes, edges = [float(min(self.batch_size, graph.train))], [0.0]
        new = nodes[0]
        for fanout in self.numbers(layers):
            drawn = new * (graph.degree if fanout == ALL else min(fanout, graph.degree))
            new = (graph.nodes - nodes[-1]) * -math.expm1(-drawn / graph.nodes)
            nodes.append(nodes[-1] + new)
            edges.append(edges[-1] + drawn)
        return Expected.layered(graph, nodes, edges[1:])

    def draw_layers(
        self, structure: Structure, outputs: Array, numbers: tuple[int, ...], rng: np.random.Generator
    ) -> Layers:
        """Draw the neighbours that every hop reaches; see `LayeredSampling.draw_layers`."""
        place = np.full(structure.nodes, -1, np.int32)  # of a node among those of the batch
        place[outputs] = np.arange(len(outputs))
        nodes, reached, kept, chosen, sources = outputs, [len(outputs)], [], [], []
        for fanout in numbers:
            frontier = nodes[reached[-2] if len(reached) > 1 else 0 :]  # a node's neighbours are drawn once
            entries, counts = draw_edges(structure, frontier, fanout, rng)
            drawn = structure.edges.indices[entries]
            new = np.unique(drawn[place[drawn] < 0])
            place[new] = np.arange(len(nodes), len(nodes) + len(new))
            nodes = np.concatenate([nodes, new])
            reached.append(len(nodes))
            kept.append(counts)
            chosen.append(entries)
            sources.append(place[drawn])
        data = structure.data_of(np.concatenate(chosen))
        return nodes, _cut(structure, nodes, reached, np.concatenate(kept), np.concatenate(sources), data), data


def _cut(
    structure: Structure, nodes: Array, reached: list[int], kept: Array, sources: Array, data: dict[str, Tensor]
) -> list[SampledAdjacency]:
    """Return every layer's edges: all edges into its output nodes, which are the first nodes of the batch.

    ``reached`` is the number of nodes after each hop, ``kept`` the number of edges into each node but those of the last
    hop. ``sources`` and ``data`` are of these edges; sources are places in the batch.
    """
    where, each = torch.from_numpy(nodes), torch.from_numpy(kept)
    degrees, counts = structure.degrees.of(where), structure.counts[where[: len(each)]]
    weight = (counts.to(degrees.plain.dtype) / each).repeat_interleave(each)
    if "edge_weight" in data:
        weight *= data["edge_weight"].to(weight)
    rowptr, dtype = torch.cat([each.new_zeros(1), each.cumsum(0)]), index_dtype(len(nodes), len(sources))
    whole = CSR(rowptr.to(dtype), torch.from_numpy(sources).to(dtype), (len(each), len(nodes)))
    layers: list[SampledAdjacency] = []
    for rows, columns in pairwise(reached):
        part = whole.top(rows, columns)
        layers.insert(0, SampledAdjacency(part, degrees.first(columns), weight[: part.num_edges]))
    return layers


def draw_edges(structure: Structure, nodes: Array, fanout: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """Draw ``fanout`` edges into each node without replacement, or all of them where there are no more.

    ``fanout`` -1 is all. Return the entries of `Structure.edges` that were drawn, node by node, and their number for
    each node: [n] int64.
    """
    fanout = min(fanout, structure.most_neighbours)
    starts = structure.edges.indptr[nodes].astype(np.int64)
    degree = structure.edges.indptr[nodes + 1].astype(np.int64) - starts
    if fanout == ALL:
        before = degree.cumsum() - degree
        return (starts - before).repeat(degree) + np.arange(degree.sum()), degree
    kept = np.minimum(degree, fanout)
    chosen = np.broadcast_to(np.arange(fanout), (len(nodes), fanout)).copy()
    many = np.flatnonzero(degree > fanout)
    chosen[many] = _distinct(degree[many], fanout, rng)
    entries = (starts[:, None] + chosen)[np.arange(fanout) < kept[:, None]]
    return entries, kept


def _distinct(sizes: Array, count: int, rng: np.random.Generator) -> Array:
    """Draw for each size n > count a random set of ``count`` distinct numbers in 0..n-1: [., count].

    Floyd's algorithm for all sizes at once: the t-th number is one of 0..n-count+t; the largest of these where the
    number has been drawn before.
    """
    chosen = np.empty((len(sizes), count), np.int64)
    for t in range(count):
        last = sizes - count + t
        drawn = (rng.random(len(sizes)) * (last + 1)).astype(np.int64)
        before = (chosen[:, :t] == drawn[:, None]).any(axis=1)
        chosen[:, t] = np.where(before, last, drawn)
    return chosen
