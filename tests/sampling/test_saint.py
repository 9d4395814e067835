"""GraphSAINT's samplers against their formulas, by enumerating what a draw may touch."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gistgnn.graphs import CSR
from gistgnn.sampling import Batch, SaintEdgeSampling, SaintNodeSampling, SaintWalkSampling
from gistgnn.sampling.saint import SaintSampling
from gistgnn.subtrain import loss_of
from tests.sampling import reference
from tests.sampling.reference import SAMPLERS, Mean, features, graphs, nodes_of, random_graph

Touched = list[tuple[set[int], float]]  # what one draw may touch, and how likely that is


def walks(a: reference.Dense, length: int) -> Touched:
    """Every walk from every node, each step to a random source of the node, or none where there is none."""
    found = [([node], 1 / len(a)) for node in range(len(a))]
    for _ in range(length):
        found = [
            ([*walk, source], p / len(sources))
            for walk, p in found
            for sources in [[j for j, value in enumerate(a[walk[-1]]) if value] or [walk[-1]]]
            for source in sources
        ]
    return [(set(walk), p) for walk, p in found]


def check(whole: Batch, sampling: SaintSampling, touched: Touched, tolerance: float = 1e-5) -> None:
    """Compare the probabilities of nodes and the weights of edges with those of the enumerated draws."""
    sampler, count = sampling.sampler(whole, 0), sampling.batch_size
    nodes = np.arange(len(whole.x))
    p = [reference.seen(touched, {node}, count) for node in nodes.tolist()]
    np.testing.assert_allclose(sampler.sampled, p, rtol=tolerance)
    if count == 1 and not sampling.length:
        return  # one draw never sees an edge
    part = sp.csr_matrix(sampler.edges)
    weights = sampler.weights(part, nodes)
    for v in nodes.tolist():
        for entry in range(part.indptr[v], part.indptr[v + 1]):
            u = int(part.indices[entry])
            expected = p[v] / reference.seen(touched, {u, v}, count)
            assert weights[entry] == pytest.approx(expected, rel=10 * tolerance)


@settings(max_examples=60)
@given(graphs(), st.integers(1, 9))
def test_probabilities_of_nodes_and_edges(whole: Batch, count: int) -> None:
    a = reference.adjacency(whole)
    check(whole, SaintNodeSampling(batch_size=count), [({u}, p) for u, p in enumerate(reference.saint_node(a))])
    check(whole, SaintEdgeSampling(batch_size=count), walks(a, 1))


def test_edges_of_an_undirected_graph_are_drawn_as_the_paper_says() -> None:
    whole = random_graph(15, 25)
    edges = reference.saint_edges(reference.adjacency(whole))
    check(whole, SaintEdgeSampling(batch_size=5), [({u, v}, p) for (u, v), p in edges.items()])


def test_nodes_with_very_many_edges() -> None:
    """N deg is beyond 32 bits."""
    nodes, sources = 70_000, torch.arange(1, 40_001)
    edges = CSR.from_entries(torch.zeros_like(sources), sources, (nodes, nodes))[0]
    whole = Batch(torch.ones(nodes, 1), edges, torch.zeros(nodes).long(), torch.arange(nodes))
    touches = SaintEdgeSampling().sampler(whole, 0).touches
    np.testing.assert_allclose(touches[[0, 1, 50_000]], [1 / nodes, (1 + 1 / 40_000) / nodes, 1 / nodes])


@pytest.mark.parametrize("length", [1, 2, 3])
def test_probabilities_of_walks(length: int) -> None:
    whole = random_graph(12, 16, both_ways=length != 2)
    sampling = SaintWalkSampling(batch_size=4, walk_length=length, sample_coverage=20_000)
    check(whole, sampling, walks(reference.adjacency(whole), length), tolerance=0.01)


SAMPLING = {**SAMPLERS, "saint-rw": SaintWalkSampling(batch_size=5, sample_coverage=20_000)}
each_sampling = pytest.mark.parametrize("name", ["saint-node", "saint-edge", "saint-rw"])
WHOLE = random_graph(30, 60)
SOME = Batch(WHOLE.x, WHOLE.edges, WHOLE.y, torch.arange(0, 30, 2), sparse=False)


@each_sampling
def test_a_batch_is_an_induced_subgraph(name: str) -> None:
    edges = set(map(tuple, WHOLE.edge_index.t().tolist()))
    train = set(SOME.loss_nodes.tolist())
    for batch in SAMPLING[name].sampler(SOME, 0).batches(0, 20):
        nodes = nodes_of(batch).tolist()
        found = {(nodes[s], nodes[t]) for s, t in batch.edge_index.t().tolist()}
        assert found == {(s, t) for s, t in edges if s in nodes and t in nodes}
        assert [nodes[place] for place in batch.loss_nodes.tolist()] == [node for node in nodes if node in train]
        assert batch.y.tolist() == WHOLE.y[nodes].tolist()
        assert batch.adj.layers is None


@each_sampling
def test_the_loss_is_unbiased(name: str) -> None:
    """That of fixed scores: its mean over batches is the mean over the training nodes."""
    logits, mean = features(WHOLE.x, 3)[:, 2:].float(), Mean(1)
    exact = torch.nn.functional.cross_entropy(logits[SOME.loss_nodes], SOME.y[SOME.loss_nodes])
    for batch in SAMPLING[name].sampler(SOME, 2).batches(0, 1500):
        assert batch.loss_weights is not None
        if not batch.loss_nodes.numel():
            mean.add(torch.zeros(1))
            continue
        own = logits[nodes_of(batch)]
        loss = loss_of(own, batch)
        mean.add(loss.double().view(1))
        together = loss_of(torch.stack([own, 2 * own]), batch)  # of two sub-GCNs at once
        torch.testing.assert_close(together, torch.stack([loss, loss_of(2 * own, batch)]))
    assert mean.errors(exact.double().view(1)).abs().item() < 4
