"""Every table and figure of the paper, in a minute's worth of epochs on a graph that is always there."""

import dataclasses
import importlib
import json
import re
from pathlib import Path

import pytest

from gistgnn.cli.reproduce import OPTIONS
from gistgnn.errors import InputError
from gistgnn.paper import theory_laws
from gistgnn.paper.appendix_b import EnsembleTable, LocalSgdTable
from gistgnn.paper.large_graphs import clusters_of, in_phases, large_run
from gistgnn.paper.published import Published
from gistgnn.paper.registry import EXPERIMENTS, SCALES
from gistgnn.paper.table2_large_graphs import Amazon2M, Reddit
from gistgnn.paper.table3_ultrawide import PAPER as TABLE3
from gistgnn.paper.table3_ultrawide import WIDTHS
from gistgnn.runs.config import ModelConfig, RunConfig
from gistgnn.schedule import Schedule
from tests.cli.in_process import refused, run

DIGITS = ("--datasets", "digits")
FORTY, THREE = ("--clusters", 40), ("--device-memory", "3GB")
TINY = {  # experiment: options, rows of its table, a number of the paper that the table shows
    "depth-width": (("--layers", 2, 3, "--widths", 4, 8, "--epochs", 2, "--seeds", 1), 2, None),
    "local-iterations": (("--sub-gcns", 2, 4, "--local-steps", 1, 2, "--epochs", 2, "--seeds", 1), 2, None),
    "reddit": (
        ("--models", "graphsage", "--clusters-per-batch", 20, "--layers", 2, "--epochs", 2, "--local-steps", 1),
        7,
        "95.46",
    ),
    "amazon2m": (("--widths", 16, 400, "--epochs", 1, "--local-steps", 1, "--clusters", 40), 14, "84.73"),
    "ultrawide": (
        ("--widths", 16, 32768, "--sub-gcns", 1, 8, "--epochs", 1, "--local-steps", 1, *THREE, *FORTY),
        4,
        "OOM",
    ),
    "ladies": (("--layers", 2, "--epochs", 4, "--local-steps", 1), 8, "2.90x"),
    "local-sgd": (("--epochs", 2, "--local-steps", 1), 10, "93.40"),
    "ensemble": (("--epochs", 2, "--local-steps", 1), 10, "11.95"),
    "theory": (
        ("--widths", 256, 64, "--sub-gcns", 2, 1, "--local-steps", 1, 2, "--epochs", 4, "--seeds", 1, "--nodes", 12),
        4,
        None,
    ),
}


def test_none_is_left_out() -> None:
    assert set(TINY) | {"table1"} == set(EXPERIMENTS)  # the first table has tests of its own


