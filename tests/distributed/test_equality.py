"""Wherever the sub-GCNs train and Θ lies, it ends up the same, bit for bit."""

from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor

from gistgnn import GIST
from gistgnn.distributed import Ranks
from gistgnn.fit.result import Result
from gistgnn.sampling import LadiesSampling, SaintWalkSampling
from gistgnn.theta.memory import InMemory
from gistgnn.theta.ranks.sharded import Sharded
from tests.helpers.models import every_model, tiny_graph

from .launch import on_ranks

RANKS = (1, 2, 4)
SETTINGS = {"epochs": 24, "local_steps": 2, "lr": 0.05, "progress": False}
# Adam makes a large step of a gradient that is zero but for rounding.
BY_SGD = {**SETTINGS, "optimizer": "sgd", "momentum": 0.9, "optimizer_state": "carry"}
Case = tuple[str, int, str]  # model, m, the optimisers' state
OURS = ("gcn batch 2", "graphsage layer 2", "gat none 2")
CASES: list[Case] = [(model, m, state) for model in OURS for m, state in ((4, "carry"), (8, "reset"))]
CASES += [(model, 4, "carry") for model in ("pyg gin batch_norm cat", "residual", "features", "jumping over x")]


def fitted(case: Case, store: str = "memory", ranks: Ranks | None = None) -> tuple[GIST, Result]:
    model, m, state = case
    build, widths = every_model()[model]
    widths = 10 if isinstance(widths, int) else tuple(range(9, 9 + len(widths)))
    gist = GIST(build, widths, m, store=store, ranks=ranks)
    return gist, gist.fit(tiny_graph(), optimizer_state=state, **SETTINGS)


def left(gist: GIST, result: Result) -> dict[str, Any]:
    """What a rank has of Θ, its moments and the best Θ, and what it knows of the run."""
    theta = gist.theta
    assert isinstance(theta, (InMemory, Sharded))
    parts = {"theta": theta.rows if isinstance(theta, Sharded) else theta.tensors, "best": theta.best}
    tensors = {f"{kind}/{name}": tensor.clone() for kind, own in parts.items() for name, tensor in own.items()}
    for name, moments in theta.moments.items():
        tensors |= {f"{name}/{key}": value for key, value in moments.items() if key != "step"}
    counters = theta.counters if isinstance(theta, Sharded) else theta.moments
    steps = {name: float(counts["step"]) for name, counts in counters.items() if "step" in counts}
    history = [{key: value for key, value in entry.items() if key != "train_seconds"} for entry in result.history]
    return {"tensors": tensors, "steps": steps, "history": history, "test": result.test}


def train_fused(ranks: Ranks) -> dict[str, Any]:
    build, _ = every_model()["graphsage layer 2"]
    gist = GIST(build, (9, 10), 5, ranks=ranks)
    return left(gist, gist.fit(tiny_graph(), runner="fused", **BY_SGD))


def test_ranks_may_fuse_their_own_sub_gcns() -> None:
    build, _ = every_model()["graphsage layer 2"]
    gist = GIST(build, (9, 10), 5)
    expected = left(gist, gist.fit(tiny_graph(), **BY_SGD))
    first, second = on_ranks(2, train_fused)
    for name, tensor in expected["tensors"].items():
        torch.testing.assert_close(first["tensors"][name], tensor, rtol=1e-3, atol=1e-4)
        assert torch.equal(first["tensors"][name], second["tensors"][name])


@cache
def alone(case: Case) -> dict[str, Any]:
    return left(*fitted(case))


def train_all(ranks: Ranks, store: str, cases: list[Case]) -> list[dict[str, Any]]:
    return [left(*fitted(case, store, ranks)) for case in cases]


def joined(parts: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}


def same(found: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        assert torch.equal(found[name].view(tensor.shape), tensor), name


@pytest.mark.parametrize("store", ["memory", "sharded"])
@pytest.mark.parametrize("count", RANKS)
def test_any_number_of_ranks_trains_the_same_theta(count: int, store: str) -> None:
    every = on_ranks(count, train_all, store, CASES)
    for k, case in enumerate(CASES):
        expected = alone(case)
        own = [found[k] for found in every]
        for key in ("steps", "history", "test"):
            assert all(each[key] == expected[key] for each in own), (case, key)
        if store == "sharded":
            same(joined([each["tensors"] for each in own]), expected["tensors"])
        else:
            for each in own:
                same(each["tensors"], expected["tensors"])


SAMPLED = {"ladies": LadiesSampling(8, (6, 6)), "saint-rw": SaintWalkSampling(batch_size=9, walk_length=2)}


def train_sampled(ranks: Ranks | None) -> dict[str, dict[str, Any]]:
    """By sampled batches, each rank drawing its own from the seed."""
    found = {}
    for name, sampling in SAMPLED.items():
        gist = GIST(every_model()["graphsage layer 2"][0], (9,), 4, ranks=ranks, store="sharded" if ranks else "memory")
        result = gist.fit(tiny_graph(), sampler=sampling, **{**SETTINGS, "epochs": 12})
        found[name] = {"history": left(gist, result)["history"], "test": result.test}
    return found


def test_ranks_see_the_batches_of_one_process() -> None:
    expected = train_sampled(None)
    for found in on_ranks(2, train_sampled):
        assert found == expected
