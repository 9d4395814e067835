"""PyG's layers give the same by products with matrices as by messages.

They are left alone where they do not.
"""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch_geometric.nn as pyg
from torch import Tensor, nn
from torch_geometric.utils import spmm

from gistgnn.nn import SparseMatrix
from gistgnn.nn.pyg_layers import Products
from gistgnn.runners.fused import Stack
from gistgnn.sampling import Batch, forward

N = 20
F = 6
C = 3
D = torch.float64


def edges(seed: int = 0) -> Tensor:
    """Edges with self-loops, repetitions, and a node without any."""
    drawn = torch.randint(N - 1, (2, 60), generator=torch.Generator().manual_seed(seed))
    return torch.cat([drawn, drawn[:, :5], torch.tensor([[3, 4], [3, 4]])], dim=1)


def batch(*, weighted: bool = False) -> Batch:
    rng = torch.Generator().manual_seed(1)
    x = torch.randn(N, F, generator=rng, dtype=D)
    y = torch.arange(N) % C
    data = {"edge_weight": torch.rand(edges().shape[1], generator=rng, dtype=D)} if weighted else {}
    return Batch(x, edges(), y, torch.arange(N), edge_data=data)


class Net(nn.Module):
    """Two layers, the first of which sees the features."""

    def __init__(self, first: nn.Module, second: nn.Module) -> None:
        super().__init__()
        self.convs = nn.ModuleList([first, second])

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        edge_tensors = (edge_index,) if edge_weight is None else (edge_index, edge_weight)
        for conv in self.convs:
            x = conv(x, *edge_tensors).tanh()
        return x


def twice(layer: Callable[..., nn.Module], **options: Any) -> nn.Module:
    torch.manual_seed(0)
    return Net(layer(F, F, **options), layer(F, C, **options)).double()


class Untrue(pyg.SAGEConv):
    """What it gives for a matrix is something else; it is not asked for that."""

    def message_and_aggregate(self, adj_t: Any, x: Any) -> Tensor:
        return 2 * spmm(adj_t, x[0], reduce=self.aggr)


MULTIPLY = {
    "GCN": lambda: twice(pyg.GCNConv),
    "GCN improved": lambda: twice(pyg.GCNConv, improved=True),
    "GCN without loops": lambda: twice(pyg.GCNConv, add_self_loops=False),
    "GCN not normalised": lambda: twice(pyg.GCNConv, normalize=False),
    "GCN with weights": lambda: twice(pyg.GCNConv),
    "SAGE": lambda: twice(pyg.SAGEConv),
    "SAGE, sum": lambda: twice(pyg.SAGEConv, aggr="sum"),
    "GraphConv, mean of weighted": lambda: twice(pyg.GraphConv, aggr="mean"),
    "SAGE, untrue": lambda: twice(Untrue),
    "GIN": lambda: Net(pyg.GINConv(nn.Linear(F, F)), pyg.GINConv(nn.Linear(F, C))).double(),
    "TAG": lambda: twice(pyg.TAGConv),
    "SG": lambda: twice(pyg.SGConv, K=2),
    "ClusterGCN": lambda: twice(pyg.ClusterGCNConv),
    "MixHop": lambda: Net(pyg.MixHopConv(F, 2), pyg.GCNConv(6, C)).double(),
    "GCN, model of PyG": lambda: pyg.GCN(F, 8, 2, C).double(),
    "SAGE, model of PyG": lambda: pyg.GraphSAGE(F, 8, 2, C, norm="batch").double(),
}


class WithNode(Net):
    """A model that adds a node between its layers, which has no edges."""

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        first, second = self.convs
        x = first(x, edge_index).tanh()
        x = second(torch.cat([x, x.mean(dim=0, keepdim=True)]), edge_index)
        return x[:-1] + x[-1]


@pytest.mark.parametrize("layer", [pyg.GCNConv, pyg.SGConv])
def test_an_added_node_gets_a_self_loop(layer: Callable[..., nn.Module]) -> None:
    torch.manual_seed(0)
    messages, products = messages_and_products(WithNode(layer(F, F), layer(F, C)).double(), batch())
    torch.testing.assert_close(products, messages)


@pytest.fixture
def matrices(monkeypatch: pytest.MonkeyPatch) -> list[SparseMatrix]:
    """The matrices that layers multiply by, one for each product."""
    multiplied: list[SparseMatrix] = []
    multiply = Products.multiply

    def counted(products: Products, matrix: SparseMatrix, h: Tensor, **options: bool) -> Tensor:
        multiplied.append(matrix)
        return multiply(products, matrix, h, **options)

    monkeypatch.setattr(Products, "multiply", counted)
    return multiplied


def messages_and_products(model: nn.Module, seen: Batch) -> tuple[list[Tensor], list[Tensor]]:
    """Output and gradients by messages, and as gistgnn runs the model."""
    model.eval()

    def gradients(out: Tensor) -> list[Tensor]:
        model.zero_grad()
        out.sin().sum().backward()
        return [out.detach(), *(p.grad.clone() for p in model.parameters() if p.grad is not None)]

    messages = gradients(model(seen.x, seen.edge_index, *seen.edge_data.values()))
    return messages, gradients(forward(model, seen))


