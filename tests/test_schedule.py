"""Steps, rates and rounds of a run: counted one by one, as the settings describe them."""

import math
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gistgnn.schedule import Schedule
from gistgnn.settings import LONGEST_ROUND, SHORTEST_ROUND, Phase, Training

examples = settings(deadline=None, max_examples=30)


@st.composite
def trainings(draw: st.DrawFn) -> Training:
    """Runs without phases, and of one to four phases, with settings that go together."""
    zero = draw(st.booleans())
    phases, copies = [], zero
    for _ in range(draw(st.integers(0, 4))):
        copies = copies and draw(st.booleans())
        m = 4 if copies else draw(st.sampled_from([1, 2, 4, 8]))
        redraw = None if copies else draw(st.sampled_from([None, 0, 1, 2, 3]))
        lr, schedule = draw(st.sampled_from([None, 0.3])), draw(st.sampled_from([None, "step", "cosine"]))
        phases.append(Phase(m, draw(st.integers(1, 9)), lr, schedule, redraw, copies))
    return Training(
        epochs=None if phases else draw(st.integers(1, 30)),
        phases=tuple(phases),
        local_steps=draw(st.integers(1, 4)),
        training=draw(st.sampled_from(["split", "each"])),
        redraw_every=draw(st.sampled_from([0, 1, 2])),
        optimizer_state=draw(st.sampled_from(["reset", "carry"])),
        cross_weights="zero" if zero else "random",
    )


Round = tuple[dict[str, Any], tuple[int, int], float, list[float]]  # of a plan; first step and count; epoch; rates


def told(training: Training, per_epoch: int, workers: int) -> list[Round]:
    """The rounds of a run, by walking through it step by step."""
    found: list[Round] = []
    steps = epochs = 0
    draw = -1
    for phase in training.phases or [Phase(workers, training.all_epochs)]:
        trained = 1 if phase.copies else phase.sub_gcns
        total = phase.epochs * per_epoch
        total = max(1, round(total / trained)) if training.training == "split" else total
        every = 0 if phase.copies else training.redraw_every if phase.redraw_every is None else phase.redraw_every
        rate = Training(1, lr=phase.lr or training.lr, schedule=phase.schedule or training.schedule).rate_at
        done = 0
        while done < total:
            place, count = done // training.local_steps, min(training.local_steps, total - done)
            redrawn = draw < 0 or (every > 0 and place % every == 0)
            draw += redrawn
            anew = redrawn and every != 1 and trained > 1 and training.optimizer_state == "reset"
            own = {"draw": draw, "sub_gcns": phase.sub_gcns if training.phases else None, "workers": trained}
            own |= {"copies": phase.copies, "fresh": place == 0 or anew}
            rates = [rate(step, total) for step in range(done, done + count)]
            done += count
            found.append((own, (steps, count), epochs + phase.epochs * done / total, rates))
            steps += count
        epochs += phase.epochs
    return found


@given(lr=st.floats(1e-6, 10), progress=st.floats(0, 1, exclude_max=True))
def test_rates(lr: float, progress: float) -> None:
    step, steps = int(progress * 10**6), 10**6
    assert Training(1, lr=lr, schedule="constant").rate_at(step, steps) == lr
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
@given(training=trainings(), per_epoch=st.integers(1, 5), m=st.integers(1, 6))
def test_rounds_and_phases_follow_each_other(training: Training, per_epoch: int, m: int) -> None:
    schedule, expected = Schedule(training, per_epoch, m), told(training, per_epoch, m)
    assert schedule.rounds == len(expected)
    for number, (own, steps, epoch, rates) in enumerate(expected):
        plan = schedule.plan(number)
        assert {name: getattr(plan, name) for name in own} == own
        assert (plan.steps.first, plan.steps.count) == steps
        assert plan.epoch == pytest.approx(epoch)
        assert [plan.steps.rate(plan.training, k) for k in range(plan.steps.count)] == rates
    assert plan.epoch == training.epochs


@examples
@given(training=trainings(), per_epoch=st.integers(1, 5), data=st.data())
def test_draws_are_counted_by_what_shares_them(training: Training, per_epoch: int, data: st.DataObject) -> None:
    schedule, every = Schedule(training, per_epoch, 3), told(training, per_epoch, 3)
    rounds = data.draw(st.integers(0, schedule.rounds))
    shared: dict[int, Counter[int]] = {}
    for own, *_ in every[:rounds]:
        shared.setdefault(own["draw"], Counter())[own["sub_gcns"]] += 1
    found = Counter({frozenset(kind): n for kind, n in schedule.draws(rounds).items()})
    assert found == Counter(frozenset(counts.items()) for counts in shared.values())


def test_a_billion_epochs_take_no_time_to_count() -> None:
    schedule = Schedule(Training(epochs=10**9, local_steps=5, redraw_every=3), 10, 4)
    assert schedule.rounds == 5 * 10**8
    assert schedule.draws(schedule.rounds) == {((None, 3),): schedule.rounds // 3, ((None, 2),): 1}
