"""The settings of the frontier's runs, resuming, and a small run from the command line to the plot."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks import frontier
from benchmarks.frontier import main, parse, settings, training_of, turns
from benchmarks.frontier_points import OURS
from benchmarks.runs_file import FILE, read
from gistgnn.phases import Phase

DIGITS = ("--dataset", "digits", "--hidden", "16", "16", "--clusters", "8", "--clusters-per-batch", "2")
SMALL = (*DIGITS, "--threads", "1", "--local-steps", "2", "--lr", "0.01", "--ordinary", "1", "2")


@pytest.fixture
def options(tmp_path: Path) -> Callable[..., list[str]]:
    return lambda *more: [*SMALL, "--out", str(tmp_path / "runs"), *more]


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[tuple[dict[str, Any], int]]:
    """The (setting, seed) of every run that the benchmark trains. Nothing is trained."""
    found: list[tuple[dict[str, Any], int]] = []

    def train(graph: object, setting: dict[str, Any], seed: int, options: object) -> dict[str, Any]:
        found.append((setting, seed))
        return {"train_seconds": float(len(found)), "total_seconds": len(found) + 0.5, "test": 0.5, "last": 0.5}

    monkeypatch.setattr(frontier, "train", train)
    monkeypatch.setattr(frontier, "warm_up", lambda *_: None)
    return found


def test_the_settings_are_those_that_were_asked_for() -> None:
    words = [
        *SMALL,
        "--narrow",
        "2",
        "--paper",
        "8",
        "--recipe",
        " 8:1,copies  8:2,lr=0.003",
        "--recipe",
        "4:2,redraw=3",
    ]
    small, longer, narrow, _, paper, kept, redrawn = settings(parse(words))
    assert (small["kind"], small["epochs"], longer["epochs"], narrow["part"]) == ("ordinary", 1, 2, 2)
    training = training_of(paper, "float32")
    assert (training.epochs, training.lr, training.local_steps, training.redraw_every) == (8, 0.01, 2, 1)
    assert (training.cross_weights, training.phases) == ("random", ())
    training = training_of(kept, "float32")
    assert training.phases == (Phase(8, 1, copies=True), Phase(8, 2, lr=0.003))
    assert (training.redraw_every, training.cross_weights, training.schedule) == (0, "zero", "cosine")
    assert training.local_steps > 1e6
    assert training_of(redrawn, "float32").local_steps == 2
    twice = parse([*words, "--recipe", "8:1,copies 8:2,lr=0.003", "--ordinary", "1", "2", "2"])
    assert settings(twice) == settings(parse(words))


def test_every_seed_has_all_settings_in_an_order_of_its_own() -> None:
    given = parse([*SMALL, "--ordinary", *map(str, range(1, 9)), "--seeds", "0", "1", "1"])
    found = turns(given)
    orders = [[setting for seed, setting in found if seed == each] for each in (0, 1)]
    assert [seed for seed, _ in found] == [0] * 8 + [1] * 8
    assert orders[0] != orders[1]
    for order in orders:
        assert sorted(setting["epochs"] for setting in order) == list(range(1, 9))
    assert turns(given) == found


def test_a_rerun_trains_only_what_is_not_there(
    options: Callable[..., list[str]], trained: list[tuple[dict[str, Any], int]]
) -> None:
    for more, new in (
        ((), 2),
        ((), 0),
        (("--seeds", "0", "1"), 2),
        (("--ordinary", "1", "2", "3"), 1),
        (("--lr", "0.01", "0.02"), 2),
        (("--recipe", "2:1,copies 2:1"), 1),
        (("--recipe", "2:1,copies  2:1"), 0),
        (("--clusters", "4"), 2),
        (("--standardise",), 2),
        (("--inductive",), 2),
        (("--hidden", "8", "8"), 2),
        (("--data-root", "elsewhere"), 0),
        (("--paper", "8"), 1),
        (("--paper", "8", "--local-steps", "3"), 1),
    ):
        before = len(trained)
        main(options(*more))
        assert len(trained) - before == new, more


def test_an_interrupted_benchmark_leaves_whole_lines_and_goes_on(
    options: Callable[..., list[str]],
    trained: list[tuple[dict[str, Any], int]],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    train = frontier.train

    def interrupted(*given: Any) -> dict[str, Any]:
        if len(trained) == 3:
            raise KeyboardInterrupt
        return train(*given)

    words = options("--seeds", "0", "1", "2")
    monkeypatch.setattr(frontier, "train", interrupted)
    with pytest.raises(SystemExit) as stopped:
        main(words)
    assert stopped.value.code == 130
    lines = (tmp_path / "runs" / FILE).read_text().splitlines(keepends=True)
    assert [json.loads(line)["seed"] for line in lines] == [0, 0, 1]
    assert lines[-1].endswith("\n")
    monkeypatch.setattr(frontier, "train", train)
    main(words)
    assert sorted(seed for _, seed in trained) == [0, 0, 1, 1, 2, 2]
    assert len({json.dumps(run, sort_keys=True) for run in trained}) == 6


def test_a_run_that_diverges_is_written_down(
    options: Callable[..., list[str]], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    main(options("--lr", "900000", "--norm", "none", "--ordinary", "3", "--hidden", *["16"] * 8))
    (run,) = read(tmp_path / "runs" / FILE)
    assert (run["test"], run["last"], run["validation"]) == (None, None, None)
    assert "| diverged |" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--recipe", "3:1,copies"), "3 equal blocks"),
        (("--narrow", "3"), "3 (--narrow)"),
        (("--lr", "-1"), "lr is -1"),
        (("--paper", "0"), "epochs is 0"),
    ],
)
def test_settings_that_cannot_run_are_refused_before_anything_is_trained(
    options: Callable[..., list[str]], trained: list[Any], words: tuple[str, ...], message: str
) -> None:
    with pytest.raises(SystemExit) as refused:
        main(options(*words))
    assert message in str(refused.value.code)
    assert not trained


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--recipe", "8"), "'8' is not a phase"),
        (("--recipe", " "), "no phases"),
        (("--recipe", "8:1,copies,redraw=2"), "redraw_every is 2"),
    ],
)
def test_recipes_that_are_none_are_refused(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...], message: str
) -> None:
    with pytest.raises(SystemExit):
        parse([*SMALL, *words])
    assert message in capsys.readouterr().err
    with pytest.raises(SystemExit):
        parse([])
    assert "--dataset or --report is required" in capsys.readouterr().err


def test_from_the_command_line_to_the_plot(
    options: Callable[..., list[str]],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    words = options("--narrow", "2", "--paper", "16", "--recipe", "2:2,copies 2:2,lr=0.003", "--budget", "1.5")
    monkeypatch.setattr(sys, "argv", ["frontier", *words])
    main()
    runs = read(tmp_path / "runs" / FILE)
    assert sorted(run["setting"]["kind"] for run in runs) == (
        ["budget"] + ["narrow"] * 2 + ["ordinary"] * 2 + ["paper", "recipe"]
    )
    for run in runs:
        assert 0 < run["train_seconds"] < run["total_seconds"]
        assert run["seconds"]["evaluate"] > 0
        assert 0 < run["test"] <= 1
        if run["setting"]["kind"] not in OURS:  # which is scored at the end of each phase
            assert run["test"] == run["last"]
        assert run["machine"]["threads"] == 1
    steps = {
        run["setting"]["kind"]: run["steps"]
        for run in runs
        if run["setting"].get("epochs") != 1 and run["setting"]["kind"] != "budget"
    }
    assert steps == {"ordinary": 8, "narrow": 8, "paper": 64, "recipe": 16}  # 4 batches an epoch
    printed = capsys.readouterr().out
    assert all(
        text in printed
        for text in ("# digits", "GIST, 16 epochs", "narrow, d/2", "## At every budget", "## Runs with a budget")
    )
    main(["--report", str(tmp_path / "runs"), "--plot", str(tmp_path / "plots/plot.png")])
    assert capsys.readouterr().out == printed
    assert (tmp_path / "plots/plot.png").read_bytes().startswith(b"\x89PNG")
