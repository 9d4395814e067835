"""Parts that share a forward pass."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch_geometric.nn import GCNConv

from gistgnn.evaluation import Evaluation
from gistgnn.evaluation import by_parts as parts
from gistgnn.evaluation.budget import Budget
from gistgnn.evaluation.by_parts import ByParts, nodes_at_once
from gistgnn.nn import MODELS
from gistgnn.sampling import whole_graph
from tests.helpers.models import Stack, tiny_graph
from tests.nn.strategies import examples

from .cases import random_model

GRAPH = tiny_graph(nodes=60)
BATCH = replace(whole_graph(GRAPH), x=GRAPH.x.double())


def by_parts(model: nn.Module, at_once: int) -> tuple[torch.Tensor, list[int]]:
    """Return the output, and the number of nodes in each forward pass."""
    taken: list[int] = []
    hook = model.register_forward_pre_hook(lambda _, args: taken.append(len(args[0])))
    with torch.no_grad():
        actual = ByParts(BATCH, 6, 0, at_once=at_once).logits(model)
    hook.remove()
    return actual, taken


@pytest.mark.parametrize("name", [*MODELS, "PyG's"])
@pytest.mark.parametrize("kept", [True, False])
def test_parts_together_are_parts_alone(name: str, kept: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "available_bytes", lambda _: 2**40 * kept)
    model = Stack((6, 6), GCNConv).double().eval() if name == "PyG's" else random_model(name, [6, 6], "batch")
    alone, taken = by_parts(model, 1)
    assert len(taken) == 6
    for at_once, forwards in ((max(taken), None), (60, 1)):
        together, sizes = by_parts(model, at_once)
        assert sum(sizes) == 60
        assert max(sizes) <= at_once
        assert forwards in (None, len(sizes))
        torch.testing.assert_close(together, alone)


@examples
@given(st.lists(st.integers(1, 5), min_size=1, max_size=9), st.integers(1, 12))
def test_groups_are_as_large_as_they_may_be(sizes: list[int], most: int) -> None:
    chosen = parts.np.arange(len(sizes))
    groups = parts._groups(chosen, parts.np.array(sizes), most)
    assert [part for group in groups for part in group] == chosen.tolist()
    held = [sum(sizes[part] for part in group) for group in groups]
    assert all(nodes <= most or len(group) == 1 for nodes, group in zip(held, groups, strict=True))
    assert all(nodes + sizes[after[0]] > most for nodes, after in zip(held, groups[1:], strict=False))


def test_how_many_nodes_go_at_once() -> None:
    batch, ours, theirs = whole_graph(GRAPH), random_model("graphsage", [64]).float(), Stack((64,), GCNConv)
    plenty = Budget(2**40)
    assert nodes_at_once(theirs, batch, plenty) == 1
    assert 100 < nodes_at_once(ours, batch, plenty) < 10**6
    assert Evaluation("parts", memory=2**20, parts=6).prepare(ours, batch).describe()["parts"] == 6
