"""The runner "auto" leaves what the in-turn runner leaves, bit for bit, and makes each batch once."""

from collections.abc import Generator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from gistgnn import GIST, DivergedError, Saving
from gistgnn.graphs.clustering import cluster
from gistgnn.layout.axes import named_tensors
from gistgnn.nn import GCN
from gistgnn.runners.auto import Auto
from gistgnn.runners.in_turn import InTurn
from gistgnn.sampling import Batch, ClusterBatches, FullGraph, Sampler
from gistgnn.schedule import StepRange
from gistgnn.settings import Training
from gistgnn.theta.registry import StoreName
from gistgnn.theta.store import Store
from gistgnn.utils.random_streams import Stream, torch_stream
from tests.helpers.models import OURS, PYG, C, Case, F, some_models, tiny_graph
from tests.helpers.refusals import refused
from tests.helpers.resuming import after, make, state
from tests.helpers.resuming import fit as fit_resumable

from .comparing import FULL, WHOLE, trained

CLUSTERS = ClusterBatches(WHOLE, cluster(WHOLE.edge_index, 24, 6, "random"), 3)
FEW = ClusterBatches(
    Batch(WHOLE.x, WHOLE.edges, WHOLE.y, WHOLE.loss_nodes[:2]), cluster(WHOLE.edge_index, 24, 4, "random"), 1
)


class WholeNorm(torch.optim.SGD):
    """An optimiser of the user's own: what it does to one parameter depends on the others."""

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        parameters = [p for group in self.param_groups for p in group["params"] if p.grad is not None]
        length = torch.stack([p.grad.norm() for p in parameters]).norm()
        for p in parameters:
            p.grad.div_(length + 1.0)
        super().step()


def dropping(name: str = "gcn", norm: str = "none") -> Case:
    return partial(OURS[name], dropout=0.4, norm=norm), (9, 7)


CASES: dict[str, tuple[Case, int, Sampler, dict[str, Any]]] = {
    "adam": (dropping(), 3, CLUSTERS, {}),
    "carried": (dropping("graphsage", "batch"), 3, CLUSTERS, {"optimizer_state": "carry"}),
    "momentum": (
        dropping("gat"),
        2,
        FULL,
        {"optimizer": "sgd", "momentum": 0.9, "optimizer_state": "carry", "clip_norm": 0.05},
    ),
    "bf16": (dropping("gin"), 4, CLUSTERS, {"optimizer": "adamw", "weight_decay": 0.1, "precision": "bf16"}),
    "own optimiser": (dropping(), 3, CLUSTERS, {"optimizer": WholeNorm, "optimizer_state": "carry"}),
    "few training nodes": (dropping(), 3, FEW, {}),
    "pyg": ((PYG["gcn"], 12), 3, CLUSTERS, {"optimizer_state": "carry"}),
    "a user's": (some_models()["residual"], 3, FULL, {"schedule": "step"}),
}


@pytest.mark.parametrize("name", CASES)
def test_it_equals_the_in_turn_runner_bit_for_bit(name: str) -> None:
    (build, widths), m, sampler, options = CASES[name]
    training = Training(9, **options)
    one, expected = (trained(runner, GIST(build, widths, m), sampler, training, 3) for runner in (Auto(), InTurn()))
    assert one[0].keys() == expected[0].keys()
    assert all(torch.equal(one[0][key], tensor) for key, tensor in expected[0].items())
    assert one[1] == expected[1]


class Counting(FullGraph):
    """Counts the batches that it makes."""

    made = 0

    def batches(self, first_step: int, steps: int) -> Generator[Batch, None, None]:
        for batch in super().batches(first_step, steps):
            self.made += 1
            yield batch


@pytest.mark.parametrize("kind", ["memory", "disk"])
def test_batches_are_made_once_where_all_sub_gcns_are_in_memory(tmp_path: Path, kind: StoreName) -> None:
    sampler, runner = Counting(WHOLE), Auto()
    gist = GIST(OURS["gcn"], (8, 7), 2, store=Store("disk", tmp_path / "theta") if kind == "disk" else kind)
    runner(gist.begin_round(), sampler, Training(9), StepRange(0, 3, 9), 0)
    assert runner.together is (kind == "memory")
    assert sampler.made == (3 if kind == "memory" else 6)


def test_sub_gcns_with_other_input_features_train_in_turn() -> None:
    def left(runner: Auto | InTurn) -> dict[str, Tensor]:
        return trained(runner, GIST(lambda w: GCN(w[0], w[1:], C), (F, 8), 2, input_axis=0), FULL, Training(9))[0]

    auto = Auto()
    found, expected = left(auto), left(InTurn())
    assert all(torch.equal(found[key], tensor) for key, tensor in expected.items())
    assert auto.together is False


def test_independent_batches_train_in_turn() -> None:
    whole = cluster(WHOLE.edge_index, 24, 6, "random")
    found = [
        trained(runner, GIST(*dropping(), 3), ClusterBatches(WHOLE, whole, 2, independent=True), Training(9), 3)
        for runner in (Auto(), InTurn())
    ]
    assert all(torch.equal(found[0][0][key], tensor) for key, tensor in found[1][0].items())


@pytest.mark.parametrize("state_of", ["carry", "reset"])
def test_a_run_is_the_same_resumed_and_in_turn(tmp_path: Path, state_of: str) -> None:
    options: dict[str, Any] = {"optimizer_state": state_of}
    in_turn, unbroken, resumed = make(), make(), make()
    expected = state(in_turn, fit_resumable(in_turn, runner="in-turn", **options))
    assert state(unbroken, fit_resumable(unbroken, runner="auto", **options)) == expected
    saving = Saving(tmp_path / "checkpoints", resume=True)
    fit_resumable(make(), runner="auto", callbacks=after(2), saving=saving, **options)
    assert state(resumed, fit_resumable(resumed, runner="auto", saving=saving, **options)) == expected


def test_it_is_the_default() -> None:
    result = GIST(OURS["gcn"], (8,), 2).fit(tiny_graph(), epochs=4, progress=False)
    assert result.config["runner"] == "auto"


def test_a_loss_that_is_not_finite_names_the_first_sub_gcn() -> None:
    round_ = GIST(OURS["gcn"], (8,), 4).begin_round()
    with torch.no_grad():
        for broken in (2, 3):
            named_tensors(round_.subs[broken])["convs.1.bias"].fill_(float("inf"))
    losses = Auto()(round_, FULL, Training(9), StepRange(0, 2, 9), 0)
    with refused("round 1", "loss of sub-GCN 2", error=DivergedError):
        round_.aggregate(losses)


def test_streams_go_on_where_they_were_left() -> None:
    with torch_stream(3, "dropout", 1, 2):
        expected = torch.rand(4).tolist()
    before = torch.get_rng_state()
    stream, other = Stream(3, "dropout", 1, 2), Stream(3, "dropout", 1, 3)
    found = []
    for _ in range(4):
        with stream:
            found += torch.rand(1).tolist()
        with other:
            torch.rand(5)
    assert found == expected
    assert torch.equal(torch.get_rng_state(), before)
