"""The first layer's sums of a batch are those of the whole graph, where this is asked for."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch_geometric.nn import SAGEConv

from gistgnn import GIST
from gistgnn.graphs.clustering import cluster
from gistgnn.nn.adjacency import Operator
from gistgnn.sampling import Batch, ClusterBatches, ClusterSampling, whole_graph
from tests.helpers.fitting import fit, same, theta
from tests.helpers.models import OURS, C, F, Stack, tiny_graph

GRAPH = tiny_graph(40)
WHOLE = whole_graph(GRAPH)


def sampler(q: int, count: int = 8, *, precompute: bool) -> ClusterBatches:
    return ClusterBatches(WHOLE, cluster(GRAPH.edge_index, 40, count, "random"), q, precompute=precompute)


def nodes_of(batch: Batch) -> Tensor:
    return (batch.x[:, None] == GRAPH.x[None]).all(dim=2).nonzero()[:, 1]


@settings(max_examples=15, deadline=None)
@given(st.integers(1, 8), st.sampled_from(["gcn", "mean"]), st.booleans())
def test_sums_of_x_are_rows_of_the_whole_graph_s(q: int, operator: Operator, precompute: bool) -> None:
    whole: Tensor = getattr(WHOLE.adj, operator) @ GRAPH.x
    batches = list(sampler(q, precompute=precompute).batches(0, 4))
    for batch in (*batches, *reversed(batches)):
        own = getattr(batch.adj, operator) @ batch.x
        expected = whole[nodes_of(batch)] if precompute else own
        torch.testing.assert_close(batch.adj.aggregate(operator, batch.x), expected)
        h = batch.x + 0  # equal, and not x itself
        torch.testing.assert_close(batch.adj.aggregate(operator, h), own)


def test_columns_of_the_sums() -> None:
    columns = torch.tensor([4, 0])
    chosen = sampler(3, precompute=True).select_columns(columns)
    for batch, all_ in zip(chosen.batches(0, 3), sampler(3, precompute=True).batches(0, 3), strict=True):
        torch.testing.assert_close(
            batch.adj.aggregate("gcn", batch.x), all_.adj.aggregate("gcn", all_.x)[:, columns], rtol=1e-5, atol=1e-6
        )


def thetas(name: str, count: int, q: int, graph=GRAPH, *, precompute: bool) -> dict[str, Tensor]:  # type: ignore[no-untyped-def]
    build = {**OURS, "pyg": lambda w: Stack(w, SAGEConv)}[name]
    gist = GIST(build, (8,), 2)
    options = {"epochs": 4, "optimizer": "sgd", "lr": 0.1}
    fit(gist, graph, sampler=ClusterSampling(count, q, "random", precompute=precompute), **options)
    return theta(gist)


@pytest.mark.parametrize("name", ["gcn", "graphsage", "gat", "pyg"])
def test_which_models_notice(name: str) -> None:
    with_sums, without = (thetas(name, 8, 2, precompute=precompute) for precompute in (True, False))
    assert same(with_sums, without) == (name in ("gat", "pyg"))
    for both in zip(*(thetas(name, 1, 1, precompute=p).values() for p in (True, False)), strict=True):
        torch.testing.assert_close(*both)  # one cluster is the whole graph


def test_sparse_features_are_not_summed() -> None:
    """They are projected first, and sums of projections are the batch's own."""
    x = torch.nn.functional.one_hot(torch.arange(40) % F, F) * (torch.arange(40) % 2)[:, None]
    bags = replace(GRAPH, x=x.float())
    assert same(*(thetas("gcn", 8, 2, bags, precompute=precompute) for precompute in (True, False)))


def test_partitioned_inputs() -> None:
    gist = GIST(lambda w: type(OURS["gcn"]((4,)))(w[0], w[1:], C), (F, 8), 3, input_axis=0)
    assert fit(gist, GRAPH, sampler=ClusterSampling(8, 2)).progress.rounds > 0
