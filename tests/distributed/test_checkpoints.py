"""A run that some ranks have saved goes on with others, wherever Θ was and is."""

import os
import resource
import signal
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from gistgnn import InputError, Saving
from gistgnn.distributed import RankLostError, Ranks
from gistgnn.storage.checkpoints import Checkpoints
from gistgnn.theta.disk import OnDisk
from tests.helpers.refusals import refused
from tests.helpers.resuming import after

from .launch import on_ranks
from .test_equality import CARRY, CLUSTERS, RICH, joined, left, placed, same
from .test_equality import fitted as trained

M = 4
MODEL = "graphsage layer 2"
RUNS: dict[str, tuple[str, tuple[int, ...], dict[str, Any]]] = {
    MODEL: (MODEL, (9, 10), {}),
    "gcn batch 2": ("gcn batch 2", (9, 10), {}),
    "residual": ("residual", (10,), {}),
    "clusters": (MODEL, (8, 12), {**RICH, "sampler": CLUSTERS, "epochs": 11 * M / 2}),
}
# W and the store before and after the stop; W = 0 is a single process without ranks.
CHANGES = [
    ((4, "sharded"), (2, "disk rows")),
    ((3, "disk rows"), (0, "memory")),
    ((0, "host"), (3, "disk")),
    ((2, "disk"), (3, "host rows")),
    ((3, "disk rows"), (3, "disk rows")),
]
Where = tuple[int, str]
BY_ROWS = ("sharded", "disk rows", "host rows")
ROUNDS = 1000  # more than there are


def fitted(
    name: str, ranks: Ranks | None, store: str, folder: Path | None = None, **options: Any
) -> dict[str, Any]:
    """Six rounds of two steps, scored after each, with moments that are carried. The last is
    shorter.
    """
    model, widths, own = RUNS[name]
    case = (model, widths, M, {"epochs": 11 * M, **CARRY, **own, **options})
    return left(*trained(case, placed(store, folder), ranks))


@cache
def unbroken(name: str) -> dict[str, Any]:
    return fitted(name, None, "memory")


def work(ranks: Ranks | None, store: str, folder: Path, stop: int) -> list[dict[str, Any]]:
    def to(name: str) -> dict[str, Any]:
        saving = Saving(folder / name, every=2, resume=True)
        return {
            "callbacks": after(stop),
            "runner": "in-turn" if stop < ROUNDS else "auto",
            "saving": saving,
        }

    return [fitted(name, ranks, store, folder / f"{name}-theta", **to(name)) for name in RUNS]


def run(where: Where, folder: Path, stop: int) -> list[dict[str, Any]]:
    """What is left of every run: of all ranks, joined where Θ is sharded."""
    count, store = where
    every = (
        on_ranks(count, work, store, folder, stop) if count else [work(None, store, folder, stop)]
    )
    return [whole(list(own), store) for own in zip(*every, strict=True)]


def whole(own: list[dict[str, Any]], store: str) -> dict[str, Any]:
    """What is left of one run, which all ranks know alike."""
    assert all(rest(each) == rest(own[0]) for each in own)
    tensors = [each["tensors"] for each in own]
    return {**own[0], "tensors": joined(tensors) if store in BY_ROWS else tensors[0]}


def rest(own: dict[str, Any]) -> list[Any]:
    return [own[key] for key in ("steps", "history", "test")]


@pytest.mark.parametrize(("before", "then"), CHANGES, ids=str)
def test_a_run_goes_on_with_other_ranks_and_another_store(
    tmp_path: Path, before: Where, then: Where
) -> None:
    run(before, tmp_path, 3)
    for name in RUNS:
        names = [place.name for place in Checkpoints(tmp_path / name).whole()]
        assert names[-2:] == ["round-00000002", "round-00000003"]
    found = run(then, tmp_path, ROUNDS)
    count, store = then  # no files of the stores before
    folders = (
        {f"rows-{rank:05}-of-{count:05}" for rank in range(count)} if store == "disk rows" else {""}
    )
    assert {path.name.partition(".")[2] for path in tmp_path.glob("*-theta*")} == (
        folders if "disk" in store else set()
    )
    for name, own in zip(RUNS, found, strict=True):
        expected = unbroken(name)
        same(own["tensors"], expected["tensors"])
        assert rest(own) == rest(expected)


