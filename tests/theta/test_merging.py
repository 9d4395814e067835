"""The end of a round takes little memory.

Whatever interrupts it leaves the round in Θ whole, or not at all.
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
    positions = [
        torch.arange(size) if part is None else part
        for size, part in zip((2000, 500), cut, strict=True)
    ]
    values = [torch.randn([len(part) for part in positions]) for _ in range(4)]
    target = before.clone()
    with PeakBytes() as memory:
        merge_shared(target, [cut] * 4, values)
    assert memory.peak < 2.5 * before.nbytes
    expected = before.clone()
    expected[torch.meshgrid(*positions, indexing="ij")] = (
        torch.stack(values).double().mean(0).float()
    )
    torch.testing.assert_close(target, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("shape", [(), (1,), (7,), (1, 9), (5, 3), (2, 3, 4)])
def test_pieces_change_no_bit(shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(len(shape))
    before = torch.randn(shape)
    cuts = []
    values = []
    for left_out in range(3):
        sizes = [max(size - left_out, 1) for size in shape]
        cut = [torch.randperm(size)[:count] for size, count in zip(shape, sizes, strict=True)]
        cuts.append(tuple(positions.sort().values for positions in cut))
        values.append(torch.randn(sizes))
    merges = []
    for most in (1, 4, 2**18):
        monkeypatch.setattr(slices, "_MERGED_AT_ONCE", most)
        merges.append(before.clone())
        merge_shared(merges[-1], cuts, values)
    assert all(torch.equal(merged, merges[-1]) for merged in merges)


# The next tests interrupt the end of a round.


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
    """Return whether the round is in Θ, which has to say so.

    Θ is as before the round or as after it. To aggregate again ends the round in both cases.
    """
    tensors = values(gist.theta)
    is_in = gist.theta.place.round == round_.number + 1
    assert same(tensors, after if is_in else before)
    model = named_tensors(gist.model())
    assert all(torch.equal(model[name].detach(), tensors[name]) for name in model)
    round_.aggregate()
    assert same(values(gist.theta), after)
    return is_in


@pytest.mark.one_in(5)
@pytest.mark.parametrize("kind", ["memory", "host", "disk"])
@pytest.mark.parametrize("rounds", [0, 1])
def test_an_interrupted_merge_is_whole_or_not_at_all(
    kind: str, rounds: int, tmp_path: Path
) -> None:
    """At operations all over the merge.

    In the first round, which makes the moments, and in a later one.
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
        if kind == "disk":
            gist = make(kind, tmp_path / str(n))
        gist = fresh(gist, rounds)
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
    events: list[str] = []

    def interrupted() -> None:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        events.append("whole")

    # Earlier tests may have left another handler.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            do_to_the_end(interrupted)
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)
    assert events == ["whole"]

    def fails_once() -> None:
        events.append("begun")
        if events.count("begun") == 1:
            raise MemoryError
        events.append("whole")

    with pytest.raises(MemoryError):
        do_to_the_end(fails_once)
    assert events == ["whole", "begun", "begun", "whole"]


# The last tests show that a round is written once.


def train(sub: Any, i: int = 0) -> None:
    with torch.no_grad():
        for parameter in sub.parameters():
            parameter.add_(0.1 * (i + 1))


def twice(gist: GIST) -> None:
    """Aggregate after the round, twice."""
    for round_ in gist.rounds(2):
        for i, sub in enumerate(round_):
            train(sub, i)
        first = round_.aggregate({0: {"loss": 1.0, "norm": 6.0}, 1: {"loss": 2.0}})
        assert round_.aggregate() == first == {"loss": 1.5, "norm": 6.0}


def in_the_last_step(gist: GIST) -> None:
    """Aggregate in the loop over sub-GCNs, when the last has trained."""
    for round_ in gist.rounds(2):
        for i, sub in enumerate(round_):
            train(sub, i)
            if i == 1:
                round_.aggregate()


def and_looked_at(gist: GIST) -> None:
    """Aggregate after the round, and go through its sub-GCNs once more."""
    for round_ in gist.rounds(2):
        for i, sub in enumerate(round_):
            train(sub, i)
        round_.aggregate()
        if not round_.streams:
            assert len(list(round_)) == len(round_.subs) == 2


@pytest.mark.one_in(4)
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
    changed = values(gist.theta)["convs.1.weight"] != before
    (columns, rows, *_), (other_columns, other_rows, *_) = round_.blocks
    assert bool(changed[rows][:, columns].all())
    assert not bool(changed[other_rows][:, other_columns].any())


def test_the_best_theta_is_copied_into_the_memory_of_the_last_one() -> None:
    gist = GIST(gcn(), (60, 50), 2)
    storage = gist.theta.place
    storage.keep_best()
    shaken(gist, 1)
    with PeakBytes() as memory:
        storage.keep_best()
    assert memory.peak == 0
    assert same(storage.best, storage.tensors)
