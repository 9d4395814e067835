"""Steps, rates and rounds of a run: counted one by one, as the settings describe them."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from gistgnn.schedule import Schedule
from gistgnn.settings import LONGEST_ROUND, SHORTEST_ROUND, Training

examples = settings(deadline=None, max_examples=60)


@st.composite
def trainings(draw: st.DrawFn) -> Training:
    """Settings of runs, some of them with fractions of epochs."""
    return Training(
        epochs=draw(st.one_of(st.integers(1, 30), st.floats(0.1, 30))),
        local_steps=draw(st.integers(1, 7)),
        training=draw(st.sampled_from(["split", "each"])),
        lr=draw(st.sampled_from([None, 0.3])),
        schedule=draw(st.sampled_from(["constant", "step", "cosine"])),
        evaluate_every=draw(st.one_of(st.just("auto"), st.integers(1, 9))),
    )


def steps_of_each(training: Training, per_epoch: int, m: int) -> int:
    """The steps of each sub-GCN: of the whole run a share, or all; one at least."""
    steps = training.all_epochs * per_epoch
    if training.training == "split":
        steps /= m
    return max(1, round(steps))


@given(lr=st.floats(1e-6, 10), progress=st.floats(0, 1, exclude_max=True))
def test_a_rate_is_constant_or_falls_in_two_steps_or_by_a_cosine(
    lr: float, progress: float
) -> None:
    step = int(progress * 10**6)
    steps = 10**6
    assert Training(1, lr=lr, schedule="constant").rate_at(step, steps) == lr
    tenths = (step >= steps / 2) + (step >= 3 * steps / 4)
    assert Training(1, lr=lr, schedule="step").rate_at(step, steps) == pytest.approx(
        lr / 10**tenths
    )
    cosine = lr * math.cos(math.pi * step / steps / 2) ** 2
    assert Training(1, lr=lr, schedule="cosine").rate_at(step, steps) == pytest.approx(
        cosine, rel=1e-6, abs=1e-12
    )


@given(steps=st.integers(1, 10**6), m=st.integers(2, 64))
def test_chosen_rounds_train_nearly_every_weight(steps: int, m: int) -> None:
    zeta = Training(epochs=1).steps_in_round(steps, m)
    assert SHORTEST_ROUND <= zeta <= LONGEST_ROUND
    rounds = -(-steps // zeta)
    enough = (1 - 1 / m) ** rounds < 0.02 and rounds >= 4 * m
    assert enough or zeta == SHORTEST_ROUND
    longer_would_not_do = steps // (zeta + 1) < 4 * m
    assert longer_would_not_do or zeta == LONGEST_ROUND
    assert Training(epochs=1, local_steps=3).steps_in_round(steps, m) == 3


@pytest.mark.parametrize(("m", "zeta"), [(1, 20), (4, 20), (8, 20), (32, 15), (64, 7), (200, 5)])
def test_steps_of_a_round_are_chosen_by_m_unless_they_are_given(m: int, zeta: int) -> None:
    """Each sub-GCN takes 2,000 steps; one that trains alone has the longest rounds."""
    assert Schedule(Training(10, training="each"), 200, m).local_steps == zeta
    assert Schedule(Training(10, training="each", local_steps=9), 200, m).local_steps == 9


@examples
@given(training=trainings(), per_epoch=st.integers(1, 5), m=st.integers(1, 8))
def test_rounds_follow_each_other(training: Training, per_epoch: int, m: int) -> None:
    """Walks through a run step by step: a round ends after ζ of them, and with the run."""
    schedule = Schedule(training, per_epoch, m)
    steps = steps_of_each(training, per_epoch, m)
    optimizer = training.make_optimizer([nn.Parameter(torch.zeros(2))])
    assert schedule.steps == steps
    steps_of_round = 0
    rounds = 0
    rates = list[float]()
    part = schedule.steps_of(0)
    for step in range(steps):
        assert (part.first, part.total) == (rounds * training.local_steps, steps)
        k = step - part.first
        rates.append(part.rate(training, k))
        part.begin(optimizer, training, k)
        assert optimizer.param_groups[0]["lr"] == pytest.approx(rates[-1])
        steps_of_round += 1
        if steps_of_round == training.local_steps or step == steps - 1:
            assert part.count == steps_of_round
            rounds += 1

            steps_of_round = 0
            assert schedule.epochs_after(rounds) == pytest.approx(
                training.all_epochs * (step + 1) / steps
            )
            part = schedule.steps_of(rounds)
    assert rounds == schedule.rounds
    assert rates == [training.rate_at(step, steps) for step in range(steps)]
    assert schedule.epochs_after(0) == 0
    assert schedule.epochs_after(rounds) == pytest.approx(training.epochs)


@examples
@given(training=trainings(), per_epoch=st.integers(1, 5), m=st.integers(1, 8))
def test_the_model_is_scored_after_every_few_rounds_and_the_last(
    training: Training, per_epoch: int, m: int
) -> None:
    """After every round, if nothing says what a score costs."""
    schedule = Schedule(training, per_epoch, m)
    interval = 1 if training.evaluate_every == "auto" else training.evaluate_every
    assert schedule.evaluate_every == interval
    scored = [
        number for number in range(1, schedule.rounds + 1) if schedule.is_scored_after(number)
    ]
    assert scored == sorted({*range(interval, schedule.rounds + 1, interval), schedule.rounds})


def test_a_billion_epochs_take_no_time_to_count() -> None:
    schedule = Schedule(Training(epochs=10**9, local_steps=5), 10, 4)
    assert schedule.rounds == 5 * 10**8
    assert schedule.steps_of(schedule.rounds - 1).first == schedule.steps - 5
