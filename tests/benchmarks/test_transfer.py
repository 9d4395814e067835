"""The benchmark of one rate for every width: which rate its tables choose, and how it goes on."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from benchmarks import transfer
from benchmarks.transfer import Cell, Run, Trainer, chosen_rate, grid_of, main, parse, report
from benchmarks.transfer_picture import COLOURS, limits
from gistgnn import GIST, Result
from gistgnn.graphs import load
from gistgnn.nn import GCN
from gistgnn.runs.config import RunConfig
from gistgnn.sampling import ClusterSampling

RATES = (0.001, 0.01, 0.1)
SMALL = ("--dataset", "digits", "--widths", "32", "16", "--lr", "0.01", "--clusters", "20")


def a_run(width: int, lr: float, validation: float | None, test: float | None, **other: Any) -> Run:
    """A finished run with these scores, in percent."""
    scores = {
        "validation": None if validation is None else validation / 100,
        "test": None if test is None else test / 100,
    }
    settings = parse(["--widths", str(width), "--lr", str(lr), "--scalings", "none"])
    return transfer.settings_of(settings)[0] | scores | {"diverged": False, "seconds": 1.0} | other


def runs_at(width: int, validations: tuple[float, ...], tests: tuple[float, ...]) -> list[Run]:
    """A finished run for each of the rates."""
    scores = zip(RATES, validations, tests, strict=True)
    return [a_run(width, lr, validation, test) for lr, validation, test in scores]


def test_validation_chooses_the_rate_and_not_the_test_score() -> None:
    cells = grid_of(runs_at(64, (50, 60, 55), (90, 70, 80)))[64]
    assert chosen_rate(cells) == 0.01
    assert cells[0.01].test == pytest.approx(70)


def test_a_cell_is_the_mean_of_its_seeds() -> None:
    cell = Cell.of([a_run(64, 0.01, 50, 60, seed=0), a_run(64, 0.01, 54, 70, seed=1)])
    assert cell.validation == pytest.approx(52)
    assert str(cell) == "65.00 ± 7.07"


def test_a_rate_at_which_a_run_was_never_evaluated_is_not_chosen() -> None:
    lucky = a_run(64, 0.1, 99, 99, seed=0)
    diverged = a_run(64, 0.1, None, None, seed=1, diverged=True)
    cells = grid_of([a_run(64, 0.01, 50, 60), lucky, diverged])[64]
    assert str(cells[0.1]) == "— †"
    assert chosen_rate(cells) == 0.01
    assert chosen_rate(grid_of([diverged])[64]) is None


def test_the_tables_show_what_a_rate_costs_at_another_width() -> None:
    at_128 = runs_at(128, (70, 80, 75), (70, 80, 75))
    at_512 = runs_at(512, (85, 60, 10), (86, 61, 11))
    printed = report([*at_512, *at_128], base_width=128)
    assert "| width | 0.001 | 0.01 | 0.1 |" in printed
    assert "| 128 | 70.00 | **80.00** | 75.00 |" in printed
    assert "| 512 | **86.00** | 61.00 | 11.00 |" in printed
    assert "At width 128 validation chooses the rate 0.01." in printed
    assert "| 128 | 80.00 | 80.00 at 0.01 | +0.00 | +0.00 |" in printed
    assert "| 512 | 61.00 | 86.00 at 0.001 | -25.00 | -19.00 |" in printed


def test_runs_of_other_settings_have_tables_of_their_own() -> None:
    printed = report([a_run(128, 0.01, 70, 70), a_run(128, 0.01, 80, 80, epochs=20)], 128)
    assert printed.count("| 128 | **") == 2
    bases = [a_run(128, 0.01, 70, 70, scaling="mup", base_width=base) for base in (64, 128)]
    assert report(bases, 128).count("| 128 | **70.00** |") == 2
    assert "There are no scores at width 256" in report([a_run(128, 0.01, 70, 70)], 256)


def test_narrow_models_train_first_and_a_plain_run_has_no_base_width() -> None:
    settings = transfer.settings_of(parse([*SMALL, "--seeds", "0", "1"]))
    assert [(run["seed"], run["width"], run["scaling"], run["base_width"]) for run in settings] == [
        (0, 16, "none", None), (0, 16, "mup", 128), (0, 32, "none", None), (0, 32, "mup", 128),
        (1, 16, "none", None), (1, 16, "mup", 128), (1, 32, "none", None), (1, 32, "mup", 128),
    ]  # fmt: skip
    by_width = transfer.settings_of(parse([*SMALL, "--seeds", "0", "1", "--order", "width"]))
    order = [(run["width"], run["seed"]) for run in by_width[::2]]
    assert order == [(16, 0), (16, 1), (32, 0), (32, 1)]


def test_a_benchmark_that_was_stopped_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    trained: list[Run] = []

    def train(self: Trainer, setting: Run) -> Run:
        if len(trained) == 3:
            raise KeyboardInterrupt
        trained.append(setting)
        score = setting["width"] / 100
        return {"validation": score, "test": score, "diverged": False, "seconds": 1.0}

    monkeypatch.setattr(Trainer, "train", train)
    path = tmp_path / "runs.jsonl"
    words = [*SMALL, "--base-width", "16", "--out", str(path)]
    with pytest.raises(KeyboardInterrupt):
        main(words)
    text = path.read_text()
    assert text.count("\n") == 3
    path.write_text(text[:-10])  # the last line is not whole any more
    trained.clear()
    main(words)
    assert [(run["width"], run["scaling"]) for run in trained] == [(32, "none"), (32, "mup")]
    printed = capsys.readouterr().out
    assert printed.count("| 32 | 32.00 | 32.00 at 0.01 | +0.00 | +16.00 |") == 2
    trained.clear()
    main(words)
    main([str(path), "--base-width", "16"])
    assert not trained
    assert capsys.readouterr().out == 2 * printed
    complete_lines = [line for line in path.read_text().splitlines() if line.endswith("}")]
    assert [json.loads(line)["width"] for line in complete_lines] == [16, 16, 32, 32]


def test_runs_at_the_base_width_are_plain_runs(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    further = ["--base-width", "16", "--epochs", "2", "--out", str(path), "--", "--norm", "none"]
    main([*SMALL, *further])
    runs = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(run["width"], run["scaling"]) for run in runs] == [
        (16, "none"), (16, "mup"), (32, "none"), (32, "mup"),
    ]  # fmt: skip
    scores = [run["last_validation"] for run in runs]
    assert scores[0] == scores[1]
    assert scores[2] != scores[3]
    graph = load("digits")
    setting: dict[str, Any] = {"optimizer": "adam", "schedule": "cosine", "epochs": 2, "lr": 0.01}

    def build(widths: Any) -> GCN:
        return GCN(graph.num_features, widths, graph.num_classes, dropout=0.2)

    gist = GIST(build, (32, 32), 1, width_scaling="none")
    sampler = ClusterSampling(20)
    result = gist.fit(graph, sampler=sampler, progress=False, **setting)
    assert result.progress.last["validation"]["accuracy"] == scores[2]


def test_a_run_is_evaluated_a_few_times(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = []
    whole_fit = RunConfig.fit

    def fit(self: RunConfig, *args: Any, **hooks: Any) -> Result:
        result = whole_fit(self, *args, **hooks)
        counts.append(len(result.history))
        return result

    monkeypatch.setattr(RunConfig, "fit", fit)
    plain = ["--scalings", "none", "--epochs", "40"]
    options = parse([*SMALL, *plain, "--", "--clusters-per-batch", "2"])  # 400 steps
    trainer = Trainer(options)
    for setting in transfer.settings_of(options):
        trainer.train(setting)
    assert len(counts) == 2
    assert all(4 <= count <= 6 for count in counts)


def test_the_picture_shows_every_width_and_its_chosen_rate(tmp_path: Path) -> None:
    runs = runs_at(128, (70, 80, 75), (70, 80, 75)) + runs_at(4096, (85, 60, 10), (86, 61, 11))
    runs += [run | {"scaling": "mup", "base_width": 128} for run in runs]
    runs.append(a_run(64, 0.01, None, None, diverged=True))
    path = tmp_path / "runs.jsonl"
    path.write_text("".join(json.dumps(run) + "\n" for run in runs))
    main(["--picture", str(tmp_path / "picture.svg"), str(path)])
    dots = json.loads((tmp_path / "picture.json").read_text())
    names = ("scaling", "width", "lr", "test")
    chosen = [tuple(dot[name] for name in names) for dot in dots if dot["chosen"]]
    best = [(128, 0.01, 80), (4096, 0.001, 86)]
    assert chosen == [(scaling, *dot) for scaling in ("none", "mup") for dot in best]
    text = (tmp_path / "picture.svg").read_text()
    assert ">width 128<" in text
    assert ">4,096<" in text
    assert "prefers-color-scheme: dark" in text
    assert not any(placeholder in text for placeholder in COLOURS)
    assert not re.search(r"<(?:image|script|link)\b", text)
    (tmp_path / "picture.svg").unlink()
    main(["--picture", str(tmp_path / "picture.svg")])
    assert (tmp_path / "picture.svg").read_text() == text
    other = json.dumps(runs[0] | {"epochs": 50})
    path.write_text(f"{json.dumps(runs[0])}\n{other}\n")
    with pytest.raises(SystemExit, match="one experiment"):
        main(["--picture", str(tmp_path / "picture.svg"), str(path)])


def test_failed_runs_do_not_hide_the_differences_of_good_ones() -> None:
    low, high = limits([2, 88, 89, 90, 91])
    assert 80 < low < 88
    assert 91 < high < 92
