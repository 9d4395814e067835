import copy
from collections.abc import Callable

import pytest
import torch
import torch_geometric.nn as pyg
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from gistgnn.errors import InputError
from gistgnn.nn import GAT, GCN, GIN, GNN, MODELS, WITH_HEADS, Adjacency, GATv2, GraphSAGE, SparseMatrix
from gistgnn.nn.gcn import GCNLayer
from gistgnn.nn.sage import SAGELayer

from .strategies import examples, graphs, random_graph, widths

HEADS = 2


Pairs = list[tuple[Tensor, Tensor, Callable[[Tensor], Tensor]]]


def pyg_layers(model: GNN) -> tuple[list[nn.Module], Pairs]:
    """PyG's layers with the model's weights; each of their parameters, ours, and the part of ours that it is."""
    layers: list[nn.Module] = []
    pairs: Pairs = []
    for conv in model.convs:
        d_in = conv.weight.shape[1]
        if isinstance(model, GCN):
            layer = pyg.GCNConv(d_in, conv.weight.shape[0])
            parts = [(layer.lin.weight, conv.weight, whole), (layer.bias, conv.bias, whole)]
        elif isinstance(model, GraphSAGE):
            layer = pyg.SAGEConv(conv.in_features, conv.out_features, aggr="mean")
            parts = [(layer.lin_r.weight, conv.weight, lambda w: w.chunk(2, dim=1)[0])]
            parts += [(layer.lin_l.weight, conv.weight, lambda w: w.chunk(2, dim=1)[1])]
            parts += [(layer.lin_l.bias, conv.bias, whole)]
        elif isinstance(model, GIN):
            inside = len(conv.weight)
            layer = pyg.GINConv(nn.Sequential(nn.Linear(d_in, inside), nn.ReLU(), nn.Linear(inside, conv.out_features)))
            ours = conv.weight, conv.bias, conv.second_weight, conv.second_bias
            parts = [(*each, whole) for each in zip(layer.nn.parameters(), ours, strict=True)]
        elif isinstance(model, GATv2):
            layer = pyg.GATv2Conv(d_in, conv.attention.shape[1], conv.heads, concat=conv.concat)
            parts = [(layer.lin_l.weight, conv.weight, lambda w: w.chunk(2)[0])]
            parts += [(layer.lin_r.weight, conv.weight, lambda w: w.chunk(2)[1])]
            parts += [(layer.lin_r.bias, conv.score_bias, whole), (layer.bias, conv.bias, whole)]
            parts += [(layer.att, conv.attention, one_more)]
            nn.init.zeros_(layer.lin_l.bias)
        else:
            layer = pyg.GATConv(d_in, conv.source.shape[1], heads=conv.heads, concat=conv.concat)
            parts = [(layer.lin.weight, conv.weight, whole), (layer.bias, conv.bias, whole)]
            parts += [(layer.att_src, conv.source, one_more), (layer.att_dst, conv.target, one_more)]
        layer.double()
        for theirs, ours, part in parts:
            theirs.data.copy_(part(ours.data))
        layers.append(layer)
        pairs += parts
    return layers, pairs


def whole(parameter: Tensor) -> Tensor:
    return parameter


def one_more(parameter: Tensor) -> Tensor:
    return parameter.unsqueeze(0)


def pyg_forward(layers: list[nn.Module], x: Tensor, edge_index: Tensor) -> Tensor:
    for layer in layers[:-1]:
        x = layer(x, edge_index).relu()
    return layers[-1](x, edge_index)


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
    out, expected = model(x, edge_index), pyg_forward(layers, x_pyg, edge_index)
    torch.testing.assert_close(out, expected)
    grad = torch.randn_like(out)
    out.backward(grad)
    expected.backward(grad)
    torch.testing.assert_close(x.grad, x_pyg.grad)
    assert {id(ours) for _, ours, _ in pairs} == set(map(id, model.parameters()))
    for theirs, ours, part in pairs:
        torch.testing.assert_close(part(ours.grad), theirs.grad)