@pytest.mark.parametrize("name", MULTIPLY)
def test_outputs_and_gradients_are_the_same_also_of_stacked_models(
    name: str, matrices: list[SparseMatrix]
) -> None:
    model = MULTIPLY[name]()
    other = MULTIPLY[name]().eval()
    seen = batch(weighted="weight" in name)
    messages, products = messages_and_products(model, seen)
    torch.testing.assert_close(products, messages)
    for p in other.parameters():
        p.data.mul_(1.1)
    used = len(matrices)
    expected = [net(seen.x, seen.edge_index, *seen.edge_data.values()) for net in (model, other)]
    assert len(matrices) == used  # a call by the user passes messages, as before
    torch.testing.assert_close(Stack([model, other]).logits(seen), torch.stack(expected))
    assert len(matrices) > used
    assert len(set(matrices)) == 1


class Relu(pyg.GCNConv):
    """Its messages are not those of the class that it inherits `message_and_aggregate` from."""

    def message(self, x_j: Tensor, edge_weight: Tensor) -> Tensor:
        return edge_weight.view(-1, 1) * x_j.relu()


class Thrice(pyg.SAGEConv):
    def propagate(self, edge_index: Tensor, size: Any = None, **inputs: Any) -> Tensor:
        return 3 * super().propagate(edge_index, size=size, **inputs)


class Fewer(pyg.GCNConv):
    """It normalises other edges than the batch's."""

    stride = 1

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return super().forward(x, edge_index[:, :: self.stride])


class Learned(Net):
    """The weights of edges are learned."""

    def __init__(self) -> None:
        super().__init__(pyg.GraphConv(F, F), pyg.GraphConv(F, C))
        self.weight = nn.Parameter(torch.rand(edges().shape[1]))

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.convs[1](self.convs[0](x, edge_index, self.weight), edge_index, self.weight)


def hooked() -> nn.Module:
    """A hook changes the messages."""
    model = twice(pyg.SAGEConv)
    for conv in model.convs:
        conv.register_message_forward_hook(lambda module, inputs, out: out.abs())
    return model


LEFT_ALONE = {
    "other messages": lambda: twice(Relu),
    "another propagate": lambda: twice(Thrice),
    "learned weights": lambda: Learned().double(),
    "hooks": hooked,
    "maximum": lambda: twice(pyg.SAGEConv, aggr="max"),
    "features in three dimensions": lambda: twice(pyg.ARMAConv),
    "attention": lambda: twice(pyg.GATConv),
    "from target to source": lambda: twice(pyg.GCNConv, flow="target_to_source"),
}


@pytest.mark.parametrize("name", LEFT_ALONE)
def test_other_layers_pass_messages(name: str) -> None:
    messages, ours = messages_and_products(LEFT_ALONE[name](), batch())
    assert all(torch.equal(one, other) for one, other in zip(messages, ours, strict=True))


def test_layers_of_one_model_may_see_other_edges_or_weights() -> None:
    class Mixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.convs = nn.ModuleList(
                [pyg.GCNConv(F, F, improved=improved) for improved in (False, True, False)]
            )

        def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor) -> Tensor:
            first, second, third = self.convs
            h = first(x, edge_index) + first(x, edge_index, edge_weight) + second(x, edge_index)
            fewer = third(h, edge_index[:, ::2]) + third(h, edge_index[:, ::2], edge_weight[::2])
            return fewer + third(h, edge_index, edge_weight=2 * edge_weight)

    messages, ours = messages_and_products(Mixed().double(), batch(weighted=True))
    torch.testing.assert_close(ours, messages)


def test_a_layer_may_change_the_edges_that_it_is_given() -> None:
    model = twice(Fewer)
    model.convs[0].stride = 2
    messages, ours = messages_and_products(model, batch())
    torch.testing.assert_close(ours, messages)


def test_new_edges_at_every_step_are_not_kept(matrices: list[SparseMatrix]) -> None:
    class Dropping(Net):
        edge_slice = slice(None)

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return super().forward(x, edge_index[:, self.edge_slice])

    model = Dropping(pyg.SAGEConv(F, F), pyg.SAGEConv(F, C)).double()
    seen = batch()
    for step in range(12):
        model.edge_slice = slice(step, None)
        torch.testing.assert_close(forward(model, seen), model(seen.x, seen.edge_index))
    assert 1 < len(set(matrices)) < 12


@pytest.mark.parametrize("layer", [pyg.GCNConv, pyg.SAGEConv])
def test_in_bfloat16_they_have_the_messages_type(
    layer: Callable[..., nn.Module], matrices: list[SparseMatrix]
) -> None:
    model = twice(layer).float().eval()
    seen = batch()
    half = Batch(seen.x.float(), seen.edges, seen.y, seen.loss_nodes)
    with torch.autocast("cpu", torch.bfloat16):
        messages = model(half.x, half.edge_index)
        ours = forward(model, half)
        stacked = Stack([model, model]).logits(half)
    assert matrices
    assert ours.dtype == messages.dtype
    torch.testing.assert_close(ours, messages, rtol=0.05, atol=0.05)
    torch.testing.assert_close(stacked[1].float(), messages.float(), rtol=0.05, atol=0.05)
