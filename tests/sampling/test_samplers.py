"""What holds for every sampler.

Its batches and epochs, seeds, columns, refused settings, unbiased sums, and sizes.
"""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from gistgnn import sampling as kinds
from gistgnn.graphs.named import GraphSizes
from gistgnn.sampling import AutoSampling, Batch, Sampling, whole_graph
from gistgnn.sampling.registry import SAMPLERS as SAMPLERS_BY_NAME
from gistgnn.sampling.sampler import RandomBatches
from tests.helpers.models import tiny_graph
from tests.helpers.refusals import refused
from tests.sampling import reference
from tests.sampling.reference import (
    SAMPLERS,
    converges,
    features,
    layers_of,
    nodes_of,
    random_graph,
)

WHOLE = whole_graph(tiny_graph(60))
each_sampling = pytest.mark.parametrize("sampling", SAMPLERS.values(), ids=SAMPLERS)


def edges_of(layer: Any, nodes: list[int]) -> set[tuple[int, int]]:
    """The (source, target) of a layer's edges, as numbers of the graph's nodes."""
    sources = layer.pattern.col.tolist()
    targets = layer.pattern.row.tolist()
    return {(nodes[source], nodes[target]) for source, target in zip(sources, targets, strict=True)}


@each_sampling
@settings(max_examples=30)
@given(graph=reference.graphs(), step=st.integers(0, 5))
def test_a_batch_is_made_of_edges_of_the_graph(sampling: Sampling, graph: Batch, step: int) -> None:
    edges = set(map(tuple, graph.edge_index.t().tolist()))
    train = set(graph.loss_nodes.tolist())
    if isinstance(sampling, kinds.ClusterSampling):
        sampling = replace(
            sampling, clusters=min(10, len(graph.x)), clusters_per_batch=min(3, len(graph.x))
        )
    with closing(sampling.sampler(graph, 0, layers=2).batches(step, 2)) as batches:
        for batch in batches:
            nodes = nodes_of(batch).tolist()
            layers = layers_of(batch)
            assert len(set(nodes)) == len(nodes) == layers[0].num_nodes
            outputs = nodes[: len(batch.y)]
            assert batch.y.tolist() == graph.y[outputs].tolist()
            assert [nodes[index] for index in batch.loss_nodes.tolist()] == [
                node for node in outputs if node in train
            ]
            for layer in layers:  # by target, as the operators take it
                assert (layer.pattern.row.diff() >= 0).all()
            if len(layers) == 1:
                assert edges_of(layers[0], nodes) == {
                    (source, target) for source, target in edges if {source, target} <= set(nodes)
                }
                continue
            assert set(outputs) <= train
            assert layers[1].num_nodes == layers[0].pattern.shape[0]
            for layer in layers:
                assert edges_of(layer, nodes) <= edges


@pytest.mark.parametrize("name", ["clusters", *reference.LAYERED])
def test_an_epoch_has_every_output_once(name: str) -> None:
    graph = replace(random_graph(60, 180), loss_nodes=torch.arange(0, 60, 3))
    expected = graph.loss_nodes.tolist()
    steps = 3
    if name == "clusters":
        expected = list(range(60))
        steps = 4
    sampler = SAMPLERS[name].sampler(graph, 1, layers=2)
    assert sampler.steps_per_epoch == steps
    for epoch in (0, 3):
        outputs = [
            nodes_of(batch)[: len(batch.y)] for batch in sampler.batches(steps * epoch, steps)
        ]
        assert torch.cat(outputs).sort().values.tolist() == expected


def content(batch: Batch) -> list[object]:
    """All that a batch holds, to compare."""
    tensors = [batch.x, batch.y, batch.loss_nodes]
    for layer in layers_of(batch):
        tensors += [layer.pattern.rowptr, layer.pattern.col, getattr(layer, "weight", None)]
    return [None if tensor is None else tensor.tolist() for tensor in tensors]


def listed(sampler: RandomBatches, first: int, steps: int) -> list[list[object]]:
    with closing(sampler.batches(first, steps)) as batches:
        return [content(batch) for batch in batches]


@each_sampling
def test_a_batch_follows_from_seed_and_step_alone(sampling: Sampling) -> None:
    sampler, again = (sampling.sampler(WHOLE, 4, layers=2) for _ in range(2))
    expected = listed(sampler, 0, 6)
    with closing(again.batches(0, 100)) as left_early:
        next(left_early)
    torch.manual_seed(5)
    one_by_one = [listed(again, step, 1)[0] for step in range(4)]
    assert listed(again, 4, 2) == expected[4:]
    assert one_by_one == expected[:4]
    assert listed(again, 2, 0) == []
    assert len({str(one) for one in expected}) == 6  # also across epochs
    assert listed(sampling.sampler(WHOLE, 5, layers=2), 0, 6) != expected


