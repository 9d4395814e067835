"""Every model, runner, sampler and store trains the Θ that the CPU trains, within rounding, and again the same."""

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
ALONE = [name for name, place in STORES.items() if not place.shared]  # one process can use them
OPTIONS: list[dict[str, Any]] = [
    {"clip_norm": 0.5},
    {"clip_norm": 0.5, "runner": "fused"},
    {"class_weights": "balanced", "label_smoothing": 0.1, "runner": "fused"},
    {"inductive": True},
    {"redraw_every": 2},
    {"schedule": "cosine"},
]


@pytest.mark.parametrize("model", MODELS)
def test_every_model(model: str, tmp_path: Path) -> None:
    agree(model, tmp_path)


@pytest.mark.parametrize("runner", RUNNERS)
@pytest.mark.parametrize("model", ["gat layer 2", "pyg gcn layer_norm cat", "gcn batch 2"])
def test_every_runner(runner: str, model: str, tmp_path: Path) -> None:
    agree(model, tmp_path, runner=runner)


@pytest.mark.parametrize("runner", ["auto", "fused"])
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_every_sampler(sampler: str, runner: str, tmp_path: Path) -> None:
    agree("graphsage layer 2", tmp_path, sampler=SAMPLERS[sampler](**SAMPLING[sampler]), runner=runner, epochs=12)


@pytest.mark.parametrize("kind", ALONE)
@pytest.mark.parametrize(("optimizer", "lr"), [("sgd", 0.05), ("adamw", 1e-4)])
def test_every_store(kind: str, optimizer: str, lr: float, tmp_path: Path) -> None:
    agree("gcn batch 2", tmp_path, kind=kind, optimizer=optimizer, momentum=0.0, lr=lr)


@pytest.mark.parametrize("options", OPTIONS)
def test_settings(options: dict[str, Any], tmp_path: Path) -> None:
    agree("graphsage layer 2", tmp_path, **options)


def resumed(devices: list[str], kind: str, folder: Path, dropout: float = 0.0, **options: Any) -> dict[str, Tensor]:
    """What a run leaves that stops after every round, each of its rounds on the next device."""
    found: dict[str, Tensor] = {}
    for place, device in enumerate(devices):
        gist = make("gcn batch 2", device, folder, kind, dropout=dropout)
        stop = after(1) if place < len(devices) - 1 else []
        fit(gist, callbacks=stop, saving=Saving(folder / "checkpoints", resume=True), **options)
        found = left(gist)
        if kind == "disk":
            gist.theta.close()  # type: ignore[attr-defined]
    return found


@pytest.mark.parametrize("kind", ALONE)
@pytest.mark.parametrize(
    "options", [{}, {"optimizer": "adam", "momentum": 0.0, "lr": 1e-4}, {"optimizer_state": "reset"}]
)
def test_a_resumed_run_with_dropout_is_the_unbroken_one(kind: str, options: dict[str, Any], tmp_path: Path) -> None:
    unbroken = make("gcn batch 2", "cuda", tmp_path / "unbroken", kind, dropout=0.4)
    fit(unbroken, **options)
    close(resumed(["cuda"] * 3, kind, tmp_path / "resumed", dropout=0.4, **options), left(unbroken))


@pytest.mark.parametrize("devices", [["cpu", "cuda", "cuda"], ["cuda", "cpu", "cpu"], ["cpu", "cuda", "cpu"]])
@pytest.mark.parametrize("kind", ALONE)
def test_a_checkpoint_goes_on_on_another_device(kind: str, devices: list[str], tmp_path: Path) -> None:
    unbroken = make("gcn batch 2", "cpu", tmp_path / "unbroken", kind)
    fit(unbroken)
    close(resumed(devices, kind, tmp_path / "resumed"), left(unbroken))
