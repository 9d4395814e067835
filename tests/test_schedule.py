"""Steps, rates and rounds of a run: counted one by one, as the settings describe them."""

import math
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gistgnn.schedule import Schedule
from gistgnn.settings import LONGEST_ROUND, SHORTEST_ROUND, Phase, Training

examples = settings(deadline=None, max_examples=30)


@st.composite
def trainings(draw: st.DrawFn) -> Training:
    """Runs of one to four phases, with settings that go together."""
    zero = draw(st.booleans())
    phases, copies = [], zero
    for _ in range(draw(st.integers(1, 4))):
        copies = copies and draw(st.booleans())
        m = 4 if copies else draw(st.sampled_from([1, 2, 4, 8]))
        redraw = None if copies else draw(st.sampled_from([None, 0, 1, 2, 3]))
        lr, schedule = draw(st.sampled_from([None, 0.3])), draw(st.sampled_from([None, "step", "cosine"]))
        phases.append(Phase(m, draw(st.integers(1, 9)), lr, schedule, redraw, copies))
    return Training(
        phases=tuple(phases),
        local_steps=draw(st.integers(1, 4)),
        training=draw(st.sampled_from(["split", "each"])),
        redraw_every=draw(st.sampled_from([0, 1, 2])),
        optimizer_state=draw(st.sampled_from(["reset", "carry"])),
        cross_weights="zero" if zero else "random",
    )


def told(training: Training, per_epoch: int) -> list[dict[str, Any]]:
    """The rounds of a run, by walking through it step by step."""
    found: list[dict[str, Any]] = []
    steps = epochs = 0
    draw = -1
    for phase in training.phases:
        trained = 1 if phase.copies else phase.sub_gcns
        total = phase.epochs * per_epoch
        total = max(1, round(total / trained)) if training.training == "split" else total
        every = 0 if phase.copies else training.redraw_every if phase.redraw_every is None else phase.redraw_every
        done = 0
        while done < total:
            place, count = done // training.local_steps, min(training.local_steps, total - done)
            redrawn = draw < 0 or (every > 0 and place % every == 0)
            draw += redrawn
            done += count
            found.append(
                {
                    "first": steps,
                    "count": count,
                    "draw": draw,
                    "m": phase.sub_gcns,
                    "workers": trained,
                    "copies": phase.copies,
                    "lasting": every != 1,
                    "begins": place == 0,
                    "redrawn": redrawn,
                    "epoch": epochs + phase.epochs * done / total,
                    "total": total,
                    "taken": range(done - count, done),
                    "lr": training.lr if phase.lr is None else phase.lr,
                    "schedule": phase.schedule or training.schedule,
                }
            )
            steps += count
        epochs += phase.epochs
    return found


@given(epochs=st.integers(1, 500), per_epoch=st.integers(1, 20), m=st.integers(1, 32))
def test_steps(epochs: int, per_epoch: int, m: int) -> None:
    each = Training(epochs, training="each").steps(per_epoch, m)
    split = Training(epochs).steps(per_epoch, m)
    assert each == epochs * per_epoch
    assert split >= 1
    assert split == 1 or abs(m * split - each) <= m / 2  # together the baseline's steps, to within rounding


@given(lr=st.floats(1e-6, 10), progress=st.floats(0, 1, exclude_max=True))
def test_rates(lr: float, progress: float) -> None:
    step, steps = int(progress * 10**6), 10**6
    assert Training(1, lr=lr).rate_at(step, steps) == lr
    tenths = 0 if step < steps / 2 else 1 if step < 3 * steps / 4 else 2
    assert Training(1, lr=lr, schedule="step").rate_at(step, steps) == pytest.approx(lr / 10**tenths)
    cosine = lr * math.cos(math.pi * step / steps / 2) ** 2
    assert Training(1, lr=lr, schedule="cosine").rate_at(step, steps) == pytest.approx(cosine, rel=1e-6, abs=1e-12)