@each_sampling
def test_sub_gcns_share_their_batches_or_not_and_may_have_some_columns(sampling: Sampling) -> None:
    shared = sampling.sampler(WHOLE, 0, layers=2)
    assert shared.for_sub_gcn(1) is shared
    independent = replace(sampling, batches="independent").sampler(WHOLE, 0, layers=2)
    columns = torch.tensor([4, 1])
    first, second = (listed(independent.for_sub_gcn(i), 0, 3) for i in (1, 2))
    assert first != second
    assert first == listed(shared.with_independent_batches().for_sub_gcn(1), 0, 3)
    assert first == listed(independent.for_sub_gcn(1), 0, 1) + listed(
        independent.for_sub_gcn(1), 1, 2
    )
    independent = independent.for_sub_gcn(2)
    for narrow, full in zip(
        independent.select_columns(columns).batches(0, 3), independent.batches(0, 3), strict=True
    ):
        assert torch.equal(narrow.x, full.x[:, columns])
        assert content(narrow)[1:] == content(full)[1:]


BAD: list[tuple[type[Sampling], dict[str, Any], str]] = [
    (
        kinds.ClusterSampling,
        {"clusters": 5, "clusters_per_batch": 11},
        "clusters_per_batch is 11, more than the 5",
    ),
    (
        kinds.ClusterSampling,
        {"clusters": 10, "method": "best"},
        "expected one of metis, split, stream, random",
    ),
    (
        kinds.ClusterSampling,
        {"clusters": 10, "batches": "own"},
        "expected one of independent, shared",
    ),
    (kinds.ClusterSampling, {"clusters": 40, "precompute": "shared"}, "precompute is 'shared'"),
    (kinds.LadiesSampling, {"batch_size": 0}, "batch_size is 0"),
    (kinds.LadiesSampling, {"nodes_per_layer": (5, True)}, "nodes_per_layer is True"),
    (kinds.FastGCNSampling, {"row_normalise": float("-inf")}, "row_normalise is -inf"),
    (kinds.FastGCNSampling, {"nodes_per_layer": ()}, "nodes_per_layer is ()"),
    (kinds.NeighborSampling, {"fanouts": (10, -2)}, "fanouts is -2"),
    (kinds.SaintWalkSampling, {"walk_length": 0}, "walk_length is 0"),
    (kinds.SaintWalkSampling, {"sample_coverage": -1}, "sample_coverage is -1"),
]


def test_bad_settings_are_refused() -> None:
    for sampling, options, message in BAD:
        with refused(message, "expected"):
            sampling(**options)


