"""Every model, runner, sampler and store trains the Θ that the CPU trains, within rounding, and again the same."""

from pathlib import Path
from typing import Any

import pytest
import torch

from gistgnn.runners.registry import RUNNERS
from gistgnn.sampling.registry import SAMPLERS
from gistgnn.theta.registry import STORES
from tests.helpers.models import OURS, PYG, USERS

from .conftest import PRETENDED
from .runs import close, trained

MODELS = [f"{name} {norm} 2" for name in OURS for norm in ("layer", "batch")]
MODELS += [f"pyg {name} {norm} cat" for name in PYG for norm in ("layer_norm", "batch_norm")]
MODELS += list(USERS)
FEW = ["gcn batch 2", "gat layer 2", "pyg graphsage layer_norm cat"]  # that see most of our code
ALONE = [name for name, place in STORES.items() if place.alone]  # one process can use them
SETTINGS: dict[str, dict[str, Any]] = {
    "clusters": {"clusters": 8, "clusters_per_batch": 4, "method": "random"},
    "ladies": {"batch_size": 8, "nodes_per_layer": 12},
    "fastgcn": {"batch_size": 8, "nodes_per_layer": 12},
    "neighbor": {"batch_size": 8, "fanouts": 2},
    "saint-node": {"batch_size": 20},
    "saint-edge": {"batch_size": 20},
    "saint-rw": {"batch_size": 10, "walk_length": 2},
}


def agree(gpu: str, model: str, folder: Path, record: Any = None, **options: Any) -> None:
    """Train on the CPU, and twice on the GPU."""
    places = [folder / name for name in ("cpu", "one", "other")]
    expected, found, again = (
        trained(model, device, place, **options) for device, place in zip(("cpu", "cuda", "cuda"), places, strict=True)
    )
    close(found, expected)
    close(again, found)
    same = all(torch.equal(again[name], found[name]) for name in found)
    assert same or gpu != PRETENDED
    if record:
        record("bit_for_bit", same)  # CUDA may sum in another order from run to run


@pytest.mark.parametrize("model", MODELS)
def test_every_model(gpu: str, model: str, tmp_path: Path, record_property: Any) -> None:
    agree(gpu, model, tmp_path, record_property)


@pytest.mark.parametrize("model", FEW)
@pytest.mark.parametrize("runner", RUNNERS)
def test_every_runner(gpu: str, runner: str, model: str, tmp_path: Path, record_property: Any) -> None:
    agree(gpu, model, tmp_path, record_property, runner=runner)


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("runner", ["auto", "fused"])
def test_every_sampler(gpu: str, sampler: str, runner: str, tmp_path: Path, record_property: Any) -> None:
    sampling = SAMPLERS[sampler](**SETTINGS[sampler])
    agree(gpu, "graphsage layer 2", tmp_path, record_property, sampler=sampling, runner=runner)


@pytest.mark.parametrize("options", [{}, {"optimizer": "adamw", "lr": 1e-4}, {"optimizer_state": "reset"}])
@pytest.mark.parametrize("kind", ALONE)
def test_every_store(gpu: str, kind: str, options: dict[str, Any], tmp_path: Path, record_property: Any) -> None:
    agree(gpu, "gcn batch 2", tmp_path, record_property, kind=kind, momentum=0.0 if options else 0.9, **options)


@pytest.mark.parametrize(
    "options",
    [
        {"clip_norm": 0.5},
        {"clip_norm": 0.5, "runner": "fused"},
        {"class_weights": "balanced", "label_smoothing": 0.1, "runner": "fused"},
        {"inductive": True},
        {"redraw_every": 2},
        {"schedule": "cosine"},
    ],
    ids=str,
)
def test_settings(gpu: str, options: dict[str, Any], tmp_path: Path) -> None:
    agree(gpu, "graphsage layer 2", tmp_path, **options)
