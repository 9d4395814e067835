"""What a model gets is its own, and it may write into it.

Neither later calls nor the user's graph notice.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import torch_geometric.nn as pyg
from torch import Tensor, nn
from torch_geometric.data import Data

from gistgnn import GIST
from gistgnn.errors import InputError
from gistgnn.evaluation import Evaluation
from gistgnn.nn import GCN, Adjacency
from gistgnn.nn.convolutions import GCNLayer
from gistgnn.runners.fused import Stack
from gistgnn.sampling import Batch, forward, whole_graph
from tests.helpers.models import PLAIN, tiny_graph

NODES = 30
FEATURES = 7
CLASSES = 3
GRAPH = replace(tiny_graph(NODES), edge_weight=None)


def batch() -> Batch:
    rng = torch.Generator().manual_seed(0)
    x = torch.randn(NODES, FEATURES, generator=rng, dtype=torch.float64)
    edge_index = torch.randint(NODES, (2, 120), generator=rng)
    weight = torch.rand(120, generator=rng, dtype=torch.float64)
    y = torch.arange(NODES) % CLASSES
    return Batch(x, edge_index, y, torch.arange(NODES), edge_data={"edge_weight": weight})


def model_of(step: Callable[..., Tensor], **modules: Callable[[], nn.Module]) -> nn.Module:
    """A model of a class of its own, as what is known of a class is kept."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            for name, make in modules.items():
                setattr(self, name, make())
            self.out = nn.Linear(FEATURES, CLASSES)

        def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor) -> Tensor:
            return self.out(step(self, x, edge_index, edge_weight))

    return Model().double()


def sum_of_two(self: Any, x: Tensor, edge_index: Tensor, edge_weight: Tensor) -> Tensor:
    first = self.conv(x, edge_index)
    second = self.conv(x, edge_index)
    first.mul_(3)
    return first + second


def turned_edges(self: Any, x: Tensor, edge_index: Tensor, edge_weight: Tensor) -> Tensor:
    h = self.conv(x, edge_index)
    edge_index.copy_(edge_index.flip(0))
    return h + self.conv(x, edge_index)


def halved_weights(self: Any, x: Tensor, edge_index: Tensor, edge_weight: Tensor) -> Tensor:
    h = self.conv(x, edge_index, edge_weight)
    edge_weight[::2] = 0
    return h + self.conv(h, edge_index, edge_weight)


def own_weights(self: Any, x: Tensor, edge_index: Tensor, edge_weight: Tensor) -> Tensor:
    weights = edge_weight * 2
    h = self.conv(x, edge_index, weights)
    weights.mul_(0.5)
    return h + self.conv(x, edge_index, weights)


def lgconv() -> nn.Module:
    return pyg.LGConv()


def graph_conv() -> nn.Module:
    return pyg.GraphConv(FEATURES, FEATURES)


def sage_of_relu() -> nn.Module:
    conv = pyg.SAGEConv(FEATURES, FEATURES)
    conv.lin_l = nn.Sequential(nn.ReLU(inplace=True), nn.Linear(FEATURES, FEATURES))
    return conv


def hooked_sage() -> nn.Module:
    conv = pyg.SAGEConv(FEATURES, FEATURES)
    conv.lin_l.register_forward_pre_hook(lambda module, args: (args[0].relu_(),))
    return conv


MODELS: dict[str, Callable[[], nn.Module]] = {
    "the output of a convolution": lambda: model_of(lambda self, x, e, w: self.conv(x, e).add_(x),
    conv=lgconv),
    "one of two equal outputs": lambda: model_of(sum_of_two, conv=lgconv),
    "inside of PyG's layer": lambda: model_of(
        lambda self, x, e, w: self.conv(x, x, e), conv=lambda: pyg.GCN2Conv(FEATURES, alpha=0.5)
    ),
    "inside of a module of the user's in PyG's layer": lambda: model_of(
        lambda self, x, e, w: self.conv(x, e), conv=sage_of_relu
    ),
    "in a hook of PyG's layer": lambda: model_of(lambda self, x, e, w: self.conv(x, e),
    conv=hooked_sage),
    "the sum before a GIN's network": lambda: model_of(
        lambda self, x, e, w: self.conv((x, None), e, size=(NODES, NODES)),
        conv=lambda: pyg.GINConv(nn.Sequential(nn.ReLU(inplace=True),
        nn.Linear(FEATURES, FEATURES))),
    ),
    "x before a convolution": lambda: model_of(lambda self, x, e, w: self.conv(x.relu_(), e),
    conv=graph_conv),
    "x after a convolution": lambda: model_of(lambda self, x, e, w: self.conv(x, e) + x.mul_(2),
    conv=graph_conv),
    "x through a view": lambda: model_of(
        lambda self, x, e, w: self.conv(x.t().clamp_(min=0).t(), e), conv=graph_conv
    ),
    "edge weights": lambda: model_of(lambda self, x, e, w: self.conv(x, e, w.zero_()),
    conv=graph_conv),
    "edge weights between convolutions": lambda: model_of(halved_weights, conv=graph_conv),
    "edge weights, normalised": lambda: model_of(halved_weights,
    conv=lambda: pyg.GCNConv(FEATURES, FEATURES)),
    "weights that the model has made": lambda: model_of(own_weights, conv=graph_conv),
    "edges between convolutions": lambda: model_of(turned_edges, conv=graph_conv),
    "edges, normalised": lambda: model_of(turned_edges,
    conv=lambda: pyg.GCNConv(FEATURES, FEATURES)),
    "edges, normalised without loops": lambda: model_of(
        turned_edges, conv=lambda: pyg.GCNConv(FEATURES, FEATURES, add_self_loops=False)
    ),
}  # fmt: skip


