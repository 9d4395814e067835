"""Every table and figure of the paper, in few epochs on a graph that is always present."""

import dataclasses
import json
from collections.abc import Callable
from html import escape
from pathlib import Path
from pkgutil import resolve_name

import pytest

from gistgnn.cli.reproduce import OPTIONS
from gistgnn.cli.values import memory_size
from gistgnn.paper import theory_laws
from gistgnn.paper.experiment import Experiment
from gistgnn.paper.registry import EXPERIMENTS, SCALES
from tests.cli.in_process import refused, run

ONE = ("--epochs", 1, "--local-steps", 1)
FEW = ("--clusters", 40)
TINY = {  # experiment: options, rows of its table, a number of the paper that the table shows
    "depth-width": (("--layers", 2, 3, "--widths", 4, 8, "--epochs", 2, "--seeds", 1), 2, None),
    "local-iterations": (
        ("--sub-gcns", 2, 4, "--local-steps", 1, 2, "--epochs", 2, "--seeds", 1),
        2,
        None,
    ),
    "reddit": (
        ("--models", "graphsage", "--clusters-per-batch", 20, "--layers", 2, *ONE),
        4,
        "95.46",
    ),
    "amazon2m": (("--widths", 16, 400, *FEW, *ONE), 8, "84.73"),
    "ultrawide": (
        ("--widths", 16, 32768, "--sub-gcns", 1, 8, "--device-memory", "3GB", *FEW, *ONE),
        4,
        "OOM",
    ),
    "ladies": (("--layers", 2, "--epochs", 4, "--local-steps", 1), 8, "2.90x"),
    "local-sgd": (("--epochs", 2, "--local-steps", 1), 7, "93.40"),
    "ensemble": (("--epochs", 2, "--local-steps", 1), 7, "11.95"),
    "theory": (
        (
            "--widths", 256, 64, "--sub-gcns", 2, 1, "--local-steps", 1, 2, "--epochs", 4,
            "--seeds", 1, "--nodes", 12,
        ),
        4,
        None,
    ),
}  # fmt: skip


def reproduce(name: str, out: Path) -> int:
    """Run an experiment at a tiny size; the theory's laws have sizes that are no options."""
    with pytest.MonkeyPatch.context() as patch:
        for size, value in {
            "ENOUGH": 6,
            "GENTLE_ENOUGH": 8,
            "OWN_ENOUGH": 1,
            "SAMPLES": 200,
        }.items():
            patch.setattr(theory_laws, size, value)
        patch.setattr(theory_laws, "KERNEL_WIDTHS", (16, 64))
        return run("reproduce", name, "--datasets", "digits", *TINY[name][0], "--out", out)


def written(out: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in (out / "runs").rglob("*.json")}


@pytest.mark.one_in(9)
@pytest.mark.parametrize("name", TINY)
def test_it_runs_once_and_writes_its_table_record_and_report(
    name: str, reproduced: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    out = reproduced(name)
    _, rows, paper = TINY[name]
    files = written(out)
    capsys.readouterr()
    assert reproduce(name, out) == 0
    assert written(out) == files
    title, header, *lines = capsys.readouterr().out.splitlines()
    assert title == EXPERIMENTS[name].help
    assert header.startswith("data set")
    assert sum(line.startswith("digits ") for line in lines) >= rows
    text = (out / f"{name}.md").read_text()
    first, *further_tables = text.split("\n\n| data set")
    assert sum(line.startswith("| digits") for line in first.splitlines()) == rows
    assert len(further_tables) == (name == "theory"), "the theory has a table of laws, too"
    if paper is not None:
        assert paper in text
    record = json.loads((out / "experiment.json").read_text())
    page = (out / "report.html").read_text()
    for table in record["tables"]:
        assert {len(row) for row in table["rows"]} == {len(table["columns"])}
        assert all(escape(row[-1]) in page for row in table["rows"])
    assert len(record["tables"][0]["rows"]) == rows


@pytest.mark.long
def test_the_models_of_the_full_scale_run_on_a_small_graph(tmp_path: Path) -> None:
    for name, options, rows in (
        ("reddit", ("--layers", 2, *FEW, *ONE), 8),
        ("ultrawide", ("--layers", 2, "--widths", 512, "--sub-gcns", 8, 1, *FEW, *ONE), 2),
    ):
        out = tmp_path / name
        words = ("reproduce", name, "--scale", "full", "--datasets", "digits", *options)
        assert run(*words, "--out", out) == 0
        [table] = json.loads((out / "experiment.json").read_text())["tables"]
        assert len(table["rows"]) == rows


def test_bad_options_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for options, message in (
        (("local-sgd", "--scale", "medium"), "--scale is 'medium', expected one of small, full"),
        (("table1", "--datasets", "digits"), "data set is 'digits', expected one of cora"),
        (("ensemble", "--out", "/proc/nowhere"), "cannot write /proc/nowhere"),
        (("table9",), "'table9' is no experiment"),
        (
            ("ultrawide", "--device-memory", "0GB"),
            "--device-memory is '0GB', expected a size such as 32GB",
        ),
        (
            ("ultrawide", "--device-memory", "manyGB"),
            "--device-memory is 'manyGB', expected a size",
        ),
        (("reddit", "--datasets", "absent"), "'absent' is neither a data set nor a file"),
        (
            ("reddit", "--datasets", "digits", "--clusters", 2000),
            "--clusters is 2000, expected an integer",
        ),
        (("theory", "--device", "cpu"), "--device is no option of gistgnn reproduce theory"),
        (("theory", "--widths", 64, 4), "--widths are 64, 4, expected at least 8"),
    ):
        out = () if "--out" in options or options == ("table9",) else ("--out", tmp_path / "out")
        refused(capsys, message, "reproduce", *options, *out, leaves=tmp_path)
    assert [memory_size(text) for text in ("32GB", "1.75GiB", "512MB")] == [2**35, 7 * 2**28, 2**29]


def test_the_registry_names_experiments_their_settings_and_which_use_ranks() -> None:
    assert set(TINY) | {"table1"} == set(EXPERIMENTS)  # the first table has tests of its own
    for name, entry in EXPERIMENTS.items():
        experiment = resolve_name(f"gistgnn.paper.{entry.location}")
        assert all(experiment.at(name, scale).name == name for scale in SCALES)
        settings = {field.name for field in dataclasses.fields(experiment)}
        assert {option.rstrip("+") for option in entry.options} <= settings & set(OPTIONS)
        assert entry.ranks == (experiment.runs_on_ranks is not Experiment.runs_on_ranks)