def refusals(ranks: Ranks, folder: Path) -> list[str]:
    """Each rank has a disk of its own, and what one has saved another does not see; the disk of
    rank 1 is full.
    """
    unseen = Saving(folder / ("seen" if ranks.leads else "elsewhere"), resume=True)
    with refused(
        "there is no", "elsewhere/round-00000002 to resume from", "all machines see the same files"
    ):
        fitted(MODEL, ranks, "memory", saving=unseen)
    with pytest.raises(InputError) as apart:
        fitted(MODEL, ranks, "sharded", saving=Saving(folder / f"apart/{ranks.rank}", every=1))
    assert apart.value.relayed
    saving = Saving(folder / "full", every=1, resume=True)
    fitted(MODEL, ranks, "sharded", callbacks=after(2), saving=saving)
    if ranks.rank == 1:  # the limit holds until the process ends
        resource.setrlimit(
            resource.RLIMIT_FSIZE, (200, resource.getrlimit(resource.RLIMIT_FSIZE)[1])
        )
    with pytest.raises(InputError) as full:
        fitted(MODEL, ranks, "sharded", saving=saving)
    return [str(apart.value), str(full.value)]


def test_what_a_rank_cannot_see_or_save_ends_the_run_on_all_ranks_and_nothing_is_lost(
    tmp_path: Path,
) -> None:
    fitted(MODEL, None, "memory", callbacks=after(2), saving=Saving(tmp_path / "seen"))
    (apart, full), others = on_ranks(2, refusals, tmp_path)
    assert others == [apart, full]
    assert "has the files of 1 ranks, expected 2" in apart
    assert not Checkpoints(tmp_path / "apart/0").whole()
    said = (
        f"cannot write {tmp_path / 'full/round-00000003'}: File too large; make room and "
        "resume "
        "the run"
    )
    assert said in full
    names = [place.name for place in Checkpoints(tmp_path / "full").whole()]
    assert names == ["round-00000001", "round-00000002"]
    found = fitted(MODEL, None, "memory", saving=Saving(tmp_path / "full", resume=True))
    same(found["tensors"], unbroken(MODEL)["tensors"])


def fitted_until(
    ranks: Ranks, store: str, folder: Path, owner: type, call: str, victim: int
) -> list[dict[str, Any]]:
    """A rank dies when it makes a call for the third time; -1: nobody."""
    count = iter(range(1, ROUNDS))
    plain = getattr(owner, call)

    def dying(*args: Any) -> Any:
        if next(count) == 3 and ranks.rank == victim:
            os.kill(os.getpid(), signal.SIGKILL)
        return plain(*args)

    setattr(owner, call, dying)
    try:
        return [
            fitted(
                MODEL,
                ranks,
                store,
                folder / "theta",
                saving=Saving(folder / "saved", every=1, resume=True),
            )
        ]
    except RankLostError:
        return []


COMMITS = [
    ("disk rows", OnDisk, "_commit", 0),
    ("disk rows", OnDisk, "_commit", 1),
    ("disk", OnDisk, "_commit", 0),
]
COMMITS += [("host rows", Checkpoints, "complete", 0)]


@pytest.mark.parametrize("case", COMMITS, ids=str)
def test_a_rank_that_dies_between_prepare_and_commit_leaves_the_model_of_an_unbroken_run(
    tmp_path: Path, case: tuple[str, type, str, int]
) -> None:
    """All ranks have written a round or a checkpoint, and one does not come to say so."""
    store, *call, victim = case
    assert on_ranks(
        2, fitted_until, store, tmp_path, *call, victim, only=[1 - victim], timeout=10
    ) == [[]]
    every = on_ranks(2, fitted_until, store, tmp_path, *call, -1)
    found = whole([own for [own] in every], store)
    same(found["tensors"], unbroken(MODEL)["tensors"])
    assert rest(found) == rest(unbroken(MODEL))
