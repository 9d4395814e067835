"""The in-turn runner, "auto", and what all runners share.

"auto" leaves the same as the in-turn runner, bit for bit, and makes each batch once.
"""

import gc
from collections.abc import Callable, Generator
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch
import torch_geometric.nn as pyg
from torch import nn

from gistgnn import GIST, DivergedError
from gistgnn.graphs.clustering import cluster
from gistgnn.layout.axes import named_tensors
from gistgnn.nn import MODELS
from gistgnn.nn.gnn import EnsembleModel
from gistgnn.runners.in_turn import BatchByBatch, InTurn
from gistgnn.runners.registry import RUNNERS, make_runner
from gistgnn.sampling import (
    Batch,
    ClusterBatches,
    FullGraph,
    NeighborSampling,
    SaintNodeSampling,
    Sampler,
    forward,
    training_subgraph,
)
from gistgnn.schedule import StepRange
from gistgnn.settings import Training
from gistgnn.subtrain import backward, loss_of, subtrain
from gistgnn.theta import Store
from gistgnn.utils.random_streams import Stream
from tests.helpers.models import OURS, PYG, Case, F, some_models, tiny_graph
from tests.helpers.refusals import refused

from .comparing import FULL, WHOLE, in_double, of_inputs, trained

TRAINING = Training(9, local_steps=3, lr=0.05)
PARTS = cluster(WHOLE.edge_index, 24, 6, "random")
CLUSTERS = ClusterBatches(WHOLE, PARTS, 3)
INDEPENDENT = ClusterBatches(WHOLE, PARTS, 2).with_independent_batches()
FEW_NODES = Batch(WHOLE.x, WHOLE.edges, WHOLE.y, WHOLE.loss_nodes[:2])
FEW = ClusterBatches(FEW_NODES, cluster(WHOLE.edge_index, 24, 4, "random"), 1)


class WholeNorm(torch.optim.SGD):
    """An optimiser of the user's own: what it does to one parameter depends on the others."""

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        parameters = [
            p for group in self.param_groups for p in group["params"] if p.grad is not None
        ]
        length = torch.stack([p.grad.norm() for p in parameters]).norm()
        for p in parameters:
            p.grad.div_(length + 1.0)
        super().step()


def dropping(name: str = "gcn", norm: str = "none") -> Case:
    return partial(OURS[name], dropout=0.4, norm=norm), (9, 7)