@pytest.mark.parametrize("name", MODELS)
def test_sparse_features_and_edge_index_equal_dense_features_and_adjacency(name: str) -> None:
    edge_index = random_graph(9, 30, 3)
    adj = Adjacency(edge_index, 9, torch.float64)
    model = randomise(MODELS[name](6, [5, 1], 3))
    x = torch.randn(9, 6, dtype=torch.float64).relu()
    expected = model(x, adj)
    gradients = torch.autograd.grad(expected.square().sum(), list(model.parameters()))
    for features, graph in ((x, edge_index), (SparseMatrix.from_dense(x), adj)):
        out = model(features, graph)
        torch.testing.assert_close(out, expected)
        torch.testing.assert_close(torch.autograd.grad(out.square().sum(), list(model.parameters())), gradients)


@pytest.mark.parametrize(("d_in", "d_out"), [(2, 5), (4, 4), (5, 2)])
@pytest.mark.parametrize("kept", [False, True])
def test_both_orders_of_a_product_are_equal(d_in: int, d_out: int, kept: bool) -> None:
    adj = Adjacency(random_graph(7, 20, 0), 7, torch.float64)
    x = torch.randn(7, d_in).double()
    if kept:
        adj.cache_products(x)
    gcn, sage = randomise(GCNLayer(d_in, d_out)), randomise(SAGELayer(d_in, d_out))
    own, neighbours = sage.weight.split(d_in, dim=1)
    for features in (x, SparseMatrix.from_dense(x)):
        torch.testing.assert_close(gcn(features, adj), adj.gcn.to_dense() @ x @ gcn.weight.t() + gcn.bias)
        expected = x @ own.t() + adj.mean.to_dense() @ x @ neighbours.t() + sage.bias
        torch.testing.assert_close(sage(features, adj), expected)


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
@pytest.mark.parametrize("norm", ["layer", "batch"])
def test_norms(name: str, norm: str) -> None:
    adj = Adjacency(random_graph(9, 30, 3), 9)
    model = MODELS[name](4, [6], 3, norm=norm)
    x = torch.randn(9, 4)
    hidden = model.convs[0](x, adj)
    if norm == "layer":
        assert not list(model.norms.parameters())
        hidden = (hidden - hidden.mean(1, keepdim=True)) / (hidden.var(1, correction=0, keepdim=True) + 1e-5).sqrt()
    else:
        assert {key for key in model.state_dict() if "norms.0.running" in key}
        hidden = (hidden - hidden.mean(0)) / (hidden.var(0, correction=0) + 1e-5).sqrt()
    torch.testing.assert_close(model(x, adj), model.convs[1](hidden.relu(), adj), atol=1e-4, rtol=1e-4)
    if norm == "batch":
        assert model.norms[0].num_batches_tracked == 1
        model.reset_parameters()
        assert model.norms[0].num_batches_tracked == 0


@pytest.mark.parametrize("name", MODELS)
def test_dropout_acts_in_training_only_and_follows_the_seed(name: str) -> None:
    adj = Adjacency(random_graph(9, 30, 3), 9)
    model = MODELS[name](4, [16], 3, dropout=0.5)
    x = torch.randn(9, 4)
    assert not torch.equal(model(x, adj), model(x, adj))
    torch.manual_seed(1)
    first = model(x, adj)
    torch.manual_seed(1)
    assert torch.equal(model(x, adj), first)
    model.eval()
    assert torch.equal(model(x, adj), model(x, adj))


