"""Short runs on one device and on another, and what is compared of them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gistgnn import GIST, Result
from tests.helpers.models import every_model, tiny_graph
from tests.theta.stores import store, values

GRAPH = tiny_graph(48)
M, ROUNDS = 4, 3
# Adam makes a large step of a gradient that is zero but for rounding.
SETTINGS: dict[str, Any] = {
    "epochs": 2 * M * ROUNDS,
    "local_steps": 2,
    "lr": 0.05,
    "optimizer": "sgd",
    "momentum": 0.9,
    "optimizer_state": "carry",
    "evaluate_every": ROUNDS,
    "progress": False,
}
CLOSE = {"rtol": 1e-3, "atol": 1e-5}  # float32 after `ROUNDS` rounds, with other orders of sums


def make(model: str, device: str, folder: Path | None = None, kind: str = "memory", m: int = M) -> GIST:
    build, widths = every_model()[model]
    widths = 10 if isinstance(widths, int) else tuple(range(9, 9 + len(widths)))
    return GIST(build, widths, m, device=device, store=store(kind, folder or Path(), "float32"))


def fit(gist: GIST, steps: int = 1, **options: Any) -> Result:
    """`ROUNDS` rounds; ``steps``: those of an epoch."""
    settings = {**SETTINGS, **options}
    return gist.fit(GRAPH, **{**settings, "epochs": max(1, settings["epochs"] // steps)})


def left(gist: GIST) -> dict[str, Tensor]:
    """Θ and the carried moments on the host."""
    return {name: tensor.cpu() for name, tensor in values(gist.theta).items()}


def trained(model: str, device: str, folder: Path | None = None, kind: str = "memory", **options: Any) -> Any:
    gist = make(model, device, folder, kind)
    result = fit(gist, **options)
    assert result.progress.rounds >= ROUNDS
    return left(gist)


def close(found: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> None:
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        torch.testing.assert_close(found[name], tensor, **CLOSE, msg=lambda text, name=name: f"{name}: {text}")
