from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch_geometric.nn as pyg
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.func import functional_call

from gistgnn.errors import InputError
from gistgnn.nn import GAT, GCN, GNN, MODELS, WITH_HEADS, Adjacency, SparseMatrix
from gistgnn.nn.convolutions import SAGELayer

from .strategies import examples, graphs, random_graph, widths

# PyG's layer for each of ours, and its parameters as functions of ours.
BY_PYG: dict[str, Callable[[Any], tuple[nn.Module, dict[str, Tensor]]]] = {
    "gcn": lambda c: (
        pyg.GCNConv(c.weight.shape[1], len(c.weight)),
        {"lin.weight": c.weight, "bias": c.bias},
    ),
    "graphsage": lambda c: (
        pyg.SAGEConv(c.in_features, c.out_features, aggr="mean"),
        {**halves(c.weight, 1, "lin_r.weight", "lin_l.weight"), "lin_l.bias": c.bias},
    ),
    "gin": lambda c: (
        pyg.GINConv(
            nn.Sequential(
                nn.Linear(*c.weight.shape[::-1]), nn.ReLU(), nn.Linear(*c.second_weight.shape[::-1])
            )
        ),
        dict(zip(GIN_NAMES, (c.weight, c.bias, c.second_weight, c.second_bias), strict=True)),
    ),
    "gat": lambda c: (
        pyg.GATConv(c.weight.shape[1], c.source.shape[1], c.heads, concat=c.concat),
        {
            "lin.weight": c.weight,
            "bias": c.bias,
            "att_src": c.source[None],
            "att_dst": c.target[None],
        },
    ),
    "gatv2": lambda c: (
        pyg.GATv2Conv(c.weight.shape[1], c.attention.shape[1], c.heads, concat=c.concat),
        {**halves(c.weight, 0, "lin_l.weight", "lin_r.weight"), "att": c.attention[None]}
        | {"lin_l.bias": 0 * c.score_bias, "lin_r.bias": c.score_bias, "bias": c.bias},
    ),
}
GIN_NAMES = ("nn.0.weight", "nn.0.bias", "nn.2.weight", "nn.2.bias")


def halves(weight: Tensor, dim: int, *names: str) -> dict[str, Tensor]:
    return dict(zip(names, weight.chunk(2, dim), strict=True))


def by_pyg(name: str, model: GNN, x: Tensor, edge_index: Tensor) -> Tensor:
    for conv in model.convs:
        layer, parameters = BY_PYG[name](conv)
        x = x if conv is model.convs[0] else x.relu()
        assert parameters.keys() == dict(layer.named_parameters()).keys()
        x = functional_call(layer.double(), parameters, (x, edge_index))
    return x


def randomise(model: GNN) -> GNN:
    """Randomise biases too: they start at zero."""
    for parameter in model.parameters():
        nn.init.normal_(parameter)
    return model.double()


@pytest.mark.parametrize("name", MODELS)
@examples
@given(graph=graphs(), widths=widths, sizes=st.tuples(st.integers(1, 5), st.integers(1, 4)))
def test_model_and_gradients_equal_pyg(
    name: str, graph: tuple[Tensor, int], widths: list[int], sizes: tuple[int, int]
) -> None:
    edge_index, nodes = graph
    model = randomise(MODELS[name](sizes[0], widths, sizes[1]))
    x = torch.randn(nodes, sizes[0], dtype=torch.float64, requires_grad=True)
    out = model(x, edge_index)
    expected = by_pyg(name, model, x, edge_index)
    inputs = [x, *model.parameters()]
    torch.testing.assert_close(out, expected)
    grad = torch.randn_like(out)
    torch.testing.assert_close(
        torch.autograd.grad(out, inputs, grad), torch.autograd.grad(expected, inputs, grad)
    )


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("width", [2, 9])
def test_sparse_features_edge_index_and_cached_products_change_nothing(
    name: str, width: int
) -> None:
    """Sparse features are projected before they are summed, those of cached products after."""
    edge_index = random_graph(9, 30, 3)
    adj = Adjacency(edge_index, 9, torch.float64)
    model = randomise(MODELS[name](6, [width, 1], 3))
    x = torch.randn(9, 6, dtype=torch.float64).relu()
    expected = model(x, adj)
    gradients = torch.autograd.grad(expected.square().sum(), list(model.parameters()))
    for features, graph in (
        (x, edge_index),
        (SparseMatrix.from_dense(x), adj),
        (x, adj.with_cached_products(x)),
    ):
        out = model(features, graph)
        torch.testing.assert_close(out, expected)
        torch.testing.assert_close(
            torch.autograd.grad(out.square().sum(), list(model.parameters())), gradients
        )


