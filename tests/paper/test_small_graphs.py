"""Figures 4 and 5, and what Table 1 shares with them: which runs are trained, and which are shown."""

from collections.abc import Callable
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gistgnn.compare.many_runs import RunStore
from gistgnn.errors import InputError
from gistgnn.paper.figures4_5 import RATES, DepthWidth, LocalIterations
from gistgnn.paper.small_graphs import validation_of
from gistgnn.paper.table1 import PAPER, ROWS, SEARCH_SEEDS, Table1
from gistgnn.runs.config import RunConfig

Scores = Callable[[RunConfig], tuple[float, float]]  # validation and test accuracy of a run


class Finished:
    """A store in which every run is finished."""

    def __init__(self, scores: Scores) -> None:
        self.scores, self.asked = scores, list[RunConfig]()

    def run_all(self, configs: list[RunConfig], jobs: int, label: str) -> list[dict[str, Any]]:
        self.asked += configs
        found = map(self.scores, configs)
        return [
            {
                "graph": {},
                "validation": {"accuracy": validation},
                "test": {"accuracy": test},
                "history": [{"test": test}],
            }
            for validation, test in found
        ]


def finished(scores: Scores) -> tuple[RunStore, Finished]:
    store = Finished(scores)
    return cast(RunStore, store), store


@given(validation=st.permutations([0.5, 0.6, 0.7, 0.8]), test=st.permutations([0.1, 0.2, 0.3, 0.4]))
def test_a_cell_chooses_its_rate_by_validation_accuracy(validation: list[float], test: list[float]) -> None:
    rates = RATES["full"]
    store, _ = finished(lambda run: (validation[place := rates.index(run.training.lr)], test[place]))
    figure = DepthWidth.at("full", datasets=("cora",), seeds=2, layers=(2, 3), widths=(16, 32))
    best = max(range(len(rates)), key=lambda place: validation[place])
    cell = f"{100 * test[best]:.2f} ± 0.00 ({rates[best]:g})"
    rows = [[text.replace("\N{NO-BREAK SPACE}", " ") for text in row] for row in figure.run(store).rows]
    assert rows == [["cora", "2", cell, cell], ["cora", "3", cell, cell]]


def test_each_cell_has_its_own_rate_and_shows_its_own_runs() -> None:
    def scores(run: RunConfig) -> tuple[float, float]:
        right = run.training.lr == (0.05 if run.sub_gcns == 2 else 0.1)
        return (0.9 if right else 0.5), run.sub_gcns / 100 + cast(int, run.training.local_steps) / 1000

    store, asked = finished(scores)
    figure = LocalIterations.at("small", seeds=1, local_steps=(1, 5), sub_gcns=(2, 8))
    outcome = figure.run(store)
    assert outcome.rows == [["cora", "2", "2.10 (0.05)", "2.50 (0.05)"], ["cora", "8", "8.10 (0.1)", "8.50 (0.1)"]]
    assert len(asked.asked) == 2 * 2 * len(RATES["small"])
    assert [series.y for series in outcome.charts[0].series] == [pytest.approx([2.1, 2.5]), pytest.approx([8.1, 8.5])]


def test_a_run_that_diverged_at_once_counts_as_nothing() -> None:
    assert validation_of([{"validation": {"accuracy": 0.8}}, {"validation": None}]) == 0.4


def test_the_paper_s_training_is_split() -> None:
    for experiment, runs in (
        (Table1, Table1.at("full").config("cora", 9, 0.1, 0.0, 0)),
        (LocalIterations, LocalIterations.at("full")._run_of("cora", 8, 20, 0.1)),
        (DepthWidth, DepthWidth.at("full")._run_of("cora", 2, 16, 0.1)),
    ):
        assert runs.training.training == "split", experiment
    steps = Table1.at("full").config("cora", ROWS.index((8, (1, 2))), 0.1, 0.0, 0).training.steps(1, 8)
    assert steps == 400 / 8


@pytest.mark.parametrize("kind", [Table1, LocalIterations])
def test_all_epochs_for_each_are_labelled(kind: type[Table1] | type[LocalIterations]) -> None:
    store, asked = finished(lambda run: (0.5, 0.5))
    extra = kind.at("small", seeds=1, training="each").run(store)
    assert {run.training.training for run in asked.asked} == {"each"}
    assert "an extra" in extra.note
    assert all(verdict.claim.startswith("extra, ") for verdict in extra.verdicts)
    paper = kind.at("small", seeds=1).run(finished(lambda run: (0.5, 0.5))[0])
    assert "split over the sub-GCNs" in paper.note
    assert not any("extra" in verdict.claim for verdict in paper.verdicts)
    if kind is Table1:
        assert [row[1] for row in extra.rows[:4]] == ["baseline", "2, each", "2, each", "2, each"]


def test_an_unknown_training_is_refused() -> None:
    with pytest.raises(InputError, match="training is 'both', expected one of split, each"):
        Table1.at("small", training="both").config("cora", 0, 0.1, 0.0, 0)


def test_a_row_of_table1_chooses_on_seeds_of_its_own() -> None:
    def scores(run: RunConfig) -> tuple[float, float]:
        best = (0.1, 0.0) if run.sub_gcns == 8 else (0.05, 5e-4)
        return (0.9 if (run.training.lr, run.training.weight_decay) == best else 0.5), 0.5

    store, asked = finished(scores)
    rows = Table1.at("small", seeds=2).run(store).rows
    assert {tuple(row[-2:]) for row in rows if row[1] == "8"} == {("0.1", "0")}
    assert {tuple(row[-2:]) for row in rows if row[1] != "8"} == {("0.05", "0.0005")}
    assert {run.seed for run in asked.asked} == {SEARCH_SEEDS[0], 0, 1}
    assert len(rows) == len(PAPER["cora"])