@pytest.mark.parametrize("name", MODELS)
def test_build_on_meta_and_reset(name: str) -> None:
    with torch.device("meta"):
        model = MODELS[name](4, [6, 1], 3, norm="batch")
    assert all(parameter.is_meta for parameter in model.parameters())
    model = model.to_empty(device="cpu")
    torch.manual_seed(0)
    model.reset_parameters()
    torch.manual_seed(0)
    fresh = MODELS[name](4, [6, 1], 3, norm="batch")
    for key, value in fresh.state_dict().items():
        assert torch.equal(model.state_dict()[key], value), key


def hidden_index(block: Tensor, width: int, copies: int) -> Tensor:
    """Positions of a block's features in a dimension with ``copies`` of a hidden axis."""
    return (torch.arange(copies).unsqueeze(1) * width + block).flatten()


def slices(name: str, layer: int, key: str, blocks: list[Tensor], full: list[int]) -> dict[int, Tensor]:
    """Dimension -> indices of a layer's parameter ``key`` that a sub-network holds."""
    heads = HEADS if name in WITH_HEADS else 1
    actual: dict[int, Tensor] = {}
    if name == "gin" and layer == len(full):  # inside, its MLP has the last hidden layer's features
        inside = {"weight": (0, 1), "bias": (0,), "second_weight": (1,), "second_bias": ()}[key]
        return dict.fromkeys(inside, blocks[-1])
    if layer < len(full):
        if key in ("source", "target", "attention"):
            actual[1] = blocks[layer]
        else:
            copies = 2 * heads if (name, key) == ("gatv2", "weight") else heads
            actual[0] = hidden_index(blocks[layer], full[layer], copies)
        if key == "second_weight":
            actual[1] = blocks[layer]
    if key == "weight" and layer > 0:
        copies = 2 if name == "graphsage" else heads
        actual[1] = hidden_index(blocks[layer - 1], full[layer - 1], copies)
    return actual


@pytest.mark.parametrize("name", MODELS)
@examples
@given(seed=st.integers(0, 999))
def test_one_block_of_a_wide_model_is_the_narrow_model_of_its_slices(name: str, seed: int) -> None:
    torch.manual_seed(seed)
    full, narrow = [6, 4], [2, 3]
    options = {"heads": HEADS} if name in WITH_HEADS else {}
    wide = randomise(MODELS[name](5, full, 3, **options))
    small = MODELS[name](5, narrow, 3, **options).double()
    blocks = [torch.randperm(d)[:k] for d, k in zip(full, narrow, strict=True)]
    zeroed = copy.deepcopy(wide)
    for (path, parameter), target in zip(zeroed.named_parameters(), small.parameters(), strict=True):
        _, layer, key = path.split(".")
        part, mask = parameter.data, torch.ones_like(parameter)
        for dim, index in slices(name, int(layer), key, blocks, full).items():
            part = part.index_select(dim, index)
            mask *= (
                torch.zeros(mask.shape[dim])
                .index_fill(0, index, 1.0)
                .view([-1 if i == dim else 1 for i in range(mask.dim())])
            )
        target.data.copy_(part)
        parameter.data.mul_(mask)
    x, edge_index = torch.randn(9, 5).double(), random_graph(9, 30, seed)
    torch.testing.assert_close(zeroed(x, edge_index), small(x, edge_index))


@pytest.mark.parametrize("name", MODELS)
def test_an_empty_graph_has_no_scores(name: str) -> None:
    model = MODELS[name](4, [6], 3)
    out = model(torch.ones(0, 4), torch.zeros(2, 0, dtype=torch.int64))
    out.sum().backward()
    assert out.shape == (0, 3)


def test_the_registry_holds_every_model() -> None:
    assert {"gcn": GCN, "graphsage": GraphSAGE, "gat": GAT, "gatv2": GATv2, "gin": GIN} == MODELS
    for name, model in MODELS.items():
        assert issubclass(model, GAT) == (name in WITH_HEADS)


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
    ],
)
def test_bad_arguments(call: Callable[[], object], message: str) -> None:
    with pytest.raises(InputError, match=message) as error:
        call()
    assert "\n" not in str(error.value)