FEW = torch.tensor([5, 0, 3])
SOME = {
    "few": FEW,
    "none": FEW[:0],
    "most": torch.arange(8),
    "all": torch.arange(9),
    "in any order": torch.randperm(9),
}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("norm", ["none", "layer", "batch", "whole"])
@pytest.mark.parametrize(("width", "classes"), [(6, 3), (6, 60), (80, 60)])
@pytest.mark.parametrize("kind", SOME)
def test_the_scores_of_some_nodes_are_rows_of_all_scores(
    name: str, norm: str, width: int, classes: int, kind: str
) -> None:
    adj = Adjacency(random_graph(9, 30, 3), 9, torch.float64)
    nodes = SOME[kind]
    model = randomise(MODELS[name](4, [8, width], classes, norm=norm, dropout=0.4))
    x = torch.randn(9, 4, dtype=torch.float64, requires_grad=True)
    torch.manual_seed(1)
    all_scores = model(x, adj)
    expected = [
        all_scores[nodes],
        *torch.autograd.grad(all_scores[nodes].square().sum(), [x, *model.parameters()]),
        torch.rand(3),
    ]
    torch.manual_seed(1)
    out = model(x, adj, nodes)
    actual = [
        out,
        *torch.autograd.grad(out.square().sum(), [x, *model.parameters()]),
        torch.rand(3),  # dropout has drawn as much
    ]
    torch.testing.assert_close(actual, expected, rtol=1e-6, atol=1e-9)


class Twice(SAGELayer):
    """A step of the user's own."""

    def update(self, x: Tensor | SparseMatrix, a: Tensor) -> Tensor:
        return 2 * super().update(x, a)


class OfTheUser(GNN):
    layer = Twice


