"""The time that is left of a run."""

import pytest

from gistgnn.phases import Phase
from gistgnn.schedule import Schedule
from gistgnn.session.pace import Pace
from gistgnn.settings import Training


def left_along(
    schedule: Schedule, step_seconds: float, evaluation: float, *, together: bool
) -> list[tuple[float, float]]:
    """Go through a run with a clock of its own; return the true seconds that were left, and the estimates."""
    now = [0.0]
    pace, seen = Pace(0, clock=lambda: now[0]), []
    for number in range(schedule.rounds):
        plan = schedule.plan(number)
        narrow = (plan.sub_gcns or 1) if plan.sub_gcns else 1
        for _ in range(plan.stretch.count * (1 if together else plan.workers)):
            now[0] += step_seconds / narrow * (plan.workers if together else 1)
            pace.step(plan)
            seen.append((now[0], pace.left(schedule)))
        pace.round_over(plan)
        if pace.evaluates(plan, number + 1):
            now[0] += evaluation
            pace.evaluated()
        seen.append((now[0], pace.left(schedule)))
    return [(now[0] - when, left) for when, left in seen]


@pytest.mark.parametrize("together", [False, True])
def test_a_steady_run_is_predicted_from_the_first_round_on(together: bool) -> None:
    schedule = Schedule(Training(epochs=40, local_steps=5, evaluate_every=2), 3, 4)
    seen = left_along(schedule, 0.01, 0.5, together=together)
    after_first_evaluation = seen[len(seen) // 3 :]
    for true, estimate in after_first_evaluation:
        assert estimate == pytest.approx(true, abs=0.02)
    assert seen[-1][1] == 0


def test_phases_with_wider_sub_gcns_are_expected_to_take_longer() -> None:
    phases = (Phase(8, 16), Phase(1, 4))
    schedule = Schedule(Training(epochs=0, phases=phases, local_steps=2), 4, 8)
    for true, estimate in left_along(schedule, 1.0, 0.0, together=False)[3:]:
        assert estimate == pytest.approx(true, rel=0.01, abs=1.1)


def test_nothing_is_known_before_the_first_step() -> None:
    schedule = Schedule(Training(epochs=4), 3, 2)
    assert Pace(0).left(schedule) is None
    assert Pace(schedule.rounds).left(schedule) == 0


def test_what_a_runner_says_counts_until_a_round_has_shown_it() -> None:
    schedule = Schedule(Training(epochs=40, local_steps=5), 3, 4)
    pace, plan = Pace(0), schedule.plan(0)
    assert pace.expected(plan) == 20
    pace.learn(None)
    assert pace.expected(plan) == 20
    pace.learn(True)
    assert pace.expected(plan) == 5
    pace.learn(False)
    assert pace.expected(plan) == 20
    pace.learn(True)
    for _ in range(20):
        pace.step(plan)
    pace.round_over(plan)
    pace.learn(True)
    assert pace.expected(plan) == 20
