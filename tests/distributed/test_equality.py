"""Wherever the sub-GCNs train and Θ lies, it ends up the same, bit for bit."""

from functools import cache, partial
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from gistgnn import GIST
from gistgnn.distributed import Ranks, load_on_ranks
from gistgnn.fit.result import Result
from gistgnn.runners.registry import RUNNERS
from gistgnn.sampling import ClusterSampling, LadiesSampling, SaintWalkSampling
from gistgnn.theta.registry import SHARES, STORES, Store
from tests.helpers.edges import MODELS as EDGE_MODELS
from tests.helpers.edges import edge_graph, only
from tests.helpers.fitting import quiet
from tests.helpers.models import every_model, tiny_graph

from .launch import on_ranks

SETTINGS = {"epochs": 24, "local_steps": 2, "lr": 0.05, "progress": False}
# Adam makes a large step of a gradient that is zero but for rounding.
BY_SGD = {**SETTINGS, "optimizer": "sgd", "momentum": 0.9, "optimizer_state": "carry"}
Case = tuple[str, tuple[int, ...], int, dict[str, Any]]
"""The model, its widths, m, and the settings that are not those of `SETTINGS`."""
CARRY = {"optimizer_state": "carry"}
RESET = {"optimizer_state": "reset"}
CLUSTERS, OWN_BATCHES = (
    ClusterSampling(4, 2, "random", batches=kind) for kind in ("shared", "independent")
)
RICH = {"dropout": 0.4, "epochs": 14, "schedule": "cosine", **CARRY}
"""Seven steps of each of four sub-GCNs on `CLUSTERS`, so the last of four rounds is shorter."""
CASES: list[Case] = [
    ("gcn batch 2", (9, 10), 4, CARRY),
    ("gcn batch 2", (9, 10), 8, RESET),
    ("gat none 2", (9, 10), 8, RESET),
    ("residual", (9, 10), 4, CARRY),
    ("features", (9,), 4, CARRY),
    ("jumping over x", (9, 10), 4, CARRY),
    ("pyg gin batch_norm cat", (10,), 4, CARRY),
    ("gcn batch 2", (8, 12), 4, {**RICH, "sampler": CLUSTERS}),
    ("gcn none 2", (8, 12), 4, {**RICH, "sampler": OWN_BATCHES, "training": "each", "epochs": 4.5}),
    ("gat batch 2", (8, 12), 4, {**RICH, "sampler": CLUSTERS, "optimizer": "sgd", "momentum": 0.9}),
    ("residual", (12,), 4, {"epochs": 14, "sampler": OWN_BATCHES, **RESET}),
    ("features", (8,), 4, {"epochs": 14, "sampler": OWN_BATCHES, "schedule": "step", **CARRY}),
]


def placed(name: str, folder: Path | None = None) -> Store:
    """The store of a place and an exchange, such as "disk rows"; without one, whole."""
    kind, _, share = name.partition(" ")
    return Store.in_run(kind, folder, share=share or "whole")


def fitted(
    case: Case, store: Store | str = "memory", ranks: Ranks | None = None, device: str = "cpu"
) -> tuple[GIST, Result]:
    model, widths, m, options = case
    build, features = every_model()[model]
    settings = {**SETTINGS, **options}
    if "dropout" in settings:
        build = partial(build, dropout=settings.pop("dropout"))
    theta_store = store if isinstance(store, Store) else placed(store)
    gist = GIST(
        build,
        widths[0] if isinstance(features, int) else widths,
        m,
        store=theta_store,
        ranks=ranks,
        device=device,
    )
    return gist, gist.fit(tiny_graph(), **settings)


def left(gist: GIST, result: Result) -> dict[str, Any]:
    """What a rank has of Θ, its moments and the best Θ, and what it knows of the run."""
    theta = gist.theta
    parts = {"theta": theta.place.tensors, "best": theta.place.values(best=True)}
    tensors = {
        f"{kind}/{name}": tensor.clone()
        for kind, tensors_of_kind in parts.items()
        for name, tensor in tensors_of_kind.items()
    }
    tensors |= {
        key: value for key, value in theta.place.moments.items() if not key.endswith("/step")
    }
    steps = {
        key: float(value) for key, value in theta.place.moments.items() if key.endswith("/step")
    }
    return {
        "tensors": tensors,
        "steps": steps,
        "history": quiet(result.history),
        "test": result.test,
    }