@pytest.mark.parametrize("name", TINY)
def test_it_runs_and_writes_its_table_record_and_report(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    options, rows, paper = TINY[name]
    for rounds in ("ENOUGH", "GENTLE_ENOUGH", "OWN_ENOUGH"):  # of the theory's laws, whatever the options are
        monkeypatch.setattr(theory_laws, rounds, getattr(theory_laws, rounds) // 10)
    out = tmp_path / "out"
    assert run("reproduce", name, *DIGITS, *options, "--out", out) == 0, capsys.readouterr().err
    printed = capsys.readouterr().out
    assert re.search(r"^(holds|does not hold|not shown): ", printed, flags=re.MULTILINE)
    text = (out / f"{name}.md").read_text()
    assert sum(line.startswith("| digits") for line in text.splitlines()) == rows
    assert paper is None or paper in text
    record = json.loads((out / "experiment.json").read_text())
    assert len(record["rows"]) == rows
    assert all(len(row) == len(record["columns"]) for row in record["rows"])
    assert record["verdicts"]
    report = (out / "report.html").read_text()
    assert record["verdicts"][0]["measured"] in report
    kept = {path: path.stat().st_mtime_ns for path in (out / "runs").iterdir()}
    assert run("reproduce", name, *DIGITS, *options, "--out", out) == 0
    assert {path: path.stat().st_mtime_ns for path in (out / "runs").iterdir()} == kept


def test_the_papers_numbers() -> None:
    assert LocalSgdTable.paper["local-sgd"][-1] == (93.40, 129.58)
    assert LocalSgdTable.paper["gist"][1] == (96.16, 116.56)
    assert EnsembleTable.paper["ensemble"][0] == (96.31, 3.59)
    assert Reddit.paper["gat", 256, 4][-1] == Published(66.30, 0.35, 7.90, "h")
    assert Amazon2M.paper["graphsage", 4096, 3][-1] == Published(86.97, 1.34, 7.12, "h")
    assert Reddit.paper["graphsage", 256, 2][1].cells == ["96.40", "70.29 s", "1.50x"]
    assert all(len(row) == len(WIDTHS) for row in TABLE3.values())
    assert TABLE3[2, 2][-1] == (90.91, 32.31)
    assert TABLE3[3, 8][-1] == (88.66, 2.56)
    assert TABLE3[4, 8][-1] is None
    assert all(len(row) == 4 for paper in (Reddit.paper, Amazon2M.paper) for row in paper.values())
    assert {len(paper) for paper in (Reddit.paper, Amazon2M.paper)} == {6}


def test_the_full_scale_is_the_paper_s_setting() -> None:
    reddit = Reddit.at("full")
    assert (reddit.datasets, reddit.epochs, reddit.local_steps, reddit.layers) == (("reddit",), 80, 500, (2, 3, 4))
    amazon = Amazon2M.at("full")
    assert (amazon.epochs, amazon.local_steps, amazon.widths) == (400, 5000, (400, 4096))
    assert LocalSgdTable.at("full").local_steps == 100
    assert EnsembleTable.at("full").local_steps == 500
    assert clusters_of("reddit") == clusters_of("amazon2m") == 15_000
    assert clusters_of("synthetic:reddit@0.1") == 1_500
    run = large_run("reddit", ModelConfig("graphsage", (256, 256)), 8, 80, 500, "cpu")
    assert run.inductive
    assert run.sampler is not None
    assert run.sampler.clusters_per_batch == 10
    assert run.training.evaluate_every == 1


def test_the_batches_of_the_public_scripts_can_be_chosen() -> None:
    experiment = Reddit.at("full", clusters=1500, clusters_per_batch=20)
    runs = [run for group in experiment._groups().values() for run in group]
    assert {(run.sampler.clusters, run.sampler.clusters_per_batch) for run in runs if run.sampler} == {(1500, 20)}
    assert "1500 of reddit, 20 in a batch" in experiment._note()
    small = Reddit.at("small", clusters_per_batch=5)
    assert {run.sampler.clusters_per_batch for group in small._groups().values() for run in group if run.sampler} == {5}


def test_whatever_m_is_a_run_is_scored_about_as_often() -> None:
    for m in (1, 2, 4, 8):
        run = large_run("synthetic:reddit@0.2", ModelConfig(), m, 80, 50, "cpu")
        rounds = 80 * 300 / m / 50
        assert 24 <= rounds / run.training.evaluate_every <= 40


def test_a_recipe_takes_as_many_steps_as_the_run_of_the_paper() -> None:
    def steps(run: RunConfig) -> int:
        schedule = Schedule(run.training, 150, run.sub_gcns)
        return sum(plan.steps.count * plan.workers for plan in map(schedule.plan, range(schedule.rounds)))

    for width, m, parts, rates in (
        (256, 2, [2], [0.005]),
        (256, 4, [4, 2], [0.01, 0.005]),
        (256, 8, [8, 2], [0.02, 0.005]),
        (64, 4, [4, 1], [0.04, 0.01]),
        (1024, 8, [8], [0.005]),
    ):
        run = large_run("reddit", ModelConfig("graphsage", (width, width)), m, 24, 50, "cpu")
        recipe = in_phases(run)
        assert [phase.sub_gcns for phase in recipe.training.phases] == parts
        assert [phase.lr for phase in recipe.training.phases] == rates
        assert [phase.copies for phase in recipe.training.phases] == [part > 1 for part in parts]
        assert steps(recipe) == steps(run) == 24 * 150


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("local-sgd", "--scale", "medium"), "invalid choice: 'medium'"),
        (("reddit", "--datasets", "absent"), "'absent' is neither a data set nor a file"),
        (("reddit", "--models", "gcn"), "invalid choice: 'gcn'"),
        (("ultrawide", "--widths", 0), "'0' is not an integer >= 1"),
        (("table1", "--datasets", "digits"), "data set is 'digits', expected one of cora"),
        (("ensemble", "--out", "/proc/nowhere"), "cannot write /proc/nowhere"),
        (("table9",), "invalid choice: 'table9'"),
    ],
)
def test_bad_options(
    options: tuple[object, ...], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = () if "--out" in options or options == ("table9",) else ("--out", tmp_path / "out")
    refused(capsys, message, "reproduce", *options, *given, leaves=tmp_path)


def test_an_unknown_scale_is_refused() -> None:
    assert SCALES == ("small", "full")
    with pytest.raises(InputError, match="scale is 'medium'"):
        Reddit.at("medium")


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_the_registry_names_an_experiment_and_its_settings(name: str) -> None:
    entry = EXPERIMENTS[name]
    module, kind = entry.home.split(":")
    experiment = getattr(importlib.import_module(f"gistgnn.paper.{module}"), kind)
    assert experiment.name == name
    settings = {field.name for field in dataclasses.fields(experiment)}
    flags = [OPTIONS[option] for option in entry.options if option != "jobs"]
    assert {arguments.get("dest", flag[2:].replace("-", "_")) for flag, arguments in flags} <= settings
