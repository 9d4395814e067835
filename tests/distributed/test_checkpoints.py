"""A run that ends before its last round goes on to the model of an unbroken run.

It does so however it ended, whatever ranks it had and has, and wherever Θ was and is.
"""

import os
import resource
import signal
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest

from gistgnn import Callback, InputError, Saving
from gistgnn.distributed import RankLostError, Ranks
from gistgnn.fit.scorer import Scorer
from gistgnn.storage.checkpoints import Checkpoints
from gistgnn.theta.disk import OnDisk
from tests.helpers.commands import Forked
from tests.helpers.refusals import refused
from tests.helpers.resuming import after

from .launch import on_ranks
from .test_equality import CARRY, CLUSTERS, RICH, joined, left, placed, same
from .test_equality import fitted as trained

M = 4
MODEL = "gcn batch 2"
RUNS: dict[str, tuple[str, tuple[int, ...], dict[str, Any]]] = {
    MODEL: (MODEL, (9, 10), {}),
    "residual": ("residual", (10,), {}),
    "clusters": (
        "graphsage layer 2",
        (8, 12),
        {**RICH, "sampler": CLUSTERS, "epochs": 11 * M / 2},
    ),
}
Where = tuple[int, str]
"""The number of ranks and the store. No ranks are a single process."""
ALONE: Where = (0, "memory")
BY_ROWS = ("sharded", "disk rows", "host rows")


def fitted(
    name: str, ranks: Ranks | None, store: str, folder: Path | None = None, **options: Any
) -> dict[str, Any]:
    """Train for six rounds of two steps, and score each of them. The last round is shorter."""
    model, widths, of_run = RUNS[name]
    case = (model, widths, M, {"epochs": 11 * M, **CARRY, **of_run, **options})
    return left(*trained(case, placed(store, folder), ranks))


@cache
def unbroken(name: str) -> dict[str, Any]:
    return fitted(name, None, "memory")


class BrokenError(Exception):
    """What the user's code raises."""


class Ends(Callback):
    """Calls a function after a round, on one rank or on all; `hook` says where."""

    def __init__(
        self, hook: str, number: int, end: Callable[[], object], rank: int | None = None
    ) -> None:
        def call(run: Any, *_: object) -> None:
            if run.round == number and (rank is None or run.gist.ranks.rank == rank):
                end()

        setattr(self, hook, call)


def fail(error: type[BaseException]) -> None:
    raise error


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def at_call(owner: type, method: str, number: int, end: Callable[[], object]) -> None:
    """Call a function before a method of gistgnn is called for the n-th time in this process."""
    count = iter(range(1, 99))
    plain = getattr(owner, method)

    def ending(*args: Any) -> Any:
        if next(count) == number:
            end()
        return plain(*args)

    setattr(owner, method, ending)


End = Callable[[Ranks | None, int], list[Any]]


def asks(ranks: Ranks | None, number: int) -> list[Any]:
    """The run is asked to stop, as a signal asks it."""
    return after(number)


def raises(error: type[BaseException], hook: str) -> End:
    return lambda ranks, number: [Ends(hook, number, partial(fail, error))]


def cannot_score(ranks: Ranks | None, number: int) -> list[Any]:
    at_call(Scorer, "_score", number, partial(fail, MemoryError))
    return []


def is_killed(rank: int, hook: str) -> End:
    return lambda ranks, number: [Ends(hook, number, die, rank)]


def is_killed_in(owner: type, method: str, rank: int) -> End:
    """The process dies when all have written a round or a checkpoint, before it says so."""

    def begin(ranks: Ranks | None, number: int) -> list[Any]:
        if ranks is None or ranks.rank == rank:
            at_call(owner, method, number, die)
        return []

    return begin


ENDS: dict[str, End] = {
    "a request": asks,
    "Ctrl-C after a round": raises(KeyboardInterrupt, "on_round_end"),
    "an error in a callback": raises(BrokenError, "on_evaluation"),
    "no memory for the scores": cannot_score,
    "kill of rank 0": is_killed(0, "on_round_end"),
    "kill of rank 1": is_killed(1, "on_evaluation"),
    "kill of rank 0 in the commit of a round": is_killed_in(OnDisk, "_commit", 0),
    "kill of rank 1 in the commit of a round": is_killed_in(OnDisk, "_commit", 1),
    "kill of rank 0 in the commit of a checkpoint": is_killed_in(Checkpoints, "complete", 0),
}
"""What ends a run: each prepares its process, and returns the callbacks of the run."""