def plain_output(model: nn.Module, seen: Batch) -> Tensor:
    """What plain PyG gives, with tensors of its own."""
    return model(seen.x.clone(), seen.edge_index.clone(), seen.edge_data["edge_weight"].clone())


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_a_model_may_write_into_all_that_it_gets(name: str, training: bool) -> None:
    model = MODELS[name]().train(training)
    seen = batch()
    expected = plain_output(model, seen)
    before = [tensor.clone() for tensor in (seen.x, seen.edge_index, seen.edge_data["edge_weight"])]
    for _ in range(4):
        torch.testing.assert_close(forward(model, seen), expected, rtol=1e-12, atol=1e-12)
    after = (seen.x, seen.edge_index, seen.edge_data["edge_weight"])
    assert all(map(torch.equal, before, after))
    with torch.no_grad():
        torch.testing.assert_close(
            Stack([model, model]).logits(seen)[1], expected, rtol=1e-12, atol=1e-12
        )


def test_a_model_that_begins_to_write_is_refused() -> None:
    def step(self: Any, x: Tensor, edge_index: Tensor, edge_weight: Tensor) -> Tensor:
        return self.conv(x.relu_() if self.writes else x, edge_index)

    model = model_of(step, conv=graph_conv)
    seen = batch()
    model.writes = False
    forward(model, seen)
    model.writes = True
    with pytest.raises(InputError, match="x in place"):
        forward(model, seen)
    seen = batch()
    torch.testing.assert_close(forward(model, seen), plain_output(model, seen))  # now it is known
    assert torch.equal(seen.x, batch().x)


class Sigmoid(GCNLayer):
    """Its output is needed for the gradient."""

    def update(self, x: Tensor, a: Tensor) -> Tensor:
        return torch.sigmoid(super().update(x, a))


class WritesReceived(GCNLayer):
    def update(self, x: Tensor, a: Tensor) -> Tensor:
        return super().update(x, a.mul_(2))


class ReturnsInput(GCNLayer):
    """The norm and the activation that follow may not overwrite what it has returned."""

    def update(self, x: Tensor, a: Tensor) -> Tensor:
        return x


class WritesInput(GCNLayer):
    def update(self, x: Tensor, a: Tensor) -> Tensor:
        return super().update(x, a) + x.mul_(0.5)[:, :1]


class WritesMessage(GCNLayer):
    def message(self, x: Tensor, adj: Adjacency) -> Tensor:
        return super().message(x.add_(1), adj)


class AggregatesItself(GCNLayer):
    def forward(self, x: Tensor, adj: Adjacency) -> Tensor:
        received = adj.aggregate("mean", x).relu_()
        return self.update(x, received)


LAYERS = [Sigmoid, WritesReceived, ReturnsInput, WritesInput, WritesMessage, AggregatesItself]


@pytest.mark.parametrize("norm", ["none", "layer", "batch"])
@pytest.mark.parametrize("layer", LAYERS)
def test_a_layer_of_the_users_may_write_into_what_it_gets(layer: type[GCNLayer], norm: Any) -> None:
    class Model(GCN):
        def make_layer(self, in_features: int, width: int, *, last: bool) -> Any:
            return (GCNLayer if last else layer)(in_features, width)

    torch.manual_seed(0)
    model = Model(FEATURES, (FEATURES,), CLASSES, norm=norm).double().eval()
    seen = batch()
    weight = seen.edge_data["edge_weight"]
    adjacency = Adjacency(seen.edge_index, NODES, torch.float64, weight)
    expected = model(seen.x.clone(), adjacency)
    for evaluate in (lambda: forward(model, seen), lambda: by_layers(model, seen)):
        for _ in range(2):
            torch.testing.assert_close(
                evaluate().detach(), expected.detach(), rtol=1e-12, atol=1e-12
            )
    assert torch.equal(seen.x, batch().x)
    model.train()
    forward(model, seen).square().sum().backward()
    gradients = [parameter.grad for parameter in model.parameters()]
    assert any(gradient is not None and bool(gradient.any()) for gradient in gradients)


