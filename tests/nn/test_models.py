from collections.abc import Callable

import pytest
import torch
import torch_geometric.nn as pyg
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from gistgnn.errors import InputError
from gistgnn.nn import GAT, GCN, GIN, GNN, MODELS, WITH_HEADS, Adjacency, GATv2, GraphSAGE, SparseMatrix
from gistgnn.nn.convolutions import SAGELayer

from .strategies import examples, graphs, random_graph, widths

Pairs = list[tuple[Tensor, Tensor, Callable[[Tensor], Tensor]]]


def pyg_layers(model: GNN) -> tuple[list[nn.Module], Pairs]:
    """PyG's layers with the model's weights; each of their parameters, ours, and the part of ours that it is."""
    layers: list[nn.Module] = []
    pairs: Pairs = []
    for conv in model.convs:
        d_in = conv.weight.shape[1]
        if isinstance(model, GCN):
            layer = pyg.GCNConv(d_in, conv.weight.shape[0])
            parts = [(layer.lin.weight, conv.weight, torch.clone), (layer.bias, conv.bias, torch.clone)]
        elif isinstance(model, GraphSAGE):
            layer = pyg.SAGEConv(conv.in_features, conv.out_features, aggr="mean")
            parts = [(layer.lin_r.weight, conv.weight, lambda w: w.chunk(2, dim=1)[0])]
            parts += [(layer.lin_l.weight, conv.weight, lambda w: w.chunk(2, dim=1)[1])]
            parts += [(layer.lin_l.bias, conv.bias, torch.clone)]
        elif isinstance(model, GIN):
            inside = len(conv.weight)
            layer = pyg.GINConv(nn.Sequential(nn.Linear(d_in, inside), nn.ReLU(), nn.Linear(inside, conv.out_features)))
            ours = conv.weight, conv.bias, conv.second_weight, conv.second_bias
            parts = [(*each, torch.clone) for each in zip(layer.nn.parameters(), ours, strict=True)]
        elif isinstance(model, GATv2):
            layer = pyg.GATv2Conv(d_in, conv.attention.shape[1], conv.heads, concat=conv.concat)
            parts = [(layer.lin_l.weight, conv.weight, lambda w: w.chunk(2)[0])]
            parts += [(layer.lin_r.weight, conv.weight, lambda w: w.chunk(2)[1])]
            parts += [(layer.lin_r.bias, conv.score_bias, torch.clone), (layer.bias, conv.bias, torch.clone)]
            parts += [(layer.att, conv.attention, lambda w: w.unsqueeze(0))]
            nn.init.zeros_(layer.lin_l.bias)
        else:
            layer = pyg.GATConv(d_in, conv.source.shape[1], heads=conv.heads, concat=conv.concat)
            parts = [(layer.lin.weight, conv.weight, torch.clone), (layer.bias, conv.bias, torch.clone)]
            parts += [
                (layer.att_src, conv.source, lambda w: w.unsqueeze(0)),
                (layer.att_dst, conv.target, lambda w: w.unsqueeze(0)),
            ]
        layer.double()
        for theirs, ours, part in parts:
            theirs.data.copy_(part(ours.data))
        layers.append(layer)
        pairs += parts
    return layers, pairs


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
    layers, pairs = pyg_layers(model)
    x = torch.randn(nodes, sizes[0], dtype=torch.float64, requires_grad=True)
    x_pyg = x.detach().clone().requires_grad_()
    out, expected = model(x, edge_index), x_pyg
    for layer in layers[:-1]:
        expected = layer(expected, edge_index).relu()
    expected = layers[-1](expected, edge_index)
    torch.testing.assert_close(out, expected)
    grad = torch.randn_like(out)
    out.backward(grad)
    expected.backward(grad)
    torch.testing.assert_close(x.grad, x_pyg.grad)
    assert {id(ours) for _, ours, _ in pairs} == set(map(id, model.parameters()))
    for theirs, ours, part in pairs:
        torch.testing.assert_close(part(ours.grad), theirs.grad)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("width", [2, 9])
def test_sparse_features_edge_index_and_cached_products_change_nothing(name: str, width: int) -> None:
    """Sparse features are projected before they are summed, those of cached products after."""
    edge_index = random_graph(9, 30, 3)
    adj = Adjacency(edge_index, 9, torch.float64)
    model = randomise(MODELS[name](6, [width, 1], 3))
    x = torch.randn(9, 6, dtype=torch.float64).relu()
    expected = model(x, adj)
    gradients = torch.autograd.grad(expected.square().sum(), list(model.parameters()))
    for features, graph in ((x, edge_index), (SparseMatrix.from_dense(x), adj), (x, adj.with_cached_products(x))):
        out = model(features, graph)
        torch.testing.assert_close(out, expected)
        torch.testing.assert_close(torch.autograd.grad(out.square().sum(), list(model.parameters())), gradients)