ROUNDS = 6
CASES: list[tuple[Where, str, int, Where]] = [
    (ALONE, "Ctrl-C after a round", 3, (0, "disk")),
    (ALONE, "an error in a callback", ROUNDS, ALONE),
    (ALONE, "no memory for the scores", 1, ALONE),
    ((0, "disk"), "an error in a callback", 1, (0, "disk")),
    ((0, "disk"), "no memory for the scores", ROUNDS, (0, "disk")),
    ((0, "host"), "no memory for the scores", 3, (3, "disk")),
    ((0, "disk"), "kill of rank 0", 3, (0, "disk")),
    ((0, "host"), "kill of rank 0 in the commit of a checkpoint", 3, (2, "sharded")),
    ((4, "sharded"), "a request", 3, (2, "disk rows")),
    ((3, "disk rows"), "a request", 3, ALONE),
    ((3, "disk rows"), "a request", 3, (3, "disk rows")),
    ((2, "disk"), "a request", 3, (3, "host rows")),
    ((2, "memory"), "an error in a callback", 3, (0, "host")),
    ((2, "sharded"), "kill of rank 1", 3, (2, "sharded")),
    ((2, "disk rows"), "kill of rank 0 in the commit of a round", 3, (2, "disk rows")),
    ((2, "disk rows"), "kill of rank 1 in the commit of a round", 3, (2, "disk rows")),
    ((2, "disk"), "kill of rank 0 in the commit of a round", 3, (2, "disk")),
    ((2, "host rows"), "kill of rank 0 in the commit of a checkpoint", 3, (2, "host rows")),
]


def check_error(error: BaseException, number: int) -> None:
    """An error says what is saved; Ctrl-C aside, it has the result so far."""
    assert f"the state after round {number} is saved in" in error.__notes__[0]
    if isinstance(error, Exception):
        so_far = error.result  # type: ignore[attr-defined]
        assert (so_far.interrupted, so_far.progress.rounds) == (True, number)


def train_until(
    ranks: Ranks | None,
    store: str,
    folder: Path,
    names: list[str],
    end: str | None = None,
    number: int = 0,
) -> list[Any]:
    """Train some runs, or take them up, until they end or are over.

    Returns what is left of every run.
    """
    left_of_runs = []
    save_every = 1 if end and "kill" in end else 2
    for name in names:
        with pytest.MonkeyPatch.context() as patch:
            # Functions of `ENDS` may change these methods, which are restored after the run.
            for owner, method in ((Scorer, "_score"), (OnDisk, "_commit")):
                patch.setattr(owner, method, getattr(owner, method))
            options: dict[str, Any] = {
                "callbacks": ENDS[end](ranks, number) if end else [],
                "runner": "in-turn" if end else "auto",
                "saving": Saving(folder / name, every=save_every, resume=True),
            }
            try:
                left_of_runs.append(fitted(name, ranks, store, folder / f"{name}-theta", **options))
            except RankLostError:
                return []
            except (BrokenError, KeyboardInterrupt, MemoryError) as error:
                if ranks is None:
                    check_error(error, number)
    return left_of_runs


def train_alone(*args: Any) -> None:
    train_until(None, *args)


def begin(where: Where, folder: Path, names: list[str], end: str, number: int) -> None:
    """Train some runs until they end."""
    count, store = where
    arguments = (store, folder, names, end, number)
    if count and "kill" in end:
        only = [0 if "rank 1" in end else 1]
        assert on_ranks(count, train_until, *arguments, only=only, timeout=10) == [[]]
    elif count:
        on_ranks(count, train_until, *arguments)
    else:
        ended = Forked(folder, train_alone, *arguments).completed()
        assert ended.returncode == (-signal.SIGKILL if "kill" in end else 0), ended.stderr


