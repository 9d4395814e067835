from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.nn import SAGEConv

from gistgnn.nn import Adjacency, SparseMatrix
from gistgnn.sampling import Batch, FullGraph, check_fits, forward, whole_graph
from tests.helpers.models import OURS, C, F, Stack, tiny_graph
from tests.helpers.refusals import refused

GRAPH = tiny_graph()


def batch(x: Tensor = GRAPH.x) -> Batch:
    return whole_graph(replace(GRAPH, x=x))


class Noting(nn.Module):
    """Notes what it is called with."""

    def __init__(self) -> None:
        super().__init__()
        self.got: list[object] = []


class TakesAdj(Noting):
    def forward(self, x: object, adj: object) -> Tensor:
        self.got += [x, adj]
        return torch.zeros(24, C)


class TakesEdges(Noting):
    def forward(self, x: object, edge_index: object, edge_weight: object = None) -> Tensor:
        self.got += [x, edge_index, edge_weight]
        return torch.zeros(24, C)


class TakesFeatures(Noting):
    def forward(self, x: object, *, scale: float = 1.0) -> Tensor:
        self.got += [x]
        return torch.zeros(24, C)


def test_a_model_is_called_by_the_names_of_its_arguments() -> None:
    b, adj, edges, features = batch(), TakesAdj(), TakesEdges(), TakesFeatures()
    for model in (adj, edges, features):
        forward(model, b)
        forward(model, b)
    assert adj.got == [b.features, b.adj] * 2
    assert isinstance(adj.got[1], Adjacency)
    assert edges.got[0] is b.x
    assert edges.got[1] is b.edge_index
    assert edges.got[2] is None
    assert features.got == [b.x, b.x]


def test_mostly_zero_features_are_sparse_for_our_models_only() -> None:
    x = torch.zeros(24, 50)
    x[torch.arange(24), torch.arange(24)] = 2.0
    b, adj, edges = batch(x), TakesAdj(), TakesEdges()
    forward(adj, b)
    forward(edges, b)
    assert isinstance(adj.got[0], SparseMatrix)
    assert edges.got[0] is x
    assert batch().features is GRAPH.x


@pytest.mark.parametrize("name", OURS)
def test_sparse_features_give_what_dense_ones_give(name: str) -> None:
    x = torch.zeros(24, 50)
    x[torch.arange(24), torch.arange(24)] = torch.randn(24)
    sparse, dense = batch(x), batch(x)
    dense.__dict__["features"] = x
    columns = torch.arange(0, 50, 2)
    model = OURS[name]((6,))
    half = type(model)(25, (6,), C)
    whole = type(model)(50, (6,), C)
    assert isinstance(sparse.features, SparseMatrix)
    torch.testing.assert_close(forward(whole, sparse), forward(whole, dense))
    torch.testing.assert_close(forward(half, sparse.select_columns(columns)), half(x[:, columns], dense.adj))


def test_columns_are_selected_and_the_structure_is_shared() -> None:
    b, columns = batch(), torch.tensor([0, 3, 5])
    selected = b.select_columns(columns)
    assert torch.equal(selected.x, GRAPH.x[:, columns])
    assert selected.adj.pattern is b.adj.pattern
    torch.testing.assert_close(selected.adj.aggregate("gcn", selected.x), (b.adj.gcn @ b.x)[:, columns])
    assert torch.equal(selected.edge_index, b.edge_index)
    assert selected.loss_nodes is b.loss_nodes
    assert torch.equal(b.x, GRAPH.x)


def test_edges_may_be_an_edge_index() -> None:
    held = batch()
    listed = replace(held, edges=GRAPH.edge_index)
    assert torch.equal(listed.edge_index, GRAPH.edge_index)
    assert listed.edge_index.dtype == torch.int64
    for model in (OURS["gcn"]((6,)), Stack((6,), SAGEConv)):
        assert torch.equal(forward(model, held), forward(model, listed))


def test_the_same_model_class_in_two_forms() -> None:
    """The names are looked up per model, not per class."""
    one = TakesFeatures()
    two = TakesFeatures()
    two.forward = lambda x, edge_index: torch.ones(24, C)  # type: ignore[method-assign,assignment,misc]
    assert forward(one, batch()).sum() == 0
    assert forward(two, batch()).sum() == 24 * C


@pytest.mark.parametrize(
    ("out", "said"),
    [
        ((torch.zeros(24, C), None), "tuple"),
        (torch.zeros(24), "(24,)"),
        (torch.zeros(1, C), "(1, 3)"),
        (torch.zeros(24, C, 1), "(24, 3, 1)"),
        (None, "NoneType"),
    ],
)
def test_an_output_that_is_not_one_row_a_node_is_refused(out: object, said: str) -> None:
    class Other(nn.Module):
        def forward(self, x: Tensor) -> object:
            return out

    with refused(f"returned {said}", "24 nodes"):
        forward(Other(), batch())


def test_check_fits() -> None:
    check_fits(OURS["gcn"]((6,)), batch(), C)
    check_fits(Stack((6,), SAGEConv), batch(), C)
    with refused("gives 3 classes", "graph has 5"):
        check_fits(OURS["gcn"]((6,)), batch(), 5)
    with refused(f"x [24, {F + 1}]"):
        check_fits(Stack((6,), SAGEConv), batch(torch.zeros(24, F + 1)), C)


def test_the_full_graph_sampler() -> None:
    sampler, columns = FullGraph(whole_graph(GRAPH)), torch.tensor([1, 2])
    assert sampler.steps_per_epoch == sampler.select_columns(columns).steps_per_epoch == 1
    drawn = list(sampler.batches(3, 4))
    assert len(drawn) == 4
    assert all(b is sampler.batch for b in drawn)
    assert list(sampler.batches(0, 0)) == []
    (b,) = sampler.select_columns(columns).batches(0, 1)
    assert torch.equal(b.x, GRAPH.x[:, columns])
    assert b.adj.pattern is sampler.batch.adj.pattern


def test_the_whole_graph_is_one_batch() -> None:
    b = whole_graph(GRAPH)
    assert b.x is GRAPH.x
    assert b.y is GRAPH.y
    assert b.loss_nodes.tolist() == [i for i in range(24) if GRAPH.train[i]]
