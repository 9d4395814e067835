"""GraphSAINT's samplers against their formulas, by enumerating what a draw may touch."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gistgnn.sampling import Batch, SaintWalkSampling
from gistgnn.sampling.saint import Draw, EdgeDraw, NodeDraw, SaintBatches, WalkDraw
from gistgnn.sampling.structure import Structure
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


def check(whole: Batch, draw: Draw, touched: Touched, count: int, tolerance: float = 1e-5) -> None:
    """Compare the probabilities of nodes and the weights of edges with those of the enumerated draws."""
    structure = Structure(whole)
    nodes = np.arange(structure.nodes)
    sampler = SaintBatches(structure, draw, count)
    p = [reference.seen(touched, {node}, count) for node in nodes.tolist()]
    np.testing.assert_allclose(sampler.sampled, p, rtol=tolerance)
    part = sp.csr_matrix(draw.edges)
    weights = sampler.weights(part, nodes)
    for v in nodes.tolist():
        for entry in range(part.indptr[v], part.indptr[v + 1]):
            u = int(part.indices[entry])
            expected = p[v] / reference.seen(touched, {u, v}, count)
            assert weights[entry] == pytest.approx(expected, rel=10 * tolerance)


@settings(max_examples=40, deadline=None)
@given(graphs(), st.integers(1, 9))
def test_probabilities_of_nodes(whole: Batch, count: int) -> None:
    p = reference.saint_node(reference.adjacency(whole))
    structure = Structure(whole)
    draw, touched = NodeDraw(structure), [({node}, chance) for node, chance in enumerate(p)]
    np.testing.assert_allclose(
        SaintBatches(structure, draw, count).sampled, [1 - (1 - chance) ** count for chance in p]
    )
    if count > 1:  # one draw never sees an edge
        check(whole, draw, touched, count)


@settings(max_examples=40, deadline=None)
@given(graphs(), st.integers(1, 9))
def test_probabilities_of_edges(whole: Batch, count: int) -> None:
    touched = walks(reference.adjacency(whole), 1)
    check(whole, EdgeDraw(Structure(whole)), touched, count)


def test_edges_of_an_undirected_graph_are_drawn_as_the_paper_says() -> None:
    whole = random_graph(15, 25)
    edges = reference.saint_edges(reference.adjacency(whole))
    check(whole, EdgeDraw(Structure(whole)), [({u, v}, p) for (u, v), p in edges.items()], 5)


@pytest.mark.parametrize("length", [1, 2, 3])
def test_probabilities_of_walks(length: int) -> None:
    whole = random_graph(12, 16, both_ways=length != 2)
    touched = walks(reference.adjacency(whole), length)
    check(whole, WalkDraw(Structure(whole), length, 20_000, 0), touched, 4, tolerance=0.01)


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
def test_nodes_are_there_as_often_as_said(name: str) -> None:
    sampler = SAMPLING[name].sampler(SOME, 0)
    assert isinstance(sampler, SaintBatches)
    count, seen = 600, np.zeros(30)
    for batch in sampler.batches(0, count):
        seen[nodes_of(batch)] += 1
    p = sampler.sampled
    assert (np.abs(seen - count * p) < 5 * np.sqrt(count * p * (1 - p)) + 1e-9).all()
    assert sampler.steps_per_epoch == max(1, round(15 / p[::2].sum()))


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