@cache
def alone(number: int) -> dict[str, Any]:
    return left(*fitted(CASES[number]))


def train_all(ranks: Ranks, store: str, folder: Path) -> list[dict[str, Any]]:
    return [
        left(*fitted(case, placed(store, folder / str(k)), ranks)) for k, case in enumerate(CASES)
    ]


def joined(parts: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    return {name: torch.cat([part[name].reshape(-1) for part in parts]) for name in parts[0]}


def same(actual: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    assert actual.keys() == expected.keys()
    for name, tensor in expected.items():
        assert torch.equal(actual[name].view(tensor.shape), tensor), name


@pytest.mark.one_in(4)
@pytest.mark.parametrize(
    ("count", "store"), [(2, "disk rows"), (1, "sharded"), (3, "memory"), (4, "host rows")]
)
def test_any_number_of_ranks_trains_the_same_theta(count: int, store: str, tmp_path: Path) -> None:
    runs_of_ranks = on_ranks(count, train_all, store, tmp_path)
    for k, case in enumerate(CASES):
        expected = alone(k)
        of_ranks = [runs[k] for runs in runs_of_ranks]
        for key in ("steps", "history", "test"):
            assert all(of_rank[key] == expected[key] for of_rank in of_ranks), (case, key)
        tensors = [of_rank["tensors"] for of_rank in of_ranks]
        for tensors_of_rank in tensors if store == "memory" else [joined(tensors)]:
            same(tensors_of_rank, expected["tensors"])


def everywhere(ranks: Ranks, folder: Path) -> dict[str, list[Any]]:
    """The model of every place and exchange, by runner."""
    models = dict[str, list[Any]]()
    for runner, kind, share in product(RUNNERS, STORES, SHARES):
        case = ("gcn batch 2", (9, 10), 5, {**CARRY, "runner": runner})
        store = placed(f"{kind} {share}", folder / f"{runner}-{kind}-{share}")
        _, result = fitted(case, store, ranks)
        if ranks.leads:
            tensors = result.model.state_dict()
            values = {name: tensor.tolist() for name, tensor in tensors.items()}
            models.setdefault(runner, []).append(values)
    return models


@pytest.mark.long
def test_every_place_with_every_exchange_and_runner_gives_the_same_model(tmp_path: Path) -> None:
    """It is the model of one process.

    The fused runner's differs from it by rounding, as other sub-GCNs are fused.
    """
    _, result = fitted(("gcn batch 2", (9, 10), 5, CARRY))
    of_one_process = {name: tensor.tolist() for name, tensor in result.model.state_dict().items()}
    models_of_runners, _ = on_ranks(2, everywhere, tmp_path)
    assert [*models_of_runners] == [*RUNNERS]
    for runner, models in models_of_runners.items():
        expected = models[0] if runner == "fused" else of_one_process
        assert models == [expected] * 6, runner


SAMPLED = {
    "ladies": LadiesSampling(8, (6, 6)),
    "saint-rw": SaintWalkSampling(batch_size=9, walk_length=2),
}


def train_sampled(ranks: Ranks | None) -> dict[str, Any]:
    """Train on a graph with edge data, and by batches that each rank draws from the seed."""
    build = EDGE_MODELS["GINE"]
    results = dict[str, Any]()
    edges = load_on_ranks(ranks, lambda: only(edge_graph(30), build((4,)).name))
    sampler = ClusterSampling(clusters=4, clusters_per_batch=2, method="random")
    gist = GIST(build, (8,), 2, ranks=ranks)
    gist.fit(edges, sampler=sampler, inductive=True, epochs=4, local_steps=2, progress=False)
    results["edge data"] = {name: tensor.tolist() for name, tensor in gist.theta.copy().items()}
    for name, sampling in SAMPLED.items():
        gist = GIST(
            every_model()["graphsage layer 2"][0],
            (9,),
            4,
            ranks=ranks,
            store="sharded" if ranks else "memory",
        )
        result = gist.fit(tiny_graph(), sampler=sampling, **{**SETTINGS, "epochs": 12})
        results[name] = {"history": left(gist, result)["history"], "test": result.test}
    return results


def test_ranks_see_the_batches_of_one_process() -> None:
    expected = train_sampled(None)
    for results in on_ranks(2, train_sampled):
        assert results == expected
