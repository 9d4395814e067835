"""The end of a round: it takes little memory, and whatever interrupts it leaves the round in Θ
whole, or not at all.
"""

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from gistgnn import GIST, InputError
from gistgnn.layout.axes import named_tensors
from gistgnn.round import Round
from gistgnn.theta import slices
from gistgnn.theta.slices import merge_shared
from gistgnn.utils.interrupts import do_to_the_end
from gistgnn.utils.process_memory import PeakBytes
from tests.helpers.fitting import gcn, same
from tests.theta.stores import shaken, store, values

ADAM = torch.optim.Adam


@pytest.mark.parametrize(
    "cut",
    [(None, None), (torch.arange(0, 2000, 2), None), (torch.arange(3, 2000), torch.arange(300))],
)
def test_entries_that_several_hold_are_averaged_within_little_memory(cut: Any) -> None:
    before = torch.randn(2000, 500)
    values = [
        torch.randn([n if p is None else len(p) for n, p in zip((2000, 500), cut, strict=True)])
        for _ in range(4)
    ]
    target = before.clone()
    with PeakBytes() as memory:
        merge_shared(target, [cut] * 4, values)
    assert memory.peak < 2.5 * before.nbytes
    index = torch.meshgrid(
        *[torch.arange(n) if p is None else p for n, p in zip((2000, 500), cut, strict=True)],
        indexing="ij",
    )
    expected = before.clone()
    expected[index] = torch.stack(values).double().mean(0).float()
    torch.testing.assert_close(target, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("shape", [(), (1,), (7,), (1, 9), (5, 3), (2, 3, 4)])
def test_pieces_change_no_bit(shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(len(shape))
    before = torch.randn(shape)
    cuts = [
        tuple(torch.randperm(n)[: max(n - k, 1)].sort().values for n in shape) for k in range(3)
    ]
    values = [torch.randn([len(p) for p in cut]) for cut in cuts]
    found = []
    for most in (1, 4, 2**18):
        monkeypatch.setattr(slices, "_MERGED_AT_ONCE", most)
        found.append(before.clone())
        merge_shared(found[-1], cuts, values)
    assert all(torch.equal(each, found[-1]) for each in found)


# Interruptions.


def make(kind: str, folder: Path) -> GIST:
    folder.mkdir(parents=True, exist_ok=True)
    return GIST(gcn(norm="batch"), (6, 5), 2, store=store(kind, folder))


def fresh(gist: GIST, rounds: int) -> GIST:
    """The same `GIST` after some rounds, from the seed's Θ."""
    gist._theta = None
    gist.next_round = 0
    shaken(gist, rounds, ADAM)
    return gist


def trained_round(gist: GIST) -> Round:
    """A round whose sub-GCNs have moved, and that has moments."""
    round_ = gist.begin_round()
    for i, sub in enumerate(round_):
        generator = torch.Generator().manual_seed(1000 * round_.number + i)
        optimizer = ADAM(sub.parameters(), lr=0.1)
        round_.carry(i, optimizer)
        for parameter in sub.parameters():
            parameter.grad = torch.randn(parameter.shape, generator=generator)
        optimizer.step()
    return round_


class InterruptedAt(TorchDispatchMode):
    """Raises KeyboardInterrupt once, before or after the n-th operation on tensors."""

    def __init__(self, n: int, *, after: bool) -> None:
        super().__init__()
        self.left = n
        self._after = after

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.left -= 1
        if self.left == 0 and not self._after:
            raise KeyboardInterrupt
        out = func(*args, **(kwargs or {}))
        if self.left == 0:
            raise KeyboardInterrupt
        return out


@contextmanager
def interrupted_at_line(n: int) -> Iterator[list[int]]:
    """Raise KeyboardInterrupt once, before the n-th line of the modules that merge."""
    left = [n]

    def trace(frame: Any, event: str, _: Any) -> Any:
        if "/theta/" not in frame.f_code.co_filename:
            return None
        if event == "line":
            left[0] -= 1
            if left[0] == 0:
                raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield left
    finally:
        sys.settrace(before)


def check_whole(
    gist: GIST, round_: Round, before: dict[str, Tensor], after: dict[str, Tensor]
) -> bool:
    """Whether the round is in Θ, which is one of the two, and says so; aggregating again ends the
    round in any case.
    """
    found = values(gist.theta)
    is_in = gist.theta.place.round == round_.number + 1
    assert same(found, after if is_in else before)
    model = named_tensors(gist.model())
    assert all(torch.equal(model[name].detach(), found[name]) for name in model)
    round_.aggregate()
    assert same(values(gist.theta), after)
    return is_in


@pytest.mark.one_in(5)
@pytest.mark.parametrize("kind", ["memory", "host", "disk"])
@pytest.mark.parametrize("rounds", [0, 1])
def test_an_interrupted_merge_is_whole_or_not_at_all(
    kind: str, rounds: int, tmp_path: Path
) -> None:
    """At operations all over the merge, in the first round, which makes the moments, and in a later
    one.
    """
    expected = make(kind, tmp_path / "expected")
    shaken(expected, rounds, ADAM)
    before = values(expected.theta)
    trained_round(expected).aggregate()
    after = values(expected.theta)
    gist = make(kind, tmp_path / "own")
    outcomes = set[bool]()
    n = 1
    while True:
        gist = fresh(make(kind, tmp_path / str(n)) if kind == "disk" else gist, rounds)
        round_ = trained_round(gist)
        mode = InterruptedAt(n, after=n % 2 == 0)
        try:
            with mode:
                round_.aggregate()
        except KeyboardInterrupt:
            outcomes.add(check_whole(gist, round_, before, after))
        if mode.left > 0:
            break
        n += 127 if kind == "disk" else 41
    assert outcomes == {True, False}


@pytest.mark.parametrize("kind", ["memory", "host"])
def test_a_merge_that_is_interrupted_between_lines_is_whole_or_not_at_all(
    kind: str, tmp_path: Path
) -> None:
    expected = make(kind, tmp_path)
    before = values(expected.theta)
    trained_round(expected).aggregate()
    after = values(expected.theta)
    gist = make(kind, tmp_path)
    outcomes = set[bool]()
    n = 1
    while True:
        round_ = trained_round(fresh(gist, 0))
        try:
            with interrupted_at_line(n) as left:
                round_.aggregate()
        except KeyboardInterrupt:
            outcomes.add(check_whole(gist, round_, before, after))
        if left[0] > 0:
            break
        n += 67
    assert outcomes == {True, False}


def test_ctrl_c_waits_for_work_to_end_and_an_error_repeats_it() -> None:
    done: list[str] = []

    def interrupted() -> None:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        done.append("whole")

    # whatever earlier tests have left
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            do_to_the_end(interrupted)
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)
    assert done == ["whole"]

    def fails_once() -> None:
        done.append("begun")
        if done.count("begun") == 1:
            raise MemoryError
        done.append("whole")

    with pytest.raises(MemoryError):
        do_to_the_end(fails_once)
    assert done == ["whole", "begun", "begun", "whole"]


# A round is written once.


def train(sub: Any, i: int = 0) -> None:
    with torch.no_grad():
        for parameter in sub.parameters():
            parameter.add_(0.1 * (i + 1))


def twice(gist: GIST) -> None:
    for round_ in gist.rounds(2):
        for i, sub in enumerate(round_):
            train(sub, i)
        first = round_.aggregate({0: {"loss": 1.0, "norm": 6.0}, 1: {"loss": 2.0}})
        assert round_.aggregate() == first == {"loss": 1.5, "norm": 6.0}


def in_the_last_step(gist: GIST) -> None:
    for round_ in gist.rounds(2):
        for i, sub in enumerate(round_):
            train(sub, i)
            if i == 1:
                round_.aggregate()


def and_looked_at(gist: GIST) -> None:
    for round_ in gist.rounds(2):
        for i, sub in enumerate(round_):
            train(sub, i)
        round_.aggregate()
        if not round_.streams:
            assert len(list(round_)) == len(round_.subs) == 2


@pytest.mark.parametrize("kind", ["memory", "host", "disk"])
@pytest.mark.parametrize("work", [twice, in_the_last_step, and_looked_at])
def test_to_aggregate_again_changes_nothing(
    kind: str, work: Callable[[GIST], None], tmp_path: Path
) -> None:
    plain = make("memory", tmp_path)
    for round_ in plain.rounds(2):
        for i, sub in enumerate(round_):
            train(sub, i)
    gist = make(kind, tmp_path)
    work(gist)
    assert same(values(gist.theta), values(plain.theta))
    assert gist.theta.place.round == 2


@pytest.mark.parametrize("kind", ["memory", "host", "disk"])
def test_what_trains_after_its_round_was_written_is_refused(kind: str, tmp_path: Path) -> None:
    gist = make(kind, tmp_path)

    def in_the_inner_loop() -> None:
        for round_ in gist.rounds(1):
            for sub in round_:
                train(sub)
                round_.aggregate()

    with pytest.raises(InputError, match="sub-GCN 1 has not trained"):
        in_the_inner_loop()
    earlier = gist.begin_round()
    later = gist.begin_round()
    before = values(gist.theta)
    with pytest.raises(InputError, match=f"round {earlier.number + 1} is over"):
        earlier.aggregate()
    assert same(values(gist.theta), before)
    later.aggregate()
    if not later.streams:
        train(later.subs[1])
        with pytest.raises(InputError, match="sub-GCN 1 has changed since"):
            later.aggregate()


@pytest.mark.parametrize("kind", ["memory", "host", "disk"])
def test_a_loop_that_is_left_in_its_middle_may_aggregate(kind: str, tmp_path: Path) -> None:
    gist = make(kind, tmp_path)
    before = values(gist.theta)["convs.1.weight"]
    round_ = gist.begin_round()
    for sub in round_:
        train(sub)
        break
    round_.aggregate()
    round_.aggregate()
    (rows, columns), (other_rows, other_columns) = ((own[1], own[0]) for own in round_.blocks)
    after = values(gist.theta)["convs.1.weight"]
    assert bool((after[rows][:, columns] != before[rows][:, columns]).all())
    assert torch.equal(after[other_rows][:, other_columns], before[other_rows][:, other_columns])


def test_the_best_theta_is_copied_into_the_memory_of_the_last_one() -> None:
    gist = GIST(gcn(), (60, 50), 2)
    place = gist.theta.place
    place.keep_best()
    shaken(gist, 1)
    with PeakBytes() as memory:
        place.keep_best()
    assert memory.peak == 0
    assert same(place.best, place.tensors)
