"""Short runs on one device and on another, and what is compared of them."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gistgnn import GIST, Result
from tests.helpers.models import OURS, every_model, tiny_graph
from tests.theta.stores import store, values

GRAPH = tiny_graph(48)
M = 4
ROUNDS = 3
# Adam makes a large step of a gradient that is zero but for rounding.
SETTINGS: dict[str, Any] = {
    "epochs": 2 * M * ROUNDS,
    "local_steps": 2,
    "lr": 0.05,
    "evaluate_every": ROUNDS,
}
SETTINGS |= {"optimizer": "sgd", "momentum": 0.9, "optimizer_state": "carry", "progress": False}
SAMPLING: dict[str, dict[str, Any]] = {
    "clusters": {"clusters": 8, "clusters_per_batch": 4, "method": "random"},
    "ladies": {"batch_size": 8, "nodes_per_layer": 12},
    "fastgcn": {"batch_size": 8, "nodes_per_layer": 12},
    "neighbor": {"batch_size": 8, "fanouts": 2},
    "saint-node": {"batch_size": 20},
    "saint-edge": {"batch_size": 20},
    "saint-rw": {"batch_size": 10, "walk_length": 2},
}
CLOSE = {"rtol": 1e-3, "atol": 1e-5}  # float32 after `ROUNDS` rounds, with other orders of sums


def make(
    model: str,
    device: str,
    folder: Path | None = None,
    kind: str = "memory",
    m: int = M,
    dropout: float = 0.0,
) -> GIST:
    """A new run of a model of `every_model`; with ``dropout``, of one of ours with batch norm."""
    build, widths = every_model()[model]
    if dropout:
        build = partial(OURS[model.split()[0]], dropout=dropout, norm="batch")
        widths = (39, 40)
    widths = 40 if isinstance(widths, int) else tuple(range(39, 39 + len(widths)))
    return GIST(build, widths, m, device=device, store=store(kind, folder or Path()))


def fit(gist: GIST, **options: Any) -> Result:
    """`ROUNDS` rounds, or more where an epoch has several steps."""
    return gist.fit(GRAPH, **{**SETTINGS, **options})


def left(gist: GIST) -> dict[str, Tensor]:
    """Θ and the carried moments on the host."""
    return {name: tensor.cpu() for name, tensor in values(gist.theta).items()}


def trained(
    model: str, device: str, folder: Path, kind: str = "memory", **options: Any
) -> dict[str, Tensor]:
    gist = make(model, device, folder, kind)
    result = fit(gist, **options)
    assert result.progress.rounds >= ROUNDS
    return left(gist)


def agree(model: str, folder: Path, **options: Any) -> None:
    """Train on the CPU and twice on the GPU.

    CUDA may sum in another order from run to run.
    """
    expected, actual = (
        trained(model, device, folder / device, **options) for device in ("cpu", "cuda")
    )
    close(actual, expected)
    close(trained(model, "cuda", folder / "again", **options), actual)


def close(actual: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> None:
    assert actual.keys() == expected.keys()
    for name, tensor in expected.items():
        torch.testing.assert_close(
            actual[name], tensor, **CLOSE, msg=lambda text, name=name: f"{name}: {text}"
        )
