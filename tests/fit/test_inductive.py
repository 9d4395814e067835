"""Inductive training sees the training nodes and the edges between them; scores are of the whole graph."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch_geometric.utils import subgraph

from gistgnn import GIST, Graph
from gistgnn.graphs.csr import CSR
from gistgnn.sampling import ClusterSampling, training_subgraph
from tests.helpers.fitting import fit, quiet, same, theta
from tests.helpers.models import OURS, tiny_graph

GRAPH = tiny_graph(30)
WAYS = [("auto", None), ("fused", ClusterSampling(5, 2)), ("in-turn", ClusterSampling(5, 2, precompute=False))]


@settings(max_examples=15, deadline=None)
@given(st.integers(3, 40), st.integers(0, 100))
def test_the_subgraph(nodes: int, seed: int) -> None:
    graph = tiny_graph(nodes, seed)
    batch = training_subgraph(graph)
    assert torch.equal(batch.x, graph.x[graph.train])
    assert torch.equal(batch.y, graph.y[graph.train])
    assert batch.loss_nodes.tolist() == [*range(len(batch.x))]
    expected, _ = subgraph(graph.train, graph.edge_index, relabel_nodes=True)
    assert torch.equal(batch.edge_index, expected)


def without_the_rest(graph: Graph) -> Graph:
    """The graph with other features of the nodes outside training, and other edges at them."""
    inside = graph.train[graph.edge_index].all(dim=0)
    x = torch.where(graph.train[:, None], graph.x, 100 * torch.randn_like(graph.x))
    outside = (~graph.train).nonzero().squeeze(1)
    others = torch.stack([outside, outside.roll(1)])
    edges = torch.cat([graph.edge_index[:, inside], others], dim=1)
    return replace(graph, x=x, edges=CSR.of(edges[:, edges[1].argsort(stable=True)], graph.num_nodes))


@pytest.mark.parametrize(("runner", "sampler"), WAYS)
def test_the_rest_of_the_graph_changes_scores_and_nothing_else(runner: str, sampler: ClusterSampling | None) -> None:
    def trained(graph: Graph, **options: Any) -> tuple[dict[str, Tensor], list[Any]]:
        gist = GIST(lambda w: OURS["graphsage"](w, dropout=0.3), (8,), 2)
        result = fit(gist, graph, sampler=sampler, runner=runner, lr=0.05, **options)
        return theta(gist), [(entry["validation"], entry["test"]) for entry in quiet(result.history)]

    other = without_the_rest(GRAPH)
    (first, scores), (second, others) = trained(GRAPH, inductive=True), trained(other, inductive=True)
    assert same(first, second)
    assert scores != others
    assert not same(trained(GRAPH)[0], first)
    assert not same(trained(GRAPH)[0], trained(other)[0])
