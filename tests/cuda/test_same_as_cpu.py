"""Every model, runner, sampler and store trains the Θ that the CPU trains, within rounding, and again the same."""

from pathlib import Path
from typing import Any

import pytest

from gistgnn.runners.registry import RUNNERS
from gistgnn.sampling.registry import SAMPLERS
from gistgnn.theta.registry import STORES
from tests.helpers.models import OURS, PYG, USERS

from .runs import SAMPLING, agree

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
def test_every_model(model: str, tmp_path: Path, record_property: Any) -> None:
    agree(model, tmp_path, record_property)


@pytest.mark.parametrize("runner", RUNNERS)
@pytest.mark.parametrize("model", ["gat layer 2", "pyg gcn layer_norm cat", "gcn batch 2"])
def test_every_runner(runner: str, model: str, tmp_path: Path, record_property: Any) -> None:
    agree(model, tmp_path, record_property, runner=runner)


@pytest.mark.parametrize("runner", ["auto", "fused"])
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_every_sampler(sampler: str, runner: str, tmp_path: Path, record_property: Any) -> None:
    options = {"sampler": SAMPLERS[sampler](**SAMPLING[sampler]), "runner": runner, "epochs": 12}
    agree("graphsage layer 2", tmp_path, record_property, **options)


@pytest.mark.parametrize("kind", ALONE)
@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_every_store(kind: str, optimizer: str, tmp_path: Path, record_property: Any) -> None:
    options = {"optimizer": optimizer, "momentum": 0.0, "lr": 1e-4 if optimizer == "adamw" else 0.05}
    agree("gcn batch 2", tmp_path, record_property, kind=kind, **options)


@pytest.mark.parametrize("options", OPTIONS)
def test_settings(options: dict[str, Any], tmp_path: Path) -> None:
    agree("graphsage layer 2", tmp_path, **options)