@pytest.mark.parametrize("step", ["message", "aggregate", "update"])
@pytest.mark.parametrize("kept", [False, True])
def test_a_subclass_of_sage_keeps_each_step_of_its_own(step: str, kept: bool) -> None:
    adj, x = Adjacency(random_graph(7, 20, 0), 7, torch.float64), torch.randn(7, 3).double()
    if kept:
        adj.cache_products(x)
    own = type("Own", (SAGELayer,), {step: lambda self, *given: 2 * getattr(SAGELayer, step)(self, *given)})
    layer, plain = randomise(own(3, 4)), SAGELayer(3, 4).double()
    plain.load_state_dict(layer.state_dict())
    doubled = {"message": 2 * (plain(x, adj) - plain.update(x, 0 * x)) + plain.update(x, 0 * x)}
    doubled |= {"aggregate": doubled["message"], "update": 2 * plain(x, adj)}
    torch.testing.assert_close(layer(x, adj), doubled[step])


def test_a_cached_product_is_computed_once_and_only_for_the_same_tensor() -> None:
    adj, asked = Adjacency(random_graph(7, 20, 0), 7), []
    x = torch.randn(7, 3)
    adj.cache_products(x, lambda operator: asked.append(operator) or torch.full((7, 3), 2.0))
    for _ in range(2):
        assert torch.equal(adj.aggregate("mean", x), torch.full((7, 3), 2.0))
    assert asked == ["mean"]
    assert torch.equal(adj.aggregate("mean", x.clone()), adj.mean @ x)
    assert asked == ["mean"]


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(("norm", "dim"), [("layer", 1), ("batch", 0)])
def test_norms(name: str, norm: str, dim: int) -> None:
    adj, x, model = Adjacency(random_graph(9, 30, 3), 9), torch.randn(9, 4), MODELS[name](4, [6], 3, norm=norm)
    hidden = model.convs[0](x, adj)
    hidden = (hidden - hidden.mean(dim, keepdim=True)) / (hidden.var(dim, correction=0, keepdim=True) + 1e-5).sqrt()
    torch.testing.assert_close(model(x, adj), model.convs[1](hidden.relu(), adj), atol=1e-4, rtol=1e-4)
    assert not list(model.norms.parameters()) or norm == "batch"


@pytest.mark.parametrize("name", MODELS)
def test_dropout_acts_in_training_only_and_follows_the_seed(name: str) -> None:
    adj, x, model = Adjacency(random_graph(9, 30, 3), 9), torch.randn(9, 4), MODELS[name](4, [16], 3, dropout=0.5)
    assert not torch.equal(model(x, adj), model(x, adj))
    torch.manual_seed(1)
    first = model(x, adj)
    torch.manual_seed(1)
    assert torch.equal(model(x, adj), first)
    assert torch.equal(model.eval()(x, adj), model(x, adj))


@pytest.mark.parametrize("name", MODELS)
def test_build_on_meta(name: str) -> None:
    with torch.device("meta"):
        model = MODELS[name](4, [6, 1], 3, norm="batch")
    assert all(parameter.is_meta for parameter in model.parameters())


@pytest.mark.parametrize("name", MODELS)
def test_an_empty_graph_has_no_scores(name: str) -> None:
    out = MODELS[name](4, [6], 3)(torch.ones(0, 4), torch.zeros(2, 0, dtype=torch.int64))
    out.sum().backward()
    assert out.shape == (0, 3)
    assert issubclass(MODELS[name], GAT) == (name in WITH_HEADS)


EDGES = torch.tensor([[0], [1]])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: GCN(3, [], 2), "at least one width"),
        (lambda: GCN(3, [4, 0], 2), "at least one feature"),
        (lambda: GCN(3, [4], 0), "at least one feature"),
        (lambda: GCN(3, [4], 2, dropout=1.0), r"\[0, 1\)"),
        (lambda: GCN(3, [4], 2, dropout=-0.1), r"\[0, 1\)"),
        (lambda: GCN(3, [4], 2, norm="instance"), "none, layer, batch"),
        (lambda: GAT(3, [4], 2, heads=0), "heads 0"),
        (lambda: GCN(3, [4], 2)(torch.ones(2, 4), EDGES), r"\[N, 3\]"),
        (lambda: GCN(3, [4], 2)(torch.ones(2, 3), Adjacency(EDGES, 3)), "one row per node"),
        (lambda: GCN(3, [4], 2)(torch.ones(2, 3), Adjacency(EDGES, 2, torch.float64)), r"adj\.to"),
    ],
)
def test_bad_arguments(call: Callable[[], object], message: str) -> None:
    with pytest.raises(InputError, match=message) as error:
        call()
    assert "\n" not in str(error.value)
