"""LADIES, FastGCN and GraphSAINT against their formulas.

That sums are unbiased is in `test_samplers`.
"""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from gistgnn.graphs import CSR
from gistgnn.sampling import (
    Batch,
    FastGCNSampling,
    LadiesSampling,
    SaintEdgeSampling,
    SaintNodeSampling,
)
from gistgnn.subtrain import loss_of
from tests.sampling import reference
from tests.sampling.reference import (
    SAMPLERS,
    Mean,
    converges,
    features,
    layers_of,
    nodes_of,
    random_graph,
)

SAINT = {"saint-node": SAMPLERS["saint-node"], "saint-edge": SAMPLERS["saint-edge"]}
SAINT["saint-rw"] = replace(SAMPLERS["saint-rw"], batch_size=5, sample_coverage=20_000)
FOUR = torch.tensor([2, 7, 11, 20])  # outputs


def weighted() -> Batch:
    """A directed graph with some self-loops and with weights, for four outputs."""
    graph = random_graph(30, 160, both_ways=False)
    pairs = [
        *map(tuple, graph.edge_index.t().tolist()),
        *((node, node) for node in range(0, 30, 3)),
    ]
    looped = reference.directed(30, pairs, FOUR.tolist())
    weights = torch.rand(looped.adj.num_edges, generator=torch.Generator().manual_seed(0)) + 0.1
    return replace(looped, edge_data={"edge_weight": weights})


SOME = weighted()
A = reference.adjacency(SOME)
FORMULAS = {"gcn": reference.laplacian, "mean": reference.mean, "sum": reference.plus_one}
EXACT = {name: torch.tensor(formula(A)).double() for name, formula in FORMULAS.items()}


def weights_of(batch: Batch) -> dict[int, float]:
    """The weights of the columns that are not outputs, by node, without the weights of edges."""
    (layer,) = layers_of(batch)
    nodes = nodes_of(batch).tolist()
    entries = zip(
        layer.pattern.row.tolist(), layer.pattern.col.tolist(), layer.weight.tolist(), strict=True
    )
    return {
        nodes[col]: weight / A[nodes[row]][nodes[col]]
        for row, col, weight in entries
        if col >= layer.num_outputs
    }


