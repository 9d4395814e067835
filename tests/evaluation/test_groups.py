"""Parts that share a forward pass, and plans for weights on disk."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch_geometric.nn import GCNConv

from gistgnn.evaluation import Evaluation
from gistgnn.evaluation import by_parts as parts
from gistgnn.evaluation.budget import Budget, plan_layers
from gistgnn.evaluation.by_parts import ByParts, nodes_at_once
from gistgnn.evaluation.scores import predict
from gistgnn.graphs import CSR
from gistgnn.io import stored_tensor as tensor
from gistgnn.io.stored_tensor import StoredTensor
from gistgnn.nn import MODELS
from gistgnn.sampling import whole_graph
from tests.helpers.models import Stack, tiny_graph
from tests.io.stored_files import stored
from tests.nn.strategies import examples

from .cases import C, F, random_batch, random_model, whole

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


@examples
@given(st.integers(1, 9), st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8)), max_size=30), st.data())
def test_entries_within_parts(nodes: int, entries: list[tuple[int, int]], data: st.DataObject) -> None:
    part = data.draw(st.lists(st.integers(0, 3), min_size=nodes, max_size=nodes))
    row, col = (torch.tensor([pair[end] % nodes for pair in entries], dtype=torch.long) for end in (0, 1))
    pattern, _ = CSR.from_entries(row, col, (nodes, nodes))
    actual, _ = pattern.within(torch.tensor(part))
    expected = [(r, c) for r, c in zip(pattern.row.tolist(), pattern.col.tolist(), strict=True) if part[r] == part[c]]
    assert list(zip(actual.row.tolist(), actual.col.tolist(), strict=True)) == expected
    assert actual.rowptr.dtype == actual.col.dtype == torch.int32


def test_stored_weights_are_read_once_for_many_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    builds = {
        "ours": lambda: random_model("graphsage", [6, 6]),
        "PyG's": lambda: Stack((6, 6), GCNConv).double(),
    }
    for name, build in builds.items():
        model = build().eval()
        (tmp_path / name).mkdir()
        actual = stored(model, build, tmp_path / name)
        read: list[int] = []
        blocks = StoredTensor.blocks
        with monkeypatch.context() as patch:
            patch.setattr(StoredTensor, "blocks", lambda t, of=blocks, to=read: to.append(t.numel()) or of(t))
            in_files = predict(actual, BATCH, Evaluation("parts", parts=6))
        assert sum(read) == sum(parameter.numel() for parameter in model.parameters() if parameter.dim() == 2)
        torch.testing.assert_close(in_files, predict(model, BATCH, Evaluation("parts", parts=6)))


def test_how_many_nodes_go_at_once(tmp_path: Path) -> None:
    batch, ours, theirs = whole_graph(GRAPH), random_model("graphsage", [64]).float(), Stack((64,), GCNConv)
    plenty = Budget(2**40)
    assert nodes_at_once(theirs, batch, plenty) == 1
    assert 100 < nodes_at_once(ours, batch, plenty) < 10**6
    for build in (lambda: random_model("graphsage", [64]).float(), lambda: Stack((64,), GCNConv)):
        (tmp_path / build().__class__.__name__).mkdir()
        actual = stored(build(), build, tmp_path / build().__class__.__name__)
        assert nodes_at_once(actual, batch, plenty) > 10**6
        reading = tensor._BLOCKS * tensor.BLOCK
        counts = [nodes_at_once(actual, batch, Budget(reading + more)) for more in (-5, 0, 2**20, 2**21)]
        assert counts[:2] == [1, 1]
        assert 50 < counts[2] < counts[3] <= 2 * counts[2] + 1
    assert Evaluation("parts", memory=2**20, parts=6).prepare(ours, batch).describe()["parts"] == 6


def test_chunks_of_nodes_are_larger_where_weights_are_read(tmp_path: Path) -> None:
    build = lambda: MODELS["gcn"](F, (2048, 2048), C)  # noqa: E731
    batch, model = random_batch(400), build().eval()
    batch.__dict__["x"] = batch.x.float()
    actual = stored(model, build, tmp_path)
    for device in (None, 2**34):
        budget = Budget(2**34, device)
        wide, narrow = (plan_layers(m, batch, budget) for m in (actual, model))
        assert wide.work > 1.4 * narrow.work
        assert plan_layers(actual, batch, Budget(2**29, device and 2**29)).work < narrow.work * 2
    with torch.no_grad():
        torch.testing.assert_close(predict(actual, batch, Evaluation("layers", 2**29)), whole(model, batch))