def go_on(where: Where, folder: Path, names: list[str]) -> list[dict[str, Any]]:
    """What is left of some runs at their ends: of all ranks, joined where Θ is sharded."""
    count, store = where
    if not count:
        return train_until(None, store, folder, names)
    of_ranks = on_ranks(count, train_until, store, folder, names)
    return [joined_run(list(of_run), store) for of_run in zip(*of_ranks, strict=True)]


def joined_run(of_ranks: list[dict[str, Any]], store: str) -> dict[str, Any]:
    """What is left of one run, which all ranks know alike."""
    assert all(known_to_all(of_rank) == known_to_all(of_ranks[0]) for of_rank in of_ranks)
    tensors = [of_rank["tensors"] for of_rank in of_ranks]
    return {**of_ranks[0], "tensors": joined(tensors) if store in BY_ROWS else tensors[0]}


def known_to_all(run: dict[str, Any]) -> list[Any]:
    return [run[key] for key in ("steps", "history", "test")]


@pytest.mark.one_in(3)
@pytest.mark.parametrize(("before", "end", "number", "then"), CASES, ids=str)
def test_a_run_that_ended_goes_on_to_the_model_of_an_unbroken_run(
    tmp_path: Path, before: Where, end: str, number: int, then: Where
) -> None:
    names = [*RUNS] if end == "a request" else [MODEL]
    begin(before, tmp_path, names, end, number)
    if end == "a request":
        for name in names:
            checkpoints = Checkpoints(tmp_path / name).complete_folders()
            last_two = [checkpoint.name for checkpoint in checkpoints[-2:]]
            assert last_two == ["round-00000002", "round-00000003"]
    elif before == ALONE:
        assert Checkpoints(tmp_path / MODEL).newest() == tmp_path / MODEL / f"round-{number:08}"
    runs = go_on(then, tmp_path, names)
    # No files of the stores before are left.
    count, store = then
    endings: set[str] = set()
    if store == "disk rows":
        endings = {f"rows-{rank:05}-of-{count:05}" for rank in range(count)}
    elif store == "disk":
        endings = {""}
    assert {path.name.partition(".")[2] for path in tmp_path.glob("*-theta*")} == endings
    for name, run in zip(names, runs, strict=True):
        expected = unbroken(name)
        same(run["tensors"], expected["tensors"])
        assert known_to_all(run) == known_to_all(expected)


def refusals(ranks: Ranks, folder: Path) -> list[str]:
    """Each rank has a disk of its own, which no other one sees, and the disk of rank 1 is full."""
    unseen = Saving(folder / ("seen" if ranks.leads else "elsewhere"), resume=True)
    with refused(
        "there is no", "elsewhere/round-00000002 to resume from", "all machines see the same files"
    ):
        fitted(MODEL, ranks, "memory", saving=unseen)
    with pytest.raises(InputError) as separate:
        fitted(MODEL, ranks, "sharded", saving=Saving(folder / f"apart/{ranks.rank}", every=1))
    assert separate.value.relayed
    saving = Saving(folder / "full", every=1, resume=True)
    fitted(MODEL, ranks, "sharded", callbacks=after(2), saving=saving)
    if ranks.rank == 1:
        # The limit holds until the process ends.
        _, hard_limit = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (200, hard_limit))
    with pytest.raises(InputError) as full:
        fitted(MODEL, ranks, "sharded", saving=saving)
    return [str(separate.value), str(full.value)]


def test_what_a_rank_cannot_see_or_save_ends_the_run_on_all_ranks_and_nothing_is_lost(
    tmp_path: Path,
) -> None:
    fitted(MODEL, None, "memory", callbacks=after(2), saving=Saving(tmp_path / "seen"))
    messages, messages_of_second = on_ranks(2, refusals, tmp_path)
    assert messages == messages_of_second
    separate, full = messages
    assert "has the files of 1 ranks, expected 2" in separate
    assert not Checkpoints(tmp_path / "apart/0").complete_folders()
    folder = tmp_path / "full/round-00000003"
    assert f"cannot write {folder}: File too large; make room and resume the run" in full
    names = [checkpoint.name for checkpoint in Checkpoints(tmp_path / "full").complete_folders()]
    assert names == ["round-00000001", "round-00000002"]
    resumed = fitted(MODEL, None, "memory", saving=Saving(tmp_path / "full", resume=True))
    same(resumed["tensors"], unbroken(MODEL)["tensors"])
