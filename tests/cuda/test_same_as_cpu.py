"""Every model, runner, sampler and store trains the Θ that the CPU trains.

Θ is the same within rounding, also when it is trained again.
"""

from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

from gistgnn import Saving
from gistgnn.runners.registry import RUNNERS
from gistgnn.sampling.registry import SAMPLERS
from gistgnn.theta.registry import STORES
from tests.helpers.models import OURS, PYG, USERS
from tests.helpers.resuming import after

from .runs import SAMPLING, agree, close, fit, left, make

pytestmark = pytest.mark.cuda

MODELS = [f"{name} {norm} 2" for name in OURS for norm in ("layer", "batch")]
MODELS += [f"pyg {name} {norm} cat" for name in PYG for norm in ("layer_norm", "batch_norm")]
MODELS += list(USERS)
ALONE = list(STORES)
RUN_BY_ALL = ("gat layer 2", "gcn batch 2", "pyg gcn layer_norm cat")
SAMPLED = [
    {"sampler": SAMPLERS[name](**options), "epochs": 12} for name, options in SAMPLING.items()
]
ADAM = {"optimizer": "adam", "momentum": 0.0, "lr": 1e-4}
OPTIONS: list[dict[str, Any]] = [
    {"clip_norm": 0.5},
    {"clip_norm": 0.5, "runner": "fused"},
    {"class_weights": "balanced", "label_smoothing": 0.1, "runner": "fused"},
    {"inductive": True},
    {"optimizer_state": "carry"},
    {"schedule": "cosine"},
    *({**options, "runner": runner} for options in SAMPLED for runner in ("auto", "fused")),
]
RUNS: list[tuple[str, dict[str, Any]]] = [
    *((model, {}) for model in MODELS),
    *((model, {"runner": runner}) for model in RUN_BY_ALL for runner in RUNNERS),
    *(("gcn batch 2", {"kind": kind, "momentum": 0.0}) for kind in ALONE),
    *(
        ("gcn layer 2", {"kind": kind, "optimizer": "adamw", "momentum": 0.0, "lr": 1e-4})
        for kind in ALONE
    ),
    *(("graphsage layer 2", options) for options in OPTIONS),
]


@pytest.mark.parametrize(("model", "options"), RUNS, ids=str)
def test_a_run_on_a_gpu_trains_the_theta_of_the_cpu(
    model: str, options: dict[str, Any], tmp_path: Path
) -> None:
    agree(model, tmp_path, **options)


def resumed(
    devices: list[str], kind: str, folder: Path, dropout: float = 0.0, **options: Any
) -> dict[str, Tensor]:
    """What a run leaves that stops after every round, each of its rounds on the next device."""
    for number, device in enumerate(devices):
        gist = make("gcn batch 2", device, folder, kind, dropout=dropout)
        stop = after(1) if number < len(devices) - 1 else []
        fit(gist, callbacks=stop, saving=Saving(folder / "checkpoints", resume=True), **options)
        state = left(gist)
        if kind == "disk":
            gist.theta.place.close()  # type: ignore[attr-defined]
    return state


@pytest.mark.parametrize("kind", ALONE)
@pytest.mark.parametrize(
    "options", [{}, {"optimizer": "adam", "momentum": 0, "lr": 1e-4}, {"optimizer_state": "reset"}]
)
def test_a_resumed_run_with_dropout_is_the_unbroken_one(
    kind: str, options: dict[str, Any], tmp_path: Path
) -> None:
    unbroken = make("gcn batch 2", "cuda", tmp_path / "unbroken", kind, dropout=0.4)
    fit(unbroken, **options)
    close(resumed(["cuda"] * 3, kind, tmp_path / "resumed", dropout=0.4, **options), left(unbroken))


@pytest.mark.parametrize(
    "devices", [["cpu", "cuda", "cuda"], ["cuda", "cpu", "cpu"], ["cpu", "cuda", "cpu"]]
)
@pytest.mark.parametrize("kind", ALONE)
def test_a_checkpoint_goes_on_on_another_device(
    kind: str, devices: list[str], tmp_path: Path
) -> None:
    unbroken = make("gcn batch 2", "cpu", tmp_path / "unbroken", kind)
    fit(unbroken)
    close(resumed(devices, kind, tmp_path / "resumed"), left(unbroken))
