"""The benchmark of the defaults: its commands are understood, and its rows hold what was measured."""

from pathlib import Path
from typing import Any

import pytest

from benchmarks import defaults
from benchmarks.defaults import DATASETS, RUNS, main, row
from gistgnn.cli.main import make_parser


@pytest.mark.parametrize("dataset", DATASETS)
@pytest.mark.parametrize("name", RUNS)
def test_the_commands_are_understood(dataset: str, name: str) -> None:
    args = make_parser().parse_args(["train", "--dataset", dataset, *DATASETS[dataset], *RUNS[name]])
    assert args.local_steps == (20 if name == "earlier defaults" else None)


def test_a_row_has_means_over_the_seeds() -> None:
    records = [
        {
            "test": {"accuracy": best},
            "last": {"test": {"accuracy": best - 0.1}},
            "rounds": 5,
            "coverage": {"counts": {"0": share}},
        }
        for best, share in ((0.8, 0.1), (0.9, 0.3))
    ]
    text = row("cora", "defaults", records).replace("\u00a0", " ")
    assert text == "| cora | defaults | 85.00 ± 7.07 | 75.00 ± 7.07 | 5 | 20.0 |"


def test_a_stopped_command_goes_on_with_the_runs_that_are_left(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trained: list[tuple[str, int]] = []
    words = ["--datasets", "digits", "--runs", "defaults", "m = 8", "--seeds", "2", "--out", str(tmp_path)]

    def train(dataset: str, options: list[str], data_root: str, seed: int) -> dict[str, Any]:
        if len(trained) == 3:  # stopped in the fourth run
            raise KeyboardInterrupt
        trained.append((" ".join(options), seed))
        score = {"accuracy": 0.9 + seed / 100}
        return {"test": score, "last": {"test": score}, "rounds": 5, "coverage": {"counts": {}}}

    monkeypatch.setattr(defaults, "train", train)
    with pytest.raises(KeyboardInterrupt):
        main(words)
    del trained[1:]
    main(words)
    assert trained == [("", 0), ("--sub-gcns 8", 1)]
    assert "| digits | m = 8 | 90.50" in capsys.readouterr().out
