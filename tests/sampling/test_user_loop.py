"""Sub-GCNs that a loop of the user's own calls multiply by matrices, like those of `fit`."""

import copy
import io
from collections.abc import Callable
from unittest import mock

import pytest
import torch
import torch_geometric.nn as pyg
from torch import Tensor, nn

from gistgnn import GIST
from gistgnn.nn.pyg_layers import Products
from tests.helpers.fitting import GRAPH, fit, same, theta
from tests.helpers.models import C, F

WEIGHT = torch.rand(GRAPH.edge_index.shape[1], generator=torch.Generator().manual_seed(0)) + 0.1


def sub_gcn(kind: Callable[..., nn.Module] = pyg.GCN, **options: object) -> nn.Module:
    """A sub-GCN of a round by hand."""
    gist = GIST(lambda width: kind(F, width, 2, C, **options), 8, 2)
    return gist.begin_round().subs[0]


def outcome(model: nn.Module, *args: Tensor, **kwargs: Tensor) -> list[Tensor]:
    model.zero_grad()
    out = model(*args, **kwargs)
    out.square().mean().backward()
    return [out.detach(), *(p.grad.clone() for p in model.parameters() if p.grad is not None)]


def check(sub: nn.Module, *args: Tensor, **kwargs: Tensor) -> None:
    """Check that a sub-GCN gives what a copy of it does, which passes messages."""
    torch.testing.assert_close(
        outcome(sub, *args, **kwargs), outcome(copy.deepcopy(sub), *args, **kwargs)
    )


@pytest.mark.parametrize("kind", [pyg.GCN, pyg.GraphSAGE, pyg.GIN])
def test_calls_multiply_and_copies_pass_messages(kind: Callable[..., nn.Module]) -> None:
    sub = sub_gcn(kind)
    check(sub, GRAPH.x, GRAPH.edge_index)
    with pytest.raises(RuntimeError):
        sub(GRAPH.x[:, :2].clone(), GRAPH.edge_index)
    assert not any("propagate" in vars(layer) for layer in sub.modules())
    with mock.patch.object(
        Products, "multiply", autospec=True, side_effect=Products.multiply
    ) as multiply:
        sub(GRAPH.x, GRAPH.edge_index)
        sub(x=GRAPH.x, edge_index=GRAPH.edge_index)
        assert multiply.call_count == 4
        copy.deepcopy(sub)(GRAPH.x, GRAPH.edge_index)
        assert multiply.call_count == 4


def test_other_and_changed_tensors_are_seen() -> None:
    sub = sub_gcn()
    x = GRAPH.x.clone()
    edges = GRAPH.edge_index.clone()
    weight = WEIGHT.clone()
    for _ in range(2):
        check(sub, x, edges)
        check(sub, x, edges, weight)
        check(sub, x, edges, edge_weight=2 * weight**2)
        weight[3] = 7.0
        check(sub, x, edges, weight)
        edges[0, :5] = 3
        check(sub, x, edges)
        x.mul_(1.5)
        check(sub, x, edges)
        check(sub, x, edges[:, ::2])
        features = x.clone().requires_grad_()
        scale = weight.clone().requires_grad_()
        check(sub, features, edges, scale)
        assert features.grad is not None
        assert scale.grad is not None


def test_a_sub_gcn_runs_within_vmap_and_is_read_from_a_file() -> None:
    sub = sub_gcn()
    stacked = {name: torch.stack([p, p]) for name, p in sub.state_dict().items()}
    outputs = torch.func.vmap(
        lambda state: torch.func.functional_call(sub, state, (GRAPH.x, GRAPH.edge_index))
    )(stacked)
    torch.testing.assert_close(outputs[1], sub(GRAPH.x, GRAPH.edge_index))
    file = io.BytesIO()
    torch.save(sub, file)
    file.seek(0)
    again = torch.load(file, weights_only=False)
    torch.testing.assert_close(again(GRAPH.x, GRAPH.edge_index), sub(GRAPH.x, GRAPH.edge_index))


def test_fit_and_loops_by_hand_do_not_disturb_each_other() -> None:
    used, other = (GIST(lambda width: pyg.GCN(F, width, 2, C, dropout=0.3), 8, 2) for _ in range(2))
    for round_ in used.rounds(2):
        for sub in round_:
            sub(GRAPH.x, GRAPH.edge_index)
    for gist in (used, other):
        fit(gist, epochs=8)
    assert same(theta(used), theta(other))
