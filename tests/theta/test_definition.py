from collections.abc import Callable

import pytest
import torch
import torch_geometric.nn as pyg
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from gistgnn.layout.axes import Layout, named_tensors
from gistgnn.layout.check import infer_layout
from gistgnn.nn import GAT, GCN, GraphSAGE
from gistgnn.partition import Partition
from gistgnn.sampling import Batch, forward
from gistgnn.theta.memory import InMemory
from tests.helpers.models import C, Stack, tiny_graph
from tests.helpers.reference import zeroed

examples = settings(deadline=None, max_examples=6)

# The definition: a sub-GCN is the full model in which everything outside its blocks is zero.

DEFINED: dict[str, Callable[[tuple[int, ...]], nn.Module]] = {
    "gcn": lambda w: GCN(w[0], w[1:], C),
    "graphsage": lambda w: GraphSAGE(w[0], w[1:], C),
    "gat": lambda w: GAT(w[0], w[1:], C, heads=3),
    "pyg gcn": lambda w: Stack(w[1:], pyg.GCNConv, w[0]),
    "pyg sage": lambda w: Stack(w[1:], pyg.SAGEConv, w[0]),
    "pyg sage max": lambda w: Stack(w[1:], lambda a, b: pyg.SAGEConv(a, b, aggr="max"), w[0]),
    "pyg gat": lambda w: Stack(w[1:], lambda a, b: pyg.GATConv(a, b, heads=2, concat=False), w[0]),
    "pyg gin": lambda w: Stack(w[1:], lambda a, b: pyg.GINConv(nn.Linear(a, b)), w[0]),
}


@pytest.mark.parametrize("name", DEFINED)
@pytest.mark.parametrize("input_axis", [None, 0])
@examples
@given(
    depth=st.integers(1, 3),
    extra=st.lists(st.integers(0, 5), min_size=4, max_size=4),
    m=st.integers(1, 4),
    seed=st.integers(0, 999),
)
def test_a_sub_gcn_is_the_full_model_with_the_rest_zero(
    name: str, input_axis: int | None, depth: int, extra: list[int], m: int, seed: int
) -> None:
    widths = tuple(m + e for e in extra[: depth + 1])
    whole = set() if input_axis == 0 else {0}
    build = DEFINED[name]
    layout = _definition_layout(name, depth)
    graph = tiny_graph(12, seed)
    torch.manual_seed(seed)
    full = build(widths).double().eval()
    for tensor in named_tensors(full).values():
        tensor.detach().normal_()
    theta = InMemory(layout, widths, {n: t.detach().clone() for n, t in named_tensors(full).items()})
    x = torch.randn(12, widths[0], dtype=torch.float64)
    batch = Batch(x, graph.edge_index, graph.y, graph.train)
    blocks = Partition(widths, m, whole=whole, seed=seed).blocks(0)
    theta.begin(0, blocks)
    for i, own in enumerate(blocks):
        sub = build(tuple(len(b) for b in own)).double().eval()
        theta.load(i, sub)
        found = forward(sub, batch.select_columns(own[0]))
        rest_zero = zeroed(layout, theta.tensors, own, widths)
        with torch.no_grad():
            for n, tensor in named_tensors(full).items():
                tensor.copy_(rest_zero[n])
        seen = torch.zeros_like(x)
        seen[:, own[0]] = x[:, own[0]]
        expected = forward(full, Batch(seen, graph.edge_index, graph.y, graph.train))
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)


_layouts: dict[tuple[str, int], Layout] = {}


def _definition_layout(name: str, depth: int) -> Layout:
    key = name, depth
    if key not in _layouts:
        _layouts[key] = infer_layout(DEFINED[name], tuple(range(6, 7 + depth)), shared=False, input_axis=0)
    return _layouts[key]
