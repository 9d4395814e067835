"""Table 1, and Figures 4 and 5: which runs are trained, and which are shown."""

from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest

from gistgnn.compare import Record
from gistgnn.graphs import load
from gistgnn.paper.published import TABLE1_ROWS
from gistgnn.paper.small_graphs import RATES, LocalIterations, validation_of
from gistgnn.paper.table1 import CANDIDATES, SEARCH_SEEDS, Table1
from gistgnn.runs import RunConfig
from tests.cli.in_process import run
from tests.paper.finished_runs import EVALUATED, Finished
from tests.report.records import run_record


class Scored(Finished):
    """A store in which every run has the validation and test accuracies that `scores` gives it."""

    def __init__(self, scores: Callable[[RunConfig], tuple[float, float]]) -> None:
        super().__init__(Path(), "data")
        self.scores = scores

    def get(self, config: RunConfig) -> Record:
        validation, test = self.scores(config)
        return run_record(
            validation={"accuracy": validation},
            test={"accuracy": test + 0.02 * config.seed},
            history=[{**EVALUATED, "test": test + best} for best in (0.0, 0.1, 0.05)],
        )


def plain(cells: list[str]) -> list[str]:
    return [cell.replace("\N{NO-BREAK SPACE}", " ") for cell in cells]


def test_each_cell_has_its_own_rate_and_shows_its_own_runs() -> None:
    def scores(run: RunConfig) -> tuple[float, float]:
        best_rate = 0.05 if run.sub_gcns == 2 else 0.1
        validation = 0.9 if run.training.lr == best_rate else 0.5
        local_steps = cast(int, run.training.local_steps)
        return validation, run.sub_gcns / 100 + local_steps / 1000

    store = Scored(scores)
    [table] = LocalIterations.at(
        "local-iterations", "small", seeds=1, local_steps=(1, 5), sub_gcns=(2, 8)
    ).run(store)
    assert table.rows == [
        ["cora", "2", "2.10 (0.05)", "2.50 (0.05)"],
        ["cora", "8", "8.10 (0.1)", "8.50 (0.1)"],
    ]
    assert len(store.asked) == 2 * 2 * len(RATES["small"])
    assert {(run.training.training, run.training.evaluate_every) for run in store.asked} == {
        ("split", 1)
    }
    assert [series.y for series in table.charts[0].series] == [
        pytest.approx([2.1, 2.5]),
        pytest.approx([8.1, 8.5]),
    ]
    scored = run_record(validation={"accuracy": 0.8})
    diverged_at_once = run_record(validation={})
    assert validation_of([scored, diverged_at_once]) == 0.4


@pytest.mark.parametrize(
    ("scale", "searched"), [("small", SEARCH_SEEDS[:1]), ("full", SEARCH_SEEDS)]
)
def test_a_row_of_table1_chooses_on_seeds_of_its_own_and_says_what(
    scale: str, searched: tuple[int, ...]
) -> None:
    def scores(run: RunConfig) -> tuple[float, float]:
        best = (0.1, 0.0) if run.sub_gcns == 8 else (0.05, 5e-4)
        is_best = (run.training.lr, run.training.weight_decay) == best
        return (0.9 if is_best else 0.5), 0.5

    store = Scored(scores)
    [table] = Table1.at("table1", scale, seeds=2, datasets=("cora",)).run(store)
    rows = table.rows
    assert [(row[1], row[5]) for row in rows[len(TABLE1_ROWS) :]] == [
        (m, "whole") for m in ("baseline", *"248")
    ]
    assert {tuple(row[-2:]) for row in rows if row[1] != "8"} == {("0.05", "0.0005")}
    assert {run.seed for run in store.asked} == {*searched, 0, 1}
    cells = ["cora", "8", "", "✓", "✓", "none"]
    cells += ["51.00 ± 1.41", "60.00 ± 0.00", "79.58 ± 0.60", "0.1", "0"]
    assert plain(list(rows[TABLE1_ROWS.index((8, (1, 2)))])) == cells


def test_each_row_of_table1_splits_what_it_says() -> None:
    graph = load("digits")
    for index, (m, dims) in enumerate(TABLE1_ROWS):
        config = Table1.at("table1", "full").config(("cora", index, "none"), 0.01, 0.0)
        gist = config.trainer(graph.num_features, graph.num_classes)
        assert gist.sub_gcns == m
        assert config.training.steps(1, m) == 400 / m
        shapes = [tuple(conv.weight.shape) for conv in gist.begin_round().subs[0].convs]
        d = [graph.num_features // m if 0 in dims else graph.num_features]
        d += [256 // m if dim in dims else 256 for dim in (1, 2)] + [graph.num_classes]
        assert shapes == [(d[1], d[0]), (d[2], d[1]), (d[3], d[2])]


def test_table1_is_written_and_goes_on_from_what_is_finished(
    tmp_path: Path,
    shared_data: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    out = tmp_path / "table1"
    monkeypatch.setitem(CANDIDATES, "small", CANDIDATES["small"][:1])
    options = ("--datasets", "cora", "--epochs", 2, "--seeds", 1)
    words = ("reproduce", "table1", *options, "--data-root", shared_data, "--out", out)
    assert run(*words) == 0, capsys.readouterr().err
    assert "baseline" in capsys.readouterr().out
    lost, *remaining = sorted(out.glob("runs/cora*.json"))
    lost.unlink()
    times = [path.stat().st_mtime_ns for path in remaining]
    assert run(*words) == 0
    assert lost.exists()
    assert [path.stat().st_mtime_ns for path in remaining] == times
    lines = (out / "table1.md").read_text().splitlines()
    assert len([line for line in lines if line.startswith("| cora")]) == len(TABLE1_ROWS) + 4
    assert any("79.58" in line for line in lines)
