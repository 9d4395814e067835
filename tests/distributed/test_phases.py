"""Ranks of a run in phases: some have no sub-GCN in a phase of few, and all train the original of copies."""

from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from gistgnn import GIST, Saving
from gistgnn.distributed import Ranks
from gistgnn.phases import Phase
from gistgnn.sampling import ClusterSampling
from tests.helpers.models import every_model
from tests.helpers.phases import ENDS, FEWER, REDRAWN, fit
from tests.helpers.refusals import refused
from tests.helpers.resuming import after

from .launch import on_ranks
from .test_equality import joined, left, same

UNEVEN = (Phase(3, 6, redraw_every=2), Phase(1, 4), Phase(4, 8, redraw_every=0))
CASES: list[tuple[str, tuple[Phase, ...], dict[str, Any]]] = [
    ("gcn batch 2", FEWER, {}),
    ("graphsage layer 2", FEWER, {"optimizer_state": "carry"}),
    ("gat none 2", REDRAWN, {"optimizer_state": "carry", "cross_weights": "random"}),
    ("residual", FEWER, {"sampler": ClusterSampling(4, 2, "random", batches="independent")}),
    ("features", UNEVEN, {"optimizer_state": "carry"}),
]


def fitted(number: int, ranks: Ranks | None = None, store: str = "memory", **options: Any) -> dict[str, Any]:
    model, phases, settings = CASES[number]
    build, widths = every_model()[model]
    own = 12 if isinstance(widths, int) else (8, 12)[: len(widths)]
    gist = GIST(build, own, 4, store=store, ranks=ranks)
    return left(gist, fit(gist, phases, **{**settings, **options}))


@cache
def alone(number: int) -> dict[str, Any]:
    return fitted(number)


def train_all(ranks: Ranks, store: str) -> list[dict[str, Any]]:
    return [fitted(number, ranks, store) for number in range(len(CASES))]


@pytest.mark.parametrize(("count", "store"), [(2, "memory"), (2, "sharded")])
def test_ranks_train_the_theta_of_one_process(count: int, store: str) -> None:
    every = on_ranks(count, train_all, store)
    for number in range(len(CASES)):
        own, expected = [found[number] for found in every], alone(number)
        for key in ("steps", "history", "test"):
            assert all(each[key] == expected[key] for each in own), (number, key)
        if store == "sharded":
            same(joined([each["tensors"] for each in own]), expected["tensors"])
        else:
            for each in own:
                same(each["tensors"], expected["tensors"])


def train_fused(ranks: Ranks | None, store: str) -> list[dict[str, Tensor]]:
    """Two members on a rank, then one, then one or none."""
    found = []
    for phases in (FEWER, REDRAWN):
        gist = GIST(every_model()["graphsage none 2"][0], (8, 12), 4, ranks=ranks, store=store)
        fit(gist, phases, runner="fused", optimizer="sgd", momentum=0.9, optimizer_state="carry")
        found.append(gist.theta.rows if store == "sharded" else gist.theta.tensors)  # type: ignore[attr-defined]
    return [{name: tensor.clone() for name, tensor in tensors.items()} for tensors in found]


@pytest.mark.parametrize("store", ["memory", "sharded"])
def test_ranks_fuse_what_they_have(store: str) -> None:
    expected = train_fused(None, "memory")
    first, second = on_ranks(2, train_fused, store)
    for one, other, own in zip(first, second, expected, strict=True):
        whole = {name: torch.cat([one[name], other[name]]) for name in one} if store == "sharded" else one
        for name, tensor in own.items():
            torch.testing.assert_close(whole[name].view(tensor.shape), tensor, rtol=1e-3, atol=1e-4)
            assert store == "sharded" or torch.equal(one[name], other[name])


def save_at_the_ends(ranks: Ranks, store: str, folder: Path) -> list[dict[str, Any]]:
    """Stop at the end of every phase, and go on."""
    saving = Saving(folder, resume=True)
    before = 0
    for end in ENDS[:-1]:
        fitted(1, ranks, store, saving=saving, callbacks=after(end - before))
        before = end
    return [fitted(1, ranks, store, saving=saving)]


@pytest.mark.parametrize("store", ["memory", "sharded"])
def test_ranks_go_on_at_the_ends_of_phases(tmp_path: Path, store: str) -> None:
    found, expected = [each for (each,) in on_ranks(2, save_at_the_ends, store, tmp_path)], alone(1)
    tensors = joined([each["tensors"] for each in found]) if store == "sharded" else found[0]["tensors"]
    same(tensors, expected["tensors"])
    for each in found:
        assert [each[key] for key in ("steps", "history", "test")] == [
            expected[key] for key in ("steps", "history", "test")
        ]


def refusals(ranks: Ranks) -> None:
    gist = GIST(every_model()["gcn none 2"][0], (8, 12), 4, ranks=ranks)
    with refused("sub_gcns is 1, fewer than the 2 ranks"):
        fit(gist, (Phase(1, 4),))


def test_ranks_that_never_train_are_refused() -> None:
    assert on_ranks(2, refusals) == [None, None]
