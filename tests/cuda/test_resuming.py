"""A run that is resumed on a GPU, or on another device, goes on as if it had not been stopped."""

from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

from gistgnn import Saving
from tests.helpers.resuming import after

from .runs import close, fit, left, make

pytestmark = pytest.mark.cuda

OPTIMIZERS: dict[str, dict[str, Any]] = {
    "sgd": {},
    "adam": {"optimizer": "adam", "momentum": 0.0, "lr": 1e-4},
    "reset": {"optimizer_state": "reset"},
}
PATHS = [["cpu", "cuda", "cuda"], ["cuda", "cpu", "cpu"], ["cpu", "cuda", "cpu"]]


def interrupted(devices: list[str], kind: str, folder: Path, dropout: float = 0.0, **options: Any) -> dict[str, Tensor]:
    """A run that stops after every round, each of its rounds on the next device."""
    found: dict[str, Tensor] = {}
    for place, device in enumerate(devices):
        gist = make("gcn batch 2", device, folder, kind, dropout=dropout)
        stop = after(1) if place < len(devices) - 1 else []
        fit(gist, callbacks=stop, saving=Saving(folder / "checkpoints", resume=True), **options)
        found = left(gist)
        if kind == "disk":
            gist.theta.close()  # type: ignore[attr-defined]
    return found


@pytest.mark.parametrize("kind", ["memory", "host", "disk"])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_resumed_run_with_dropout_is_the_unbroken_one(kind: str, optimizer: str, tmp_path: Path) -> None:
    options = OPTIMIZERS[optimizer]
    unbroken = make("gcn batch 2", "cuda", tmp_path / "unbroken", kind, dropout=0.4)
    fit(unbroken, **options)
    expected = left(unbroken)
    resumed = interrupted(["cuda"] * 3, kind, tmp_path / "resumed", dropout=0.4, **options)
    close(resumed, expected)


@pytest.mark.parametrize("devices", PATHS)
@pytest.mark.parametrize("kind", ["memory", "host", "disk"])
def test_a_checkpoint_goes_on_on_another_device(kind: str, devices: list[str], tmp_path: Path) -> None:
    unbroken = make("gcn batch 2", "cpu", tmp_path / "unbroken", kind)
    fit(unbroken)
    close(interrupted(devices, kind, tmp_path / "resumed"), left(unbroken))
