"""The arithmetic of the frontier, and the report of invented runs."""

import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.frontier_points import Frontier, Point, budgets, gain, points_of
from benchmarks.frontier_report import report

RUNS = st.lists(st.tuples(st.integers(1, 1000).map(float), st.integers(0, 100).map(float)), min_size=1, max_size=12)


def a_run(kind: str, seconds: float, test: float | None, seed: int = 0, **more: Any) -> dict[str, Any]:
    times = {"train_seconds": seconds, "total_seconds": 2 * seconds}
    case = {"dataset": "d", "model": "gcn", "hidden": [8], "clusters": None, "precision": "float32"}
    case |= {"inductive": False, "standardise": False}
    machine = {"cpu": "C", "gpu": None, "threads": 1, "torch": "2", "python": "3"}
    setting = {"kind": kind, **more}
    return {
        "case": case,
        "setting": setting,
        "seed": seed,
        "test": test,
        "last": test,
        "graph": "G",
        "machine": machine,
        **times,
    }


def ordinary(seconds: float, test: float | None, seed: int = 0, lr: float = 0.01) -> dict[str, Any]:
    return a_run("ordinary", seconds, test, seed, epochs=round(seconds), lr=lr)


def a_recipe(seconds: float, test: float | None, seed: int = 0) -> dict[str, Any]:
    return a_run("recipe", seconds, test, seed, phases=f"8:{seconds:g},copies")


def test_between_runs_the_score_is_interpolated_in_the_logarithm_of_time() -> None:
    line = Frontier([(1.0, 80.0), (100.0, 90.0)])
    assert line.at(10.0) == pytest.approx(85.0)
    assert line.reaches(85.0) == pytest.approx(10.0)
    assert line.at(1e6) == 90.0
    assert line.at(0.9) is None
    assert line.reaches(90.1) is None
    assert line.reaches(10.0) == pytest.approx(1.0)


def test_runs_that_are_not_better_than_a_shorter_one_are_not_on_the_frontier() -> None:
    assert Frontier([(3.0, 70.0), (2.0, 80.0), (1.0, 80.0), (4.0, 81.0)]).points == [(1.0, 80.0), (4.0, 81.0)]
    assert Frontier([(1.0, 80.0), (1.0, 82.0), (1.0, 81.0)]).points == [(1.0, 82.0)]
    assert Frontier([]).at(1.0) is None
    assert Frontier([]).reaches(1.0) is None


@given(RUNS)
def test_no_run_is_above_the_frontier_and_every_corner_is_a_run(runs: list[tuple[float, float]]) -> None:
    line = Frontier(runs)
    assert set(line.points) <= set(runs)
    for seconds, score in runs:
        found = line.at(seconds)
        assert found is not None
        assert found >= score - 1e-9
        reached = line.reaches(score)
        assert reached is not None
        assert reached <= seconds * (1 + 1e-9)


@given(RUNS, st.floats(0.5, 2e3), st.floats(1.0, 100.0))
def test_more_time_is_never_worse(runs: list[tuple[float, float]], seconds: float, factor: float) -> None:
    line = Frontier(runs)
    before, after = (line.at(t) or -math.inf for t in (seconds, seconds * factor))
    assert after >= before - 1e-9


@given(RUNS, st.floats(0.001, 0.999))
def test_the_time_of_a_score_is_the_inverse_of_the_score_at_a_time(
    runs: list[tuple[float, float]], share: float
) -> None:
    line = Frontier(runs)
    score = line.points[0][1] + share * (line.points[-1][1] - line.points[0][1])
    seconds = line.reaches(score)
    assert seconds is not None
    assert line.at(seconds * (1 + 1e-12)) == pytest.approx(score, abs=1e-6)


def test_a_recipe_is_compared_at_equal_time_and_at_equal_score() -> None:
    line = Frontier([(1.0, 80.0), (100.0, 90.0)])
    found = gain(line, 5.0, 85.0)
    assert found.points == pytest.approx(85.0 - line.at(5.0))
    assert (found.saved, found.bound, found.too_short) == (pytest.approx(2.0), "", False)


def test_a_recipe_outside_the_frontier_says_so() -> None:
    line = Frontier([(1.0, 80.0), (100.0, 90.0)])
    above = gain(line, 10.0, 91.0)
    assert (above.points, above.saved, above.bound) == (pytest.approx(6.0), pytest.approx(10.0), ">")
    short = gain(line, 0.5, 81.0)
    assert (short.points, short.too_short, short.bound) == (pytest.approx(1.0), True, "")
    below = gain(line, 2.0, 79.0)
    assert (below.saved, below.bound) == (pytest.approx(0.5), "<")


