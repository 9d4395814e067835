import signal
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gistgnn.compare import finished
from gistgnn.compare.many_runs import RunStore
from gistgnn.errors import InputError
from gistgnn.graphs import load
from gistgnn.paper.table1 import CANDIDATES, PAPER, ROWS, Table1, row_of
from gistgnn.runs.config import ModelConfig, RunConfig
from gistgnn.settings import Training
from tests.cli.in_process import run
from tests.helpers.commands import start_command


def test_the_rows_are_the_paper_s() -> None:
    assert len(ROWS) == 10
    assert ROWS[0] == (1, ())
    assert {row for row in ROWS if row[0] == 8} == {(8, (0, 1, 2)), (8, (0, 1)), (8, (1, 2))}
    assert PAPER["cora"][ROWS.index((8, (1, 2)))] == 79.58
    assert PAPER["citeseer"][ROWS.index((8, (0, 1, 2)))] == 45.42
    assert all(len(values) == len(ROWS) for values in PAPER.values())


@pytest.mark.parametrize("index", range(len(ROWS)))
def test_each_row_splits_what_it_says(index: int) -> None:
    graph = load("digits")
    m, dims = ROWS[index]
    gist = Table1.at("small").config("cora", index, 0.01, 0.0, 0).trainer(graph.num_features, graph.num_classes)
    assert gist.sub_gcns == m
    sub = gist.begin_round().subs[0]
    shapes = [tuple(conv.weight.shape) for conv in sub.convs]
    d = [graph.num_features // m if 0 in dims else graph.num_features]
    d += [256 // m if dim in dims else 256 for dim in (1, 2)] + [graph.num_classes]
    assert shapes == [(d[1], d[0]), (d[2], d[1]), (d[3], d[2])]


def _config(seed: int) -> RunConfig:
    return RunConfig("digits", ModelConfig(hidden=(4,)), sub_gcns=2, seed=seed, training=Training(2, 1))


def test_a_run_is_done_once(tmp_path: Path) -> None:
    store = RunStore(tmp_path, "data")
    (first,) = store.run_all([_config(0)], 1, "runs")
    (path,) = tmp_path.iterdir()
    finished.write(path, first | {"mark": True})
    again = store.run_all([_config(0), _config(1)], 2, "runs")
    assert again[0]["mark"]
    assert "mark" not in again[1]
    path.write_text(path.read_text()[:100])  # cut short: done again
    assert "mark" not in store.run_all([_config(0)], 1, "runs")[0]


def test_a_stored_run_trains_as_its_configuration_says(tmp_path: Path) -> None:
    plain = _config(0)
    changes: list[dict[str, Any]] = [{}, {"runner": "fused"}, {"inductive": True}, {"standardise": True}]
    records = RunStore(tmp_path, "data").run_all([replace(plain, **change) for change in changes], 2, "runs")
    assert len({record["history"][-1]["loss"] for record in records}) == len(changes)


def test_an_unknown_data_set_is_refused_before_training(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="neither a data set nor a file"):
        RunStore(tmp_path, "data").run_all([RunConfig("absent")], 1, "runs")


def test_the_table_is_written_and_resumes_after_a_kill(
    tmp_path: Path, shared_data: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "table1"
    options = ("--datasets", "cora", "--epochs", 2, "--seeds", 1, "--jobs", 2)
    words = ("reproduce", "table1", *options, "--data-root", shared_data, "--out", out)
    process = start_command(tmp_path, *words)
    deadline = time.monotonic() + 120
    while len(list(out.glob("runs/cora*.json"))) < 5:
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    kept = {path.name: path.stat().st_mtime_ns for path in out.glob("runs/cora*.json")}
    assert len(kept) < len(ROWS) * len(CANDIDATES["small"])
    monkeypatch.setitem(CANDIDATES, "small", CANDIDATES["small"][:1])  # fewer runs are left
    assert run(*words) == 0, capsys.readouterr().err
    assert all((out / "runs" / name).stat().st_mtime_ns == time_ for name, time_ in kept.items())
    lines = (out / "table1.md").read_text().splitlines()
    assert len([line for line in lines if line.startswith("| cora")]) == len(ROWS)
    assert "79.58" in (out / "table1.md").read_text()
    assert "baseline" in capsys.readouterr().out


def test_the_table_says_what_was_chosen() -> None:
    records = [{"history": [{"test": 0.5}, {"test": best}, {"test": 0.7}]} for best in (0.8, 0.82)]
    cells = row_of("cora", ROWS.index((8, (1, 2))), (0.05, 0.0005), (79.0, 81.0), records)
    assert cells[:5] == ["cora", "8", "", "✓", "✓"]
    assert [cell.replace("\N{NO-BREAK SPACE}", " ") for cell in cells[5:]] == [
        "80.00 ± 1.41",
        "81.00 ± 1.41",
        "79.58",
        "0.05",
        "0.0005",
    ]