@pytest.mark.parametrize(
    ("model", "updated"),
    [
        *((MODELS[name](4, [6], 60), 3) for name in ("gcn", "graphsage", "gin")),
        (MODELS["gin"](4, [60], 3, norm="layer"), 3),  # its MLP follows the sum
        (MODELS["gin"](4, [6], 60, norm="batch"), 9),  # there its mean over all nodes is needed
        # Features are summed first, although there are fewer classes than features.
        (MODELS["gcn"](4, [80], 60), 3),
        (MODELS["gcn"](4, [6], 3), 9),
        (MODELS["gat"](4, [6], 60), 9),
        (OfTheUser(4, [6], 60), 9),
    ],
)
def test_the_output_layer_leaves_out_the_other_nodes_where_that_saves_time(
    model: GNN, updated: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    adj = Adjacency(random_graph(9, 30, 3), 9)
    last = model.convs[-1]
    sizes = list[int]()
    update = last.update
    monkeypatch.setattr(last, "update", lambda x, a: sizes.append(len(a)) or update(x, a))
    assert model(torch.randn(9, 4), adj, FEW).shape == (3, last.out_features)
    assert sizes == [updated]


@pytest.mark.parametrize("step", ["message", "aggregate", "update"])
@pytest.mark.parametrize("cached", [False, True])
def test_a_subclass_of_sage_keeps_each_step_of_its_own(step: str, cached: bool) -> None:
    adj = Adjacency(random_graph(7, 20, 0), 7, torch.float64)
    x = torch.randn(7, 3).double()
    if cached:
        adj.cache_products(x)

    def twice_the_step(self: SAGELayer, *args: Any) -> Any:
        return 2 * getattr(SAGELayer, step)(self, *args)

    changed = type("Changed", (SAGELayer,), {step: twice_the_step})
    layer = randomise(changed(3, 4))
    plain = SAGELayer(3, 4).double()
    plain.load_state_dict(layer.state_dict())
    without_neighbours = plain.update(x, 0 * x)
    if step == "update":
        expected = 2 * plain(x, adj)
    else:
        expected = without_neighbours + 2 * (plain(x, adj) - without_neighbours)
    torch.testing.assert_close(layer(x, adj), expected)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(("norm", "dim"), [("layer", 1), ("batch", 0), ("whole", (0, 1))])
def test_norms_are_those_of_their_formula(name: str, norm: str, dim: Any) -> None:
    adj = Adjacency(random_graph(9, 30, 3), 9)
    x = torch.randn(9, 4)
    model = MODELS[name](4, [6], 3, norm=norm)
    hidden = model.convs[0](x, adj)
    if norm == "whole":  # this norm comes after the activation
        hidden = hidden.relu()
    variance = hidden.var(dim, correction=0, keepdim=True)
    hidden = (hidden - hidden.mean(dim, keepdim=True)) / (variance + 1e-5).sqrt()
    if norm != "whole":
        hidden = hidden.relu()
    torch.testing.assert_close(model(x, adj), model.convs[1](hidden, adj), atol=1e-4, rtol=1e-4)
    assert not list(model.norms.parameters()) or norm == "batch"


@pytest.mark.parametrize("name", MODELS)
def test_dropout_acts_in_training_only_and_follows_the_seed(name: str) -> None:
    adj = Adjacency(random_graph(9, 30, 3), 9)
    x = torch.randn(9, 4)
    model = MODELS[name](4, [16], 3, dropout=0.5)
    assert not torch.equal(model(x, adj), model(x, adj))
    torch.manual_seed(1)
    first = model(x, adj)
    torch.manual_seed(1)
    assert torch.equal(model(x, adj), first)
    assert torch.equal(model.eval()(x, adj), model(x, adj))


@pytest.mark.parametrize("name", MODELS)
def test_an_empty_graph_has_no_scores(name: str) -> None:
    out = MODELS[name](4, [6], 3)(torch.ones(0, 4), torch.zeros(2, 0, dtype=torch.int64))
    out.sum().backward()
    assert out.shape == (0, 3)


def test_the_models_with_heads_are_those_that_attend() -> None:
    assert {name for name, model in MODELS.items() if issubclass(model, GAT)} == set(WITH_HEADS)


EDGES = torch.tensor([[0], [1]])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: GCN(3, [], 2), "at least one width"),
        (lambda: GCN(3, [4, 0], 2), "at least one feature"),
        (lambda: GCN(3, [4], 2, dropout=1.0), r"\[0, 1\)"),
        (lambda: GCN(3, [4], 2, norm="instance"), "none, layer, batch, whole"),
        (lambda: GCN(3, [4], 2, activation="gelu"), "relu, elu"),
        (lambda: GAT(3, [4], 2, attention_dropout=1.0), "attention_dropout 1.0"),
        (lambda: GAT(3, [4], 2, heads=0), "heads 0"),
        (lambda: GCN(3, [4], 2)(torch.ones(2, 4), EDGES), r"\[N, 3\]"),
        (lambda: GCN(3, [4], 2)(torch.ones(2, 3), Adjacency(EDGES, 3)), "one row per node"),
        (lambda: GCN(3, [4], 2)(torch.ones(2, 3), Adjacency(EDGES, 2, torch.float64)), r"adj\.to"),
    ],
)
def test_bad_arguments_are_refused_in_one_line(call: Callable[[], object], message: str) -> None:
    with pytest.raises(InputError, match=message) as error:
        call()
    assert "\n" not in str(error.value)