def test_settings_are_averaged_over_seeds() -> None:
    runs = [ordinary(4.0, 0.80), ordinary(4.0, 0.90, 1) | {"train_seconds": 6.0}, ordinary(4.0, 0.1, lr=0.5)]
    runs += [ordinary(9.0, None), ordinary(9.0, 0.9, 1)]
    first, other, diverged = sorted(points_of(runs), key=lambda point: (point.test is None, -(point.test or 0)))
    assert (first.test, first.seconds["train"], first.seeds) == (pytest.approx(85.0), 5.0, 2)
    assert first.deviation == pytest.approx(100 * 0.1 / math.sqrt(2))
    assert (other.deviation, other.seeds) == (None, 1)
    assert (diverged.test, diverged.seeds) == (None, 2)
    assert all(score != 90.0 for _, score in Frontier.of([first, other, diverged], "ordinary", "train").points)


def test_budgets_are_the_times_of_the_ordinary_frontier() -> None:
    points = points_of([ordinary(4.0, 0.8), ordinary(16.0, 0.9), ordinary(9.0, 0.1), a_recipe(4.0, 0.84)])
    points += [Point("recipe", "r", {"train": 16.0, "total": 32.0}, 92.0, 92.0, None, 1)]
    (first, second) = budgets(points, "train")
    assert first == (4.0, 80.0, pytest.approx(84.0), None)
    assert second == (16.0, 90.0, pytest.approx(92.0), pytest.approx(88.0))


def test_the_report_has_the_gains_and_says_where_there_is_no_run_so_short(tmp_path: Path) -> None:
    runs = [ordinary(1.0, 0.80), ordinary(100.0, 0.90), ordinary(50.0, 0.1, lr=1.0)]
    runs += [a_recipe(10.0, 0.91), a_recipe(0.5, 0.815)]
    text = report(runs, tmp_path / "plot.png")
    assert "| ordinary, 1 epochs, lr 0.01 | 1.00 * | 2.00 * | 80.00 | 80.00 | 1 |" in text
    assert "| ordinary, 50 epochs, lr 1 | 50.0 | 100 | 10.00 | 10.00 | 1 |" in text
    assert "| `8:10,copies` | +6.00 | +6.00 | > 10.00× | > 10.00× |" in text
    assert "| `8:0.5,copies` | +1.50 † | +1.50 † | 3.99× | 3.99× |" in text
    assert "| 100 | 90.00 | 91.00 | +1.00 | 91.00 | +1.00 |" in text
    goal = 10 ** (2 * 0.98), 0.5 * 20 ** (8.3 / 9.5)
    assert f"ordinary {goal[0]:.1f} s, recipes {goal[1]:.2f} s: {goal[0] / goal[1]:.2f}×" in text
    assert "Least points won at a budget: +1.00 at 100 s (2 of 2 have a recipe so short)" in text
    assert "in half the time: +1.00 at 100 s (2 of 2)" in text
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")


def test_the_report_of_runs_that_cannot_be_compared_is_their_table(tmp_path: Path) -> None:
    for runs in ([], [a_recipe(1.0, 0.9)], [ordinary(1.0, 0.9)], [ordinary(1.0, None), a_recipe(1.0, 0.9)]):
        assert "##" not in report(runs, tmp_path / "plot.png")
    assert "diverged" in report([ordinary(1.0, None)])


def test_a_recipe_is_compared_with_a_narrow_model_too() -> None:
    runs = [ordinary(1.0, 0.80), a_recipe(10.0, 0.91), a_run("narrow", 10.0, 0.92, part=8, epochs=9, lr=0.1)]
    text = report(runs)
    assert "points over narrow at equal time, training only" in text
    assert "| `8:10,copies` | +11.00 | +11.00 | > 0.10× | > 0.10× | -1.00 | -1.00 |" in text
    assert "narrow at equal time" not in report(runs[:2])


def test_two_graphs_have_two_sections_and_plots(tmp_path: Path) -> None:
    other = ordinary(1.0, 0.5)
    other["case"] = other["case"] | {"dataset": "another"}
    text = report([ordinary(1.0, 0.9), other], tmp_path / "plot.png")
    assert text.count("\n\n# ") == 1
    assert "| ordinary, 1 epochs, lr 0.01 | 1.00 * | 2.00 * | 50.00 | 50.00 | 1 |" in text
    assert {path.name for path in tmp_path.iterdir()} == {"plot.png", "plot-2.png"}
