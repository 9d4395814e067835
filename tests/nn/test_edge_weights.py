"""Operators with edge weights, compared with PyG's."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch_geometric.nn.conv.gcn_conv import gcn_norm
from torch_geometric.utils import to_dense_adj

from gistgnn.nn import GCN, GIN, Adjacency, GraphSAGE
from tests.helpers.refusals import refused


@st.composite
def weighted_edges(draw: st.DrawFn) -> tuple[Tensor, Tensor, int]:
    nodes = draw(st.integers(1, 7))
    node = st.integers(0, nodes - 1)
    edges = draw(st.lists(st.tuples(node, node), min_size=1, max_size=20, unique=True))
    weight = st.one_of(st.just(0.0), st.floats(0.1, 5.0))
    weights = draw(st.lists(weight, min_size=len(edges), max_size=len(edges)))
    return torch.tensor(edges).t(), torch.tensor(weights, dtype=torch.float64), nodes


@settings(max_examples=80, deadline=None)
@given(weighted_edges())
def test_the_operators_are_pyg_s(case: tuple[Tensor, Tensor, int]) -> None:
    edges, weight, nodes = case
    adj = Adjacency(edges, nodes, torch.float64, weight)
    normed, value = gcn_norm(edges, weight, nodes)
    torch.testing.assert_close(adj.gcn.to_dense(), to_dense_adj(normed, edge_attr=value, max_num_nodes=nodes)[0].t())
    a = torch.zeros(nodes, nodes, dtype=torch.float64)
    a[edges[1], edges[0]] = weight
    sums = a.sum(dim=1, keepdim=True)
    torch.testing.assert_close(adj.mean.to_dense(), torch.where(sums > 0, a / sums, 0.0))
    torch.testing.assert_close(adj.sum.to_dense(), a + torch.eye(nodes, dtype=torch.float64))


@settings(max_examples=40, deadline=None)
@given(weighted_edges())
def test_weights_of_one_change_nothing(case: tuple[Tensor, Tensor, int]) -> None:
    edges, weight, nodes = case
    ones, none = Adjacency(edges, nodes, edge_weight=torch.ones(len(weight))), Adjacency(edges, nodes)
    for operator in ("gcn", "mean", "sum"):
        assert torch.equal(getattr(ones, operator).to_dense(), getattr(none, operator).to_dense())


def test_a_model_of_weighted_edges() -> None:
    edges, weight = torch.tensor([[0, 1, 2], [1, 2, 0]]), torch.tensor([0.5, 0.0, 4.0])
    x = torch.randn(3, 4)
    for model in (GCN(4, (5,), 2), GraphSAGE(4, (5,), 2), GIN(4, (5,), 2)):
        one, other = model(x, Adjacency(edges, 3)), model(x, Adjacency(edges, 3, edge_weight=weight))
        assert not torch.allclose(one, other)
    moved = Adjacency(edges, 3, edge_weight=weight).to(torch.float64)
    assert moved.edge_weight is not None
    assert moved.edge_weight.dtype == torch.float64


def test_wrong_weights() -> None:
    edges = torch.tensor([[0, 1], [1, 0]])
    with refused("edge_weight holds -0.5", "expected 0 or more"):
        _ = Adjacency(edges, 2, edge_weight=torch.tensor([1.0, -0.5])).gcn
    with refused("edge_weight has shape [3]", "give [2]"):
        Adjacency(edges, 2, edge_weight=torch.ones(3))