def by_layers(model: nn.Module, seen: Batch) -> Tensor:
    if "forward" in vars(type(model.convs[0])):
        # A layer with a forward of its own has no steps to run one by one.
        return forward(model, seen)
    with torch.no_grad():
        return Evaluation("layers").prepare(model, seen).logits(model)


def drop_in_place(self: Any, x: Tensor) -> Tensor:
    return F.dropout(x, 0.5, self.training, inplace=True)


def drop(self: Any, x: Tensor) -> Tensor:
    return F.dropout(x, 0.5, self.training)


def network(dropout: Callable[..., Tensor]) -> Callable[[int], nn.Module]:
    class Network(nn.Module):
        def __init__(self, width: int) -> None:
            super().__init__()
            self.first = pyg.LGConv()
            self.conv = pyg.SAGEConv(FEATURES, width)
            self.last = pyg.SAGEConv(width, CLASSES)

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            x = dropout(self, x)
            h = self.first(x, edge_index)
            h = dropout(self, h)
            return self.last(self.conv(h, edge_index).relu(), edge_index)

    return Network


@pytest.mark.parametrize("runner", ["in-turn", "auto", "fused"])
def test_fit_trains_the_same_with_operations_in_place_and_leaves_the_graph(runner: Any) -> None:
    graph = tiny_graph(NODES)
    x = graph.x.clone()
    data = Data(x=graph.x, edge_index=graph.edge_index, y=graph.y)
    data.train_mask = graph.train
    data.val_mask = graph.val
    data.test_mask = graph.test
    results = []
    # torch cannot fuse operations in place, so the plain run is not fused either.
    for dropout, chosen in ((drop_in_place, runner), (drop, "auto")):
        gist = GIST(network(dropout), 8, 2)
        results.append(
            gist.fit(data, epochs=6, local_steps=2, progress=False, runner=chosen, **PLAIN)
        )
        assert torch.equal(data.x, x)
        assert torch.equal(data.edge_index, graph.edge_index)
    first, second = (result.model.state_dict() for result in results)
    assert all(torch.equal(first[name], second[name]) for name in second)
    batch_after = whole_graph(tiny_graph(NODES))
    assert torch.equal(batch_after.x, x)


def in_place_loss(logits: Tensor, targets: Tensor) -> Tensor:
    targets.mul_(0.9).add_(0.05)
    return F.binary_cross_entropy_with_logits(logits, targets)


def plain_loss(logits: Tensor, targets: Tensor) -> Tensor:
    return F.binary_cross_entropy_with_logits(logits, targets * 0.9 + 0.05)


class Writer:
    """Writes into what callbacks get."""

    def on_evaluation(self, run: Any, entry: dict[str, Any]) -> None:
        entry.clear()


def shifted_accuracy(logits: Tensor, targets: Tensor) -> Tensor:
    right = (logits.gt(0) == targets.bool()).float().mean()
    logits.fill_(-1.0)
    targets.fill_(0)
    return right


@pytest.mark.parametrize("runner", ["auto", "fused"])
def test_losses_metrics_and_callbacks_may_write_into_what_they_get(runner: Any) -> None:
    graph = tiny_graph(NODES, multi_label=True)
    before = graph.y.clone()
    results = []
    for loss in (in_place_loss, plain_loss):
        options = {
            **PLAIN,
            "epochs": 6,
            "local_steps": 2,
            "progress": False,
            "runner": runner,
            "loss": loss,
        }
        gist = GIST(lambda width: GCN(FEATURES, (width,), CLASSES), 8, 2)
        results.append(gist.fit(graph, metric=shifted_accuracy, callbacks=[Writer()], **options))
    assert torch.equal(graph.y, before)
    first, second = results
    assert [entry["validation"] for entry in first.history] == [
        entry["validation"] for entry in second.history
    ]
    assert first.history[0]["round"] == 1
    states = (first.model.state_dict(), second.model.state_dict())
    assert all(torch.equal(value, states[1][name]) for name, value in states[0].items())
