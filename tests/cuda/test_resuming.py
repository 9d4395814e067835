"""A run that is resumed on a GPU, or on another device, goes on as if it had not been stopped."""

from pathlib import Path

import pytest
import torch

from gistgnn import Saving
from tests.helpers.resuming import after

from .conftest import PRETENDED
from .runs import close, fit, left, make


def interrupted(devices: list[str], kind: str, folder: Path, **options: object) -> dict[str, torch.Tensor]:
    """A run that stops after every round, each of its rounds on the next device."""
    found = {}
    for place, device in enumerate(devices):
        gist = make("gcn batch 2", device, folder, kind)
        stop = after(1) if place < len(devices) - 1 else (lambda: False)
        fit(gist, stop=stop, saving=Saving(folder / "checkpoints", resume=True), **options)
        found = left(gist)
        if hasattr(gist.theta, "close"):
            gist.theta.close()
    return found


@pytest.mark.parametrize("kind", ["memory", "host", "disk"])
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_a_resumed_run_is_the_unbroken_one(gpu: str, kind: str, optimizer: str, tmp_path: Path) -> None:
    options = {"optimizer": optimizer, "momentum": 0.9 if optimizer == "sgd" else 0.0}
    unbroken = make("gcn batch 2", "cuda", tmp_path / "unbroken", kind)
    fit(unbroken, **options)
    resumed, expected = interrupted(["cuda"] * 3, kind, tmp_path / "resumed", **options), left(unbroken)
    close(resumed, expected)
    if gpu == PRETENDED:
        assert all(torch.equal(resumed[name], expected[name]) for name in expected)


@pytest.mark.parametrize("devices", [["cpu", "cuda", "cuda"], ["cuda", "cpu", "cpu"], ["cpu", "cuda", "cpu"]], ids=str)
@pytest.mark.parametrize("kind", ["memory", "host", "disk"])
def test_a_checkpoint_goes_on_on_another_device(gpu: str, kind: str, devices: list[str], tmp_path: Path) -> None:
    unbroken = make("gcn batch 2", "cpu", tmp_path / "unbroken", kind)
    fit(unbroken)
    close(interrupted(devices, kind, tmp_path / "resumed"), left(unbroken))