SPARSE = random_graph(30, 60)
DENSE = random_graph(30, 90)
DIRECTED = random_graph(30, 120, both_ways=False)
LOOPED = reference.directed(
    30, [*map(tuple, DIRECTED.edge_index.t().tolist()), *((k, k) for k in range(0, 30, 3))]
)
WEIGHTS = torch.rand(LOOPED.adj.num_edges, generator=torch.Generator().manual_seed(0)) + 0.1
WEIGHTED = replace(LOOPED, edge_data={"edge_weight": WEIGHTS})
FOUR = torch.tensor([2, 7, 11, 20])
HALF = torch.arange(0, 30, 2)
CASES: dict[str, tuple[Sampling, Batch, Tensor]] = {
    "ladies": (kinds.LadiesSampling(nodes_per_layer=(8,), row_normalise=False), DENSE, FOUR),
    "fastgcn": (kinds.FastGCNSampling(nodes_per_layer=(8,), row_normalise=False), DENSE, FOUR),
    "neighbor": (kinds.NeighborSampling((2,), batch_size=30), DIRECTED, torch.arange(30)),
    "neighbor, weighted": (kinds.NeighborSampling((2,), batch_size=30), WEIGHTED, torch.arange(30)),
    "fastgcn, weighted": (
        kinds.FastGCNSampling(batch_size=2, nodes_per_layer=(8,), row_normalise=False),
        WEIGHTED,
        HALF,
    ),
    "saint-node": (kinds.SaintNodeSampling(batch_size=12), SPARSE, HALF),
    "saint-edge, weighted": (kinds.SaintEdgeSampling(batch_size=9), WEIGHTED, HALF),
    "saint-edge": (kinds.SaintEdgeSampling(batch_size=7), SPARSE, HALF),
    "saint-edge, directed": (kinds.SaintEdgeSampling(batch_size=9), LOOPED, HALF),
    "saint-rw": (
        kinds.SaintWalkSampling(batch_size=5, walk_length=2, sample_coverage=20_000),
        SPARSE,
        HALF,
    ),
}


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", CASES)
def test_sums_at_the_outputs_are_unbiased(name: str) -> None:
    sampling, graph, outputs = CASES[name]
    a = reference.adjacency(graph)
    x = features(graph.x)
    full_batch = replace(graph, loss_nodes=outputs)
    parts = (reference.laplacian(a), reference.mean(a), reference.plus_one(a))
    exact = torch.cat([torch.tensor(part).double() @ x for part in parts], dim=1)

    def samples() -> Iterator[tuple[Tensor, Tensor]]:
        with closing(sampling.sampler(full_batch, 3).batches(0, 10**6)) as batches:
            for batch in batches:
                nodes = nodes_of(batch)
                operators = (batch.adj.gcn, batch.adj.mean, batch.adj.sum)
                sums = torch.cat(
                    [operator.to_dense().double() @ x[nodes] for operator in operators], dim=1
                )
                rows = torch.zeros_like(exact)
                present = torch.zeros(30, 1)
                rows[nodes[: len(sums)]] = sums
                present[nodes[: len(sums)]] = 1
                yield rows[outputs], present[outputs]

    converges(samples(), exact[outputs], at=(200, 1600))


def test_every_settings_class_is_registered_by_its_name() -> None:
    assert all(kind.name == name for name, kind in SAMPLERS_BY_NAME.items())
    tested = {type(sampling) for sampling in SAMPLERS.values()} | {AutoSampling}
    assert tested == set(SAMPLERS_BY_NAME.values())


LARGE = random_graph(3000, 20_000)  # as the formulas take graphs to be
LARGE = replace(LARGE, loss_nodes=torch.arange(0, 3000, 2))
SIZES = GraphSizes(3000, LARGE.adj.num_edges, 1500)
# Each has the factor by which edges may be more or fewer.
EXPECTED: dict[str, tuple[Sampling, float]] = {
    "random": (kinds.ClusterSampling(30, 5, "random"), 1.2),
    "ladies": (kinds.LadiesSampling(batch_size=100, nodes_per_layer=80), 2.0),
    "fastgcn": (kinds.FastGCNSampling(batch_size=100, nodes_per_layer=(200, 80, 80)), 2.5),
    "neighbor": (kinds.NeighborSampling(5, batch_size=40), 1.3),
    "all neighbours": (kinds.NeighborSampling(-1, batch_size=3), 1.3),
    "saint-node": (kinds.SaintNodeSampling(batch_size=400), 1.3),
    "saint-edge": (kinds.SaintEdgeSampling(batch_size=200), 1.3),
    "saint-rw": (kinds.SaintWalkSampling(batch_size=100, walk_length=3), 2.0),
}


@pytest.mark.parametrize("name", EXPECTED)
def test_batches_are_about_as_large_as_expected(name: str) -> None:
    sampling, factor = EXPECTED[name]
    expected = sampling.expected(SIZES, 3)
    sampler = sampling.sampler(LARGE, 0, layers=3)
    assert sampler.steps_per_epoch == pytest.approx(expected.steps, rel=0.2)
    nodes = []
    edges = []
    loss_nodes = []
    for batch in sampler.batches(0, 5):
        layers = layers_of(batch)
        nodes.append([layer.num_nodes for layer in layers] + [len(batch.y)] * (len(layers) > 1))
        edges.append([layer.num_edges for layer in layers])
        loss_nodes.append(len(batch.loss_nodes))
    mean_nodes = torch.tensor(nodes).float().mean(dim=0)
    mean_edges = torch.tensor(edges).float().mean(dim=0)
    torch.testing.assert_close(mean_nodes, torch.tensor(expected.nodes).float(), rtol=0.35, atol=1)
    ratio = mean_edges / torch.tensor(expected.edges)
    assert ((ratio > 1 / factor) & (ratio < factor)).all(), (mean_edges, expected)
    assert sum(loss_nodes) / 5 == pytest.approx(expected.loss_nodes, rel=0.35)
