"""Evaluation layer by layer equals the whole graph's forward pass for pieces of any size."""

import os
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gistgnn.evaluation import Evaluation
from gistgnn.evaluation.budget import Budget, layer_costs, least_bytes, plan_layers
from gistgnn.evaluation.by_layers import ByLayers, NodeFeatures
from gistgnn.evaluation.scores import predict
from gistgnn.nn import MODELS
from gistgnn.nn.convolutions import SAGELayer
from gistgnn.nn.gat import GATLayer
from gistgnn.nn.gnn import GNN
from gistgnn.sampling import Batch
from tests.helpers.refusals import full_disk, refused
from tests.nn.strategies import examples, widths

from .cases import random_batch, random_model, whole_graph_output

PLENTY = Budget(2**30)


def prepared(
    model: GNN, batch: Batch, budget: Budget = PLENTY, *, as_on_gpu: bool = False, **changes: object
) -> ByLayers:
    costs = layer_costs(model, batch, budget)
    if as_on_gpu:  # every block has a copy of its sources
        costs = [replace(layer, source=layer.source or 64) for layer in costs]
    plan = plan_layers(costs, batch, budget)
    return ByLayers(model, batch, costs, plan._replace(**changes))


def by_layers(model: GNN, batch: Batch, **changes: Any) -> torch.Tensor:
    with torch.no_grad():
        return prepared(model, batch, **changes).logits(model)


@examples
@given(
    st.data(),
    st.sampled_from(sorted(MODELS)),
    widths,
    st.sampled_from(["none", "layer", "batch", "elu"]),
)
def test_any_pieces_give_the_output_of_the_whole_graph(
    data: st.DataObject, name: str, widths: list[int], norm: str
) -> None:
    nodes = data.draw(st.integers(1, 12), "nodes")
    batch = random_batch(
        nodes,
        data.draw(st.integers(0, 40)),
        data.draw(st.integers(0, 99)),
        sparse=data.draw(st.booleans()),
    )
    model = random_model(name, widths, norm)
    pieces = {
        "in_file": data.draw(st.booleans(), "in_file"),
        "as_on_gpu": data.draw(st.booleans(), "as_on_gpu"),
        "work": data.draw(st.sampled_from([1, 500, 2000, 10**4, 10**6]), "work"),
    }
    torch.testing.assert_close(
        by_layers(model, batch, **pieces), whole_graph_output(model, batch), rtol=1e-10, atol=1e-10
    )


def test_scores_of_a_node_are_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = random_batch(30, 400)
    model = random_model("gat", [4, 4])
    nodes = list[int]()

    def counted(self: GATLayer, z: torch.Tensor) -> torch.Tensor:
        nodes.append(len(z))
        return computed(self, z)

    computed = GATLayer.scores_of_nodes
    monkeypatch.setattr(GATLayer, "scores_of_nodes", counted)
    by_layers(model, batch, work=1)
    assert sum(nodes) == 3 * 30
    assert len(nodes) > 3  # blocks of few nodes


def test_sums_of_a_layers_own_are_evaluated_or_refused() -> None:
    batch = random_batch()

    def twice_as_much(self: SAGELayer, z: torch.Tensor, adj: Any) -> torch.Tensor:
        return 2 * SAGELayer.aggregate(self, z, adj)

    def of_all_nodes(self: SAGELayer, z: torch.Tensor, adj: Any) -> torch.Tensor:
        return SAGELayer.aggregate(self, z, adj) - z.mean(dim=0)

    def over_two_hops(self: SAGELayer, z: torch.Tensor, adj: Any) -> torch.Tensor:
        return SAGELayer.aggregate(self, SAGELayer.aggregate(self, z, adj), adj)

    for aggregate in (twice_as_much, of_all_nodes, over_two_hops):
        model = random_model("graphsage", [4, 4])
        for conv in model.convs:
            conv.__class__ = type("Own", (SAGELayer,), {"aggregate": aggregate})
        expected = whole_graph_output(model, batch)
        for method, memory in (("layers", None), ("auto", 2**13)):
            if aggregate is not of_all_nodes or method == "auto":
                logits = predict(model, batch, Evaluation(method, memory))
                torch.testing.assert_close(logits, expected, rtol=1e-10, atol=1e-10)
            else:
                with refused("GraphSAGE", "choose the method parts, or whole"):
                    predict(model, batch, Evaluation(method, memory))


def test_any_budget_gives_the_output_of_the_whole_graph_on_announced_disk_space(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    class Counting(NodeFeatures):
        stored = most = size = 0

        @classmethod
        def empty(cls, nodes: int, width: int, batch: Batch, *, in_file: bool) -> NodeFeatures:
            features = super().empty(nodes, width, batch, in_file=in_file)
            features.size = nodes * width * 8 * in_file
            Counting.stored += features.size
            Counting.most = max(Counting.most, Counting.stored)
            assert not any(tmp_path.iterdir())
            return features

        def close(self) -> None:
            super().close()
            Counting.stored -= self.size
            self.size = 0

    monkeypatch.setattr("gistgnn.evaluation.by_layers.NodeFeatures", Counting)
    for name in MODELS:
        for sizes in ([4, 12], [12, 4, 4], [5]):
            batch = random_batch(20, 100, sparse=sizes == [5])
            model = random_model(name, sizes, "layer")
            # This computes the operators, so they need no memory of the budget.
            expected = whole_graph_output(model, batch)
            least = least_bytes(layer_costs(model, batch), batch)
            for memory in (least, 3 * least, 2**24):
                inference = prepared(model, batch, Budget(memory))
                disk = inference.describe()["disk_bytes"]
                assert not (disk and memory == 2**24), "enough memory needs no file"
                Counting.most = 0
                with torch.no_grad():
                    actual = inference.logits(model)
                torch.testing.assert_close(actual, expected, rtol=1e-10, atol=1e-10)
                assert Counting.stored == 0
                assert Counting.most == disk


def test_a_folder_that_cannot_be_written_and_a_full_disk_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = random_batch(400)
    model = random_model("gcn", [16, 16])
    with monkeypatch.context() as patch, refused("missing", "No such file or directory", "TMPDIR"):
        patch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
        by_layers(model, batch, in_file=True)

    monkeypatch.setattr(os, "posix_fallocate", full_disk)
    with refused("No space left on device", "TMPDIR", "allow more memory"):
        by_layers(model, batch, in_file=True)