@pytest.mark.parametrize("s", [6, 16])  # of many draws, some would have a weight below 1
def test_ladies_weighs_by_its_probabilities(s: int) -> None:
    p = reference.ladies(A, FOUR.tolist())
    for batch in LadiesSampling(nodes_per_layer=(s,)).sampler(SOME, 0).batches(0, 50):
        (layer,) = layers_of(batch)
        assert layer.num_outputs == 4
        assert 4 < layer.num_nodes <= 4 + s
        for node, weight in weights_of(batch).items():
            assert weight == pytest.approx(max(1, 1 / (s * p[node])), rel=1e-4)
        for operator in EXACT:
            sums = getattr(layer, operator).to_dense().sum(dim=1).double()
            expected = EXACT[operator].sum(dim=1)[nodes_of(batch)[:4]]
            torch.testing.assert_close(sums[sums != 0], expected[sums != 0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("sampling", [LadiesSampling, FastGCNSampling])
def test_without_normalised_rows_draws_are_counted(sampling: type[LadiesSampling]) -> None:
    """Weights are then whole numbers of draws, divided by the probabilities.

    Sums are unbiased then, as `test_samplers` shows. So nodes are drawn with these probabilities.
    """
    p = reference.ladies(A, FOUR.tolist()) if sampling is LadiesSampling else reference.fastgcn(A)
    sampler = sampling(nodes_per_layer=(6,), row_normalise=False).sampler(SOME, 0)
    for batch in sampler.batches(0, 100):
        for node, weight in weights_of(batch).items():
            drawn = weight * 6 * p[node]
            assert drawn == pytest.approx(round(drawn), abs=1e-3)


def sums_of_two_layers(
    sampling: LadiesSampling | FastGCNSampling, x: Tensor
) -> Iterator[tuple[Tensor]]:
    """The estimates of Ā Ā x at the outputs, in the order of their numbers."""
    with closing(sampling.sampler(SOME, 3).batches(0, 10**6)) as batches:
        for batch in batches:
            lower, upper = layers_of(batch)
            h = lower.gcn.to_dense().double() @ x[nodes_of(batch)]
            yield ((upper.gcn.to_dense().double() @ h)[nodes_of(batch)[:4].argsort()],)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("sampling", [LadiesSampling, FastGCNSampling])
def test_two_layers_without_activation_are_unbiased(sampling: type[LadiesSampling]) -> None:
    x = features(SOME.x)
    exact = (EXACT["gcn"] @ EXACT["gcn"] @ x)[FOUR]
    unbiased, normalised = (
        sampling(nodes_per_layer=(8, 8), row_normalise=chosen) for chosen in (False, True)
    )
    converges(sums_of_two_layers(unbiased, x), exact, at=(100, 800))
    with pytest.raises(AssertionError):  # it does not claim to be, and the check sees it
        converges(sums_of_two_layers(normalised, x), exact, at=(800,))


def edge_touches(a: reference.Dense) -> list[float]:
    """The chance that one draw touches a node: a random node, and a random in-neighbour of it."""
    touches = []
    for u in range(len(a)):
        chance = 1.0
        for v, row in enumerate(a):
            if row[u] and v != u:
                chance += row[u] / sum(row)
        touches.append(chance / len(a))
    return touches


@settings(max_examples=60)
@given(reference.graphs(), st.integers(1, 9))
def test_saint_s_probabilities_of_nodes_are_the_paper_s(batch: Batch, count: int) -> None:
    a = reference.adjacency(batch)
    for kind, touches in (
        (SaintNodeSampling, reference.saint_node(a)),
        (SaintEdgeSampling, edge_touches(a)),
    ):
        sampler = kind(batch_size=count).sampler(batch, 0)
        np.testing.assert_allclose(sampler.touches, touches, rtol=1e-5)
        np.testing.assert_allclose(
            sampler.sampled, 1 - (1 - np.minimum(touches, 1)) ** count, rtol=1e-4
        )


def test_saint_s_probabilities_of_a_node_with_very_many_edges() -> None:
    """N deg is beyond 32 bits."""
    nodes = 70_000
    sources = torch.arange(1, 40_001)
    edges = CSR.from_entries(torch.zeros_like(sources), sources, (nodes, nodes))[0]
    batch = Batch(torch.ones(nodes, 1), edges, torch.zeros(nodes).long(), torch.arange(nodes))
    touches = SaintEdgeSampling().sampler(batch, 0).touches
    np.testing.assert_allclose(
        touches[[0, 1, 50_000]], [1 / nodes, (1 + 1 / 40_000) / nodes, 1 / nodes]
    )


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", SAINT)
def test_saint_s_loss_is_unbiased(name: str) -> None:
    """That of fixed scores: its mean over batches is the mean over the training nodes."""
    half = replace(random_graph(30, 60), loss_nodes=torch.arange(0, 30, 2))
    logits = features(half.x, 3)[:, 2:].float()
    mean = Mean(1)
    exact = torch.nn.functional.cross_entropy(logits[half.loss_nodes], half.y[half.loss_nodes])
    for batch in SAINT[name].sampler(half, 2).batches(0, 1500):
        assert batch.loss_weights is not None
        if not batch.loss_nodes.numel():
            mean.add(torch.zeros(1))
            continue
        scores = logits[nodes_of(batch)][batch.loss_nodes]
        loss = loss_of(scores, batch)
        mean.add(loss.double().view(1))
        together = loss_of(torch.stack([scores, 2 * scores]), batch)  # of two sub-GCNs at once
        torch.testing.assert_close(together, torch.stack([loss, loss_of(2 * scores, batch)]))
    assert mean.errors(exact.double().view(1)).abs().item() < 4