@given(steps=st.integers(1, 10**6), m=st.integers(2, 64), every=st.integers(1, 4))
def test_chosen_rounds_train_nearly_every_weight(steps: int, m: int, every: int) -> None:
    zeta = Training(epochs=1, redraw_every=every).steps_in_round(steps, m)
    assert SHORTEST_ROUND <= zeta <= LONGEST_ROUND
    draws = -(-steps // zeta) // every
    enough = (1 - 1 / m) ** draws < 0.02 and draws >= 4 * m
    assert enough or zeta == SHORTEST_ROUND
    longer_would_not_do = steps // (zeta + 1) < 4 * m * every
    assert longer_would_not_do or zeta == LONGEST_ROUND
    assert Training(epochs=1, local_steps=3).steps_in_round(steps, m) == 3


def test_steps_of_a_round_are_chosen_for_every_phase() -> None:
    phases = (Phase(8, 2, copies=True), Phase(8, 100, redraw_every=0), Phase(4, 8), Phase(2, 100, redraw_every=2))
    training = Training(phases=(*phases, Phase(1, 3)), redraw_every=1, cross_weights="zero")
    schedule = Schedule(training, 60, 8)
    assert schedule.local_steps == [20, 20, 7, 20, 20]
    assert [schedule.plan(0).local_steps, schedule.plan(schedule.rounds - 1).local_steps] == [20, 20]
    given_ = Training(phases=training.phases, local_steps=9, cross_weights="zero")
    assert Schedule(given_, 60, 8).local_steps == [9] * 5


@examples
@given(training=trainings(), per_epoch=st.integers(1, 5))
def test_phases_follow_each_other(training: Training, per_epoch: int) -> None:
    schedule, expected = Schedule(training, per_epoch, 3), told(training, per_epoch)
    assert schedule.rounds == len(expected)
    for number, round_ in enumerate(expected):
        plan = schedule.plan(number)
        assert (plan.steps.first, plan.steps.count) == (round_["first"], round_["count"])
        assert (plan.draw, plan.sub_gcns, plan.workers) == (round_["draw"], round_["m"], round_["workers"])
        assert (plan.copies, plan.lasting) == (round_["copies"], round_["lasting"])
        assert plan.epoch == pytest.approx(round_["epoch"])
        own = Training(1, lr=round_["lr"], schedule=round_["schedule"])
        rates = [plan.steps.rate(plan.training, k) for k in range(plan.steps.count)]
        assert rates == [own.rate_at(step, round_["total"]) for step in round_["taken"]]
        assert plan.rate == rates[-1]
    assert plan.epoch == training.epochs


@examples
@given(training=trainings(), per_epoch=st.integers(1, 5), data=st.data())
def test_draws_are_counted_by_what_shares_them(training: Training, per_epoch: int, data: st.DataObject) -> None:
    schedule, every = Schedule(training, per_epoch, 3), told(training, per_epoch)
    rounds = data.draw(st.integers(0, schedule.rounds))
    shared: dict[int, Counter[int]] = {}
    for round_ in every[:rounds]:
        shared.setdefault(round_["draw"], Counter())[round_["m"]] += 1
    found = Counter({frozenset(kind): n for kind, n in schedule.draws(rounds).items()})
    assert found == Counter(frozenset(counts.items()) for counts in shared.values())
    assert sum(n * each for kind, n in schedule.draws(rounds).items() for _, each in kind) == rounds


@examples
@given(
    epochs=st.integers(1, 30),
    per_epoch=st.integers(1, 5),
    m=st.integers(1, 6),
    zeta=st.integers(1, 7),
    kind=st.sampled_from(["split", "each"]),
    schedule=st.sampled_from(["constant", "step", "cosine"]),
)
def test_without_phases_a_run_is_that_of_the_paper(
    epochs: int, per_epoch: int, m: int, zeta: int, kind: str, schedule: str
) -> None:
    training = Training(epochs, zeta, kind, schedule=schedule)
    rounds, steps = Schedule(training, per_epoch, m), training.steps(per_epoch, m)
    assert rounds.rounds == -(-steps // zeta)
    for t in range(rounds.rounds):
        plan = rounds.plan(t)
        assert (plan.steps.first, plan.steps.count) == (t * zeta, min(zeta, steps - t * zeta))
        assert (plan.draw, plan.sub_gcns, plan.workers) == (t, None, m)
        assert (plan.copies, plan.lasting, plan.fresh) == (False, False, t == 0)
        assert plan.training == replace(training, evaluate_every=1)
        assert plan.rate == training.rate_at(t * zeta + plan.steps.count - 1, steps)
        assert plan.epoch == pytest.approx(epochs * (t * zeta + plan.steps.count) / steps)
    assert rounds.draws(rounds.rounds) == Counter({((None, 1),): rounds.rounds})


def test_a_billion_epochs_take_no_time_to_count() -> None:
    schedule = Schedule(Training(epochs=10**9, local_steps=5, redraw_every=3), 10, 4)
    assert schedule.rounds == 5 * 10**8
    assert schedule.draws(schedule.rounds) == {((None, 3),): schedule.rounds // 3, ((None, 2),): 1}