MOMENTUM = {"optimizer": "sgd", "momentum": 0.9, "optimizer_state": "carry", "clip_norm": 0.05}
BF16 = {"optimizer": "adamw", "weight_decay": 0.1, "precision": "bf16"}
CASES: dict[str, tuple[Case, int, Sampler, dict[str, Any]]] = {
    "adam": (dropping(), 3, CLUSTERS, {}),
    "carried": (dropping("graphsage", "batch"), 3, CLUSTERS, {"optimizer_state": "carry"}),
    "momentum": (dropping("gat"), 2, FULL, MOMENTUM),
    "bf16": (dropping("gin"), 4, CLUSTERS, BF16),
    "own optimiser": (
        dropping(),
        3,
        CLUSTERS,
        {"optimizer": WholeNorm, "optimizer_state": "carry"},
    ),
    "few training nodes": (dropping(), 3, FEW, {}),
    "pyg": ((PYG["gcn"], 12), 3, CLUSTERS, {"optimizer_state": "carry"}),
    "a user's": (some_models()["residual"], 3, FULL, {"schedule": "step"}),
    "independent batches": (dropping(), 3, INDEPENDENT, {}),
    "inputs of its own": ((of_inputs, (F, 8)), 2, FULL, {}),
}


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", CASES)
def test_auto_equals_the_in_turn_runner_bit_for_bit(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (build, widths), m, sampler, options = CASES[name]
    training = Training(9, **options)
    axis = 0 if name == "inputs of its own" else None
    in_turn = Mock(side_effect=InTurn)
    monkeypatch.setattr("gistgnn.runners.in_turn.InTurn", in_turn)
    one, expected = (
        trained(runner, GIST(build, widths, m, input_axis=axis), sampler, training, 3)
        for runner in (BatchByBatch(), InTurn())
    )
    torch.testing.assert_close(one, expected, rtol=0, atol=0)
    assert in_turn.called is (axis is not None or sampler is INDEPENDENT)


class Counting(FullGraph):
    """Counts the batches that it makes.

    It also counts the tensors that there are before the fourth and the ninth batch.
    """

    made = 0

    def batches(self, first_step: int, steps: int) -> Generator[Batch, None, None]:
        self.counts: list[int] = []
        for k, batch in enumerate(super().batches(first_step, steps)):
            self.made += 1
            if k in (3, 8):
                self.counts.append(sum(type(item) is torch.Tensor for item in gc.get_objects()))
            yield batch


@pytest.mark.parametrize("kind", ["memory", "disk"])
def test_batches_are_made_once_where_all_sub_gcns_are_in_memory(tmp_path: Path, kind: str) -> None:
    sampler = Counting(WHOLE)
    runner = BatchByBatch()
    gist = GIST(OURS["gcn"], (8, 7), 2, store=Store.in_run(kind, tmp_path / "theta"))
    runner(gist.begin_round(), sampler, Training(9), StepRange(0, 3, 9), 0)
    assert sampler.made == (3 if kind == "memory" else 6)


def values(module: nn.Module) -> list[list[float]]:
    return [t.tolist() for t in named_tensors(module).values()]


def test_a_sub_gcn_trained_alone_is_as_one_trained_with_others() -> None:
    """Where and after what a sub-GCN trains does not matter, dropout included."""
    together, alone = (GIST(*dropping(), 3).begin_round() for _ in range(2))
    InTurn()(together, FULL, TRAINING, StepRange(0, 3, 9), seed=5)
    torch.manual_seed(77)
    for i in (2, 0, 1):
        with Stream(5, "dropout", 0, i):
            optimizer = alone.make_optimizer(TRAINING, [alone.subs[i]])
            subtrain(alone.subs[i], optimizer, FULL.batches(0, 3), TRAINING, StepRange(0, 3, 9))
        assert values(alone.subs[i]) == values(together.subs[i])


@pytest.mark.parametrize("runner", RUNNERS)
def test_dropout_differs_by_round_sub_gcn_and_seed(runner: str) -> None:

    def left(number: int, seed: int) -> list[list[list[float]]]:
        gist = GIST(lambda w: OURS["gcn"](w, dropout=0.5), (9, 7), 2, whole=[0, 1])
        gist.next_round = number
        round_ = gist.begin_round()
        make_runner(runner)(round_, FULL, TRAINING, StepRange(0, 3, 9), seed)
        return [values(sub) for sub in round_]

    runs = [*left(0, 0), *left(1, 0), *left(0, 1)]
    assert all(a != b for k, a in enumerate(runs) for b in runs[:k])
    torch.manual_seed(9)
    assert left(1, 0) == runs[2:4]


def test_the_loss_is_the_mean_over_steps_and_sub_gcns() -> None:
    round_, again = (
        GIST(OURS["gcn"], (9, 7), 3, width_scaling="none").begin_round() for _ in range(2)
    )
    metrics = round_.aggregate(InTurn()(round_, FULL, TRAINING, StepRange(0, 2, 9), seed=0))
    losses = []
    for sub in again:
        optimizer = torch.optim.Adam(sub.parameters(), lr=TRAINING.lr)
        for _ in range(2):
            optimizer.zero_grad()
            loss = loss_of(forward(sub, WHOLE, nodes=WHOLE.loss_nodes), WHOLE)
            losses.append(float(loss))
            loss.backward()
            optimizer.step()
    assert metrics["loss"] == pytest.approx(sum(losses) / len(losses), rel=1e-6)


CLASSES = 60  # more than the last hidden layer has features


def many_classes(name: str) -> Batch:
    """A batch of float64 with scores for many classes, of which the loss is on some nodes."""
    full_batch = replace(WHOLE, x=WHOLE.x.double(), y=torch.arange(24) % CLASSES, product=None)
    if name == "classes":
        return full_batch
    if name in ("labels", "numbers"):
        return replace(full_batch, y=torch.rand(24, CLASSES).round().double())
    if name == "inductive":
        return in_double(training_subgraph(tiny_graph(60)))
    samplers: dict[str, Callable[[], Sampler]] = {
        "saint": lambda: SaintNodeSampling(batch_size=12).sampler(full_batch, 0, layers=3),
        "neighbor": lambda: NeighborSampling(2, batch_size=8).sampler(full_batch, 0, layers=3),
        "clusters": lambda: ClusterBatches(full_batch, PARTS, 3),
    }
    return next(iter(samplers[name]().batches(0, 1)))


SEEN = ("classes", "labels", "numbers", "inductive", "saint", "neighbor", "clusters")
BY_LAYERS = ("neighbor", "pyg")  # PyG's model takes no batch by layers
MODELS_ON_BATCHES = [pair for pair in product(SEEN, (*MODELS, "pyg")) if pair != BY_LAYERS]


@pytest.mark.parametrize(("batch", "name"), MODELS_ON_BATCHES)
@pytest.mark.parametrize("dropout", [0.0, 0.4])
def test_a_step_computes_the_loss_of_the_output_of_all_nodes(
    batch: str, name: str, dropout: float
) -> None:
    seen = many_classes(batch)
    training = Training(9, loss="mse" if batch == "numbers" else None)
    if name == "pyg":
        model: nn.Module = pyg.models.GCN(F, 8, 3, CLASSES, dropout=dropout).double()
    else:
        model = MODELS[name](F, (8, 6), CLASSES, dropout=dropout, norm="layer").double()
    torch.manual_seed(4)
    expected = loss_of(forward(model, seen)[seen.loss_nodes], seen, training)
    gradients = torch.autograd.grad(expected, list(model.parameters()))
    drawn = torch.rand(3)
    torch.manual_seed(4)
    loss = backward(model, seen, training)
    assert torch.equal(torch.rand(3), drawn)
    actual = [loss, *(parameter.grad for parameter in model.parameters())]
    torch.testing.assert_close(actual, [expected.detach(), *gradients], rtol=1e-6, atol=1e-9)


def test_an_ensemble_gives_the_output_of_some_nodes() -> None:
    batch = many_classes("classes")
    ensemble = EnsembleModel([MODELS["graphsage"](F, (8,), CLASSES).double() for _ in range(2)])
    actual = forward(ensemble, batch, nodes=batch.loss_nodes)
    torch.testing.assert_close(actual, forward(ensemble, batch)[batch.loss_nodes])


@pytest.mark.parametrize("runner", RUNNERS)
def test_no_tensor_of_a_step_is_kept_for_the_round(runner: str) -> None:
    sampler = Counting(WHOLE)
    round_ = GIST(OURS["gcn"], (9, 9), 3).begin_round()
    make_runner(runner)(round_, sampler, TRAINING, StepRange(0, 9, 9), 0)
    assert sampler.counts[0] == sampler.counts[1]


@pytest.mark.parametrize("runner", RUNNERS)
def test_a_loss_that_is_not_finite_names_the_first_sub_gcn(runner: str) -> None:
    gist = GIST(OURS["gcn"], (9,), 4)  # blocks of 3, 2, 2, 2
    before = gist.theta.copy()
    round_ = gist.begin_round()
    with torch.no_grad():
        for broken in (2, 3):
            named_tensors(round_.subs[broken])["convs.1.bias"].fill_(float("inf"))
    losses = make_runner(runner)(round_, FULL, TRAINING, StepRange(0, 2, 9), 0)
    # In turn, the sub-GCNs after the first broken one are not trained for nothing.
    assert runner != "in-turn" or losses.keys() == {0, 1, 2}
    with refused("round 1", "loss of sub-GCN 2", error=DivergedError):
        round_.aggregate(losses)
    assert all(
        torch.equal(tensor, before[name]) for name, tensor in gist.theta.place.tensors.items()
    )
