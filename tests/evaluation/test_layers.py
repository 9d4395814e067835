"""Evaluation layer by layer equals the whole graph's forward pass for pieces of any size."""

import os
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gistgnn.evaluation.budget import Budget, LayerCosts, LayerPlan, plan_layers
from gistgnn.evaluation.by_layers import ByLayers, NodeFeatures, required_nodes
from gistgnn.nn import MODELS
from gistgnn.nn.convolutions import SAGELayer
from gistgnn.nn.gnn import GNN
from gistgnn.sampling import Batch
from tests.helpers.refusals import full_disk, refused
from tests.nn.strategies import examples, widths

from .cases import random_batch, random_model, whole

PLENTY = Budget(2**30)


def everything(model: GNN, batch: Batch, plan: LayerPlan) -> ByLayers:
    return ByLayers(batch, plan, required_nodes(model.convs, batch.adj, None))


def by_layers(model: GNN, batch: Batch, **changes: object) -> torch.Tensor:
    with torch.no_grad():
        return everything(model, batch, replace(plan_layers(model, batch, PLENTY), **changes)).logits(model)


@examples
@given(st.data(), st.sampled_from(sorted(MODELS)), widths, st.sampled_from(["none", "layer", "batch", "elu"]))
def test_any_pieces_give_the_whole(data: st.DataObject, name: str, widths: list[int], norm: str) -> None:
    nodes = data.draw(st.integers(1, 12), "nodes")
    batch = random_batch(
        nodes, data.draw(st.integers(0, 40)), data.draw(st.integers(0, 99)), sparse=data.draw(st.booleans())
    )
    model = random_model(name, widths, norm)
    pieces = {
        "in_file": data.draw(st.booleans(), "in_file"),
        "columns": data.draw(st.integers(1, 24), "columns"),
        "work": data.draw(st.sampled_from([1, 500, 2000, 10**6]), "work"),
    }
    torch.testing.assert_close(by_layers(model, batch, **pieces), whole(model, batch), rtol=1e-10, atol=1e-10)


def test_sums_of_a_layers_own_are_evaluated_or_refused() -> None:
    batch = random_batch()
    both = {"aggregate": lambda self, z, adj: 2 * SAGELayer.aggregate(self, z, adj)}
    both["aggregate_block"] = lambda self, *given: 2 * SAGELayer.aggregate_block(self, *given)
    for own in (both, {"aggregate": both["aggregate"]}):
        model = random_model("graphsage", [4, 4])
        for conv in model.convs:
            conv.__class__ = type("Twice", (SAGELayer,), own)
        if own is both:
            torch.testing.assert_close(by_layers(model, batch), whole(model, batch), rtol=1e-10, atol=1e-10)
        else:
            with refused("Twice has the aggregate of Twice, but the aggregate_block of Propagation: define both"):
                by_layers(model, batch)


def test_any_budget_gives_the_whole_on_announced_disk_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    class Counting(NodeFeatures):
        held = most = size = 0

        @classmethod
        def empty(cls, batch: Batch, plan: LayerPlan, width: int, nodes: int, *given: object) -> NodeFeatures:
            found = super().empty(batch, plan, width, nodes, *given)
            found.size = nodes * width * 8 * plan.in_file
            Counting.held += found.size
            Counting.most = max(Counting.most, Counting.held)
            assert not any(tmp_path.iterdir())
            return found

        def close(self) -> None:
            super().close()
            Counting.held, self.size = Counting.held - self.size, 0

    monkeypatch.setattr("gistgnn.evaluation.by_layers.NodeFeatures", Counting)
    for name in MODELS:
        for sizes in ([4, 12], [12, 4, 4], [5]):
            batch, model = random_batch(20, 100, sparse=sizes == [5]), random_model(name, sizes, "layer")
            expected = whole(model, batch)  # computes the operators, so they need no memory of the budget
            costs = LayerCosts(model, batch, 0)
            for memory in (costs.least, 3 * costs.least, 2**24):
                plan = plan_layers(model, batch, Budget(memory))
                assert plan.columns >= costs.narrowest
                assert not (plan.in_file and memory == 2**24), "enough memory needs no file"
                Counting.most = 0
                with torch.no_grad():
                    actual = everything(model, batch, plan).logits(model)
                torch.testing.assert_close(actual, expected, rtol=1e-10, atol=1e-10)
                assert Counting.held == 0
                assert Counting.most <= plan.disk
                assert plan.disk <= 2 * Counting.most


def test_a_folder_that_cannot_be_written_and_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    batch, model = random_batch(400), random_model("gcn", [16, 16])
    with monkeypatch.context() as patch, refused("missing", "No such file or directory", "TMPDIR"):
        patch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
        by_layers(model, batch, in_file=True)

    monkeypatch.setattr(os, "posix_fallocate", full_disk)
    with refused("No space left on device", "TMPDIR", "allow more memory"):
        by_layers(model, batch, in_file=True)
