"""Tests "one learning rate for every width": scores at all rates and widths, with and without muP.

    python -m benchmarks.transfer --dataset amazon-computers --data-root ../shared/data \\
        --widths 64 128 256 512 1024 --lr 0.001 0.003 0.01 0.03 0.1 --seeds 0 1 2 \\
        --out runs/transfer.jsonl
    python -m benchmarks.transfer runs/transfer.jsonl                  # the tables again
    python -m benchmarks.transfer --picture docs/images/learning-rate.svg runs/*.jsonl

A model is trained at every width, rate and seed, once with `--set width_scaling=mup` and once with
`--set width_scaling=none`. All other settings are the defaults of `gistgnn train`, or the options
that come after `--`. Every run adds a line to the file ``--out``. Runs that the file has are not
repeated, so the same command goes on where it was stopped. If transfer works, the rate that is best
at a small width is best, or nearly so, at every width.
"""

import argparse
import json
import logging
import shlex
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

from benchmarks.tables import number, table

SCALINGS = ("none", "mup")
WIDTHS = (64, 128, 256, 512, 1024, 2048, 4096)
RATES = (0.0003, 0.001, 0.003, 0.01, 0.03, 0.1)
EVALUATIONS = 5  # of a run, the one at its end included
# What a run is trained with. A run in the file counts as finished if all of these are the same.
SETTINGS = ("graph", "model", "layers", "sub_gcns", "epochs", "clusters", "options")
SETTINGS += ("width", "lr", "scaling", "base_width", "seed")
DIVERGED = "†"

Run = dict[str, Any]


def main(words: Sequence[str] | None = None) -> None:
    """Train what is not in the file yet, and print the tables; or print or draw finished runs."""
    options = parse(words)
    if options.picture:
        from benchmarks.transfer_picture import draw_runs

        draw_runs(read_files(options.files), options.picture)
        return
    runs = read_files(options.files) if options.files else train_all(options)
    print(report(runs, options.base_width))


# Training


def train_all(options: argparse.Namespace) -> list[Run]:
    """Train every setting that is not in the file yet; return the finished runs of all settings."""
    # Models at a bad rate are expected, and their notes would hide the progress.
    logging.getLogger("gistgnn").setLevel(logging.ERROR)
    settings = settings_of(options)
    finished = {key_of(run): run for run in read_runs(options.out)}
    missing = [setting for setting in settings if key_of(setting) not in finished]
    print(f"{len(missing)} of {len(settings)} runs to train", file=sys.stderr, flush=True)
    trainer = Trainer(options)
    begun = time.perf_counter()
    for count, setting in enumerate(missing, 1):
        run = setting | trainer.train(setting)
        append_run(options.out, run)
        finished[key_of(run)] = run
        minutes = (time.perf_counter() - begun) / 60
        line = f"{count}/{len(missing)} {described(run)}; {number(minutes)} min so far"
        print(line, file=sys.stderr, flush=True)
    return [finished[key_of(setting)] for setting in settings]


def settings_of(options: argparse.Namespace) -> list[Run]:
    """Return the settings of all runs, in the order in which they are trained."""
    experiment = {
        "graph": options.dataset,
        "model": options.model,
        "layers": options.layers,
        "sub_gcns": options.sub_gcns,
        "epochs": options.epochs,
        "clusters": options.clusters,
        "options": shlex.join(options.train),
    }
    widths = sorted(options.widths)
    # Narrow models come first: they are cheap, and show early whether something is wrong.
    order = list(product(options.seeds, widths))
    if options.order == "width":
        order = [(seed, width) for width, seed in product(widths, options.seeds)]
    return [
        experiment
        | {
            "width": width,
            "lr": lr,
            "scaling": scaling,
            # A plain run does not depend on the base width, and serves for all of them.
            "base_width": options.base_width if scaling == "mup" else None,
            "seed": seed,
        }
        for (seed, width), lr, scaling in product(order, options.lr, options.scalings)
    ]


class Trainer:
    """Trains single runs on one graph, which is read once."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.graph: Any = None  # it is read before the first run, if there is one
        self.scaling: Any = None  # of the features
        self.evaluate_every: int | None = None  # in rounds

    def train(self, setting: Run) -> Run:
        """Train one setting; return its scores, from 0 to 1, and the seconds of training."""
        from gistgnn.errors import DivergedError

        config = run_config(setting, self.options.data_root, self.options.device)
        if self.graph is None:
            self._read_graph(config)
        gist = config.trainer(self.graph.num_features, self.graph.num_classes)
        if self.evaluate_every is None:
            self.evaluate_every = rounds_between_evaluations(gist, self.graph, config)
        config = with_evaluations(config, self.evaluate_every)
        diverged = False
        try:
            result = config.fit(gist, self.graph, standardise=self.scaling or False, progress=False)
        except DivergedError as error:
            result = error.result
            diverged = True
        metric = result.metric.name
        best = result.progress.best
        last = result.progress.last
        return {
            "metric": metric,
            "validation": score_in(best, "validation", metric),
            "test": score_in(best, "test", metric),
            "last_validation": score_in(last, "validation", metric),
            "last_test": score_in(last, "test", metric),
            "diverged": diverged,
            "seconds": round(result.progress.train_seconds, 3),
        }

    def _read_graph(self, config: Any) -> None:
        import torch

        from gistgnn.graphs import Standardisation, load

        graph = load(config.dataset, self.options.data_root)
        # Features are scaled once, as `gistgnn train` does, and not again in every run.
        self.scaling = Standardisation.choose(config.standardise, graph)
        graph = self.scaling.graph(graph) if self.scaling else graph
        self.graph = graph.to(torch.device(config.device))


def run_config(setting: Run, data_root: str, device: str) -> Any:
    """Return the configuration that `gistgnn train` would have with these settings."""
    from gistgnn.cli.main import make_parser
    from gistgnn.cli.training_options import config_from_args

    words: list[object] = ["train", "--dataset", setting["graph"], "--data-root", data_root]
    words += ["--device", device]
    words += ["--model", setting["model"]]
    words += ["--hidden", *[setting["width"]] * setting["layers"]]
    words += ["--sub-gcns", setting["sub_gcns"], "--sampler", "clusters"]
    words += ["--clusters", setting["clusters"], "--epochs", setting["epochs"]]
    words += ["--lr", setting["lr"], "--seed", setting["seed"]]
    words += ["--set", f"width_scaling={setting['scaling']}"]
    if setting["scaling"] == "mup":
        words += ["--set", f"base_width={setting['base_width']}"]
    words += shlex.split(setting["options"])
    args = make_parser().parse_args([str(word) for word in words])
    return config_from_args(args, setting["sub_gcns"])


def rounds_between_evaluations(gist: Any, graph: Any, config: Any) -> int:
    """Return the rounds between two evaluations, so that a run has about `EVALUATIONS`."""
    from gistgnn.fit.prepare import make_sampler
    from gistgnn.schedule import Schedule

    sampler = make_sampler(gist, graph, config.sampler, config.inductive)
    rounds = Schedule(config.training, sampler.steps_per_epoch, gist.workers).rounds
    return max(-(-rounds // EVALUATIONS), 1)


def with_evaluations(config: Any, evaluate_every: int) -> Any:
    """Return the same configuration with this many rounds between evaluations."""
    return replace(config, training=replace(config.training, evaluate_every=evaluate_every))


def score_in(scores: dict[str, dict[str, float]], split: str, metric: str) -> float | None:
    """Return a score; None if the run ended before it was evaluated."""
    return scores.get(split, {}).get(metric)


def described(run: Run) -> str:
    """Describe a finished run in a line."""
    test = "never evaluated" if run["test"] is None else f"test {100 * run['test']:.2f} %"
    ended = ", diverged" if run["diverged"] else ""
    return (
        f"{run['model']} {run['width']} {run['scaling']} lr {run['lr']:g} seed {run['seed']}: "
        f"{test}{ended}, {number(run['seconds'])} s"
    )


# The file of runs


def key_of(run: Run) -> str:
    """Return what says whether two runs have the same settings."""
    return json.dumps([run[name] for name in SETTINGS])


def read_runs(path: Path) -> list[Run]:
    """Return the finished runs of a file; none if there is no file."""
    runs = []
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        try:
            runs.append(json.loads(line))
        except json.JSONDecodeError:
            # A process that was killed may have written a part of its last line.
            print(f"{path}: a line is not whole, and its run is repeated", file=sys.stderr)
    return runs


def read_files(paths: Iterable[Path]) -> list[Run]:
    """Return the finished runs of several files, each once."""
    return list({key_of(run): run for path in paths for run in read_runs(path)}.values())


def append_run(path: Path, run: Run) -> None:
    """Add a run to a file, on a line of its own."""
    path.parent.mkdir(parents=True, exist_ok=True)
    broken = path.exists() and not path.read_bytes().endswith(b"\n") and path.stat().st_size > 0
    with path.open("a", encoding="utf-8") as file:
        file.write(("\n" if broken else "") + json.dumps(run) + "\n")


# Tables


@dataclass(frozen=True)
class Cell:
    """The runs of one width and rate, over their seeds; scores in percent."""

    validation: float | None  # the mean, or None if a run was never evaluated
    test: float | None  # the mean of the tests where validation was best
    spread: float | None  # the standard deviation of the tests; None for one seed
    seeds: int
    diverged: int  # how many of the runs diverged

    @classmethod
    def of(cls, runs: Sequence[Run]) -> "Cell":
        """Average the runs."""
        diverged = sum(run["diverged"] for run in runs)
        tests = [100 * run["test"] for run in runs if run["test"] is not None]
        if len(tests) < len(runs):
            return cls(None, None, None, len(runs), diverged)
        validation = statistics.fmean(100 * run["validation"] for run in runs)
        spread = statistics.stdev(tests) if len(tests) > 1 else None
        return cls(validation, statistics.fmean(tests), spread, len(runs), diverged)

    def __str__(self) -> str:
        text = "—" if self.test is None else f"{self.test:.2f}"
        text += "" if self.spread is None else f" ± {self.spread:.2f}"
        return text + (f" {DIVERGED}" if self.diverged else "")


Grid = dict[int, dict[float, Cell]]  # by width and rate


def grid_of(runs: Sequence[Run]) -> Grid:
    """Average the runs of one scaling over their seeds."""
    grouped: dict[tuple[int, float], list[Run]] = defaultdict(list)
    for run in runs:
        grouped[run["width"], run["lr"]].append(run)
    grid: Grid = defaultdict(dict)
    for width, lr in sorted(grouped):
        grid[width][lr] = Cell.of(grouped[width, lr])
    return dict(grid)


def chosen_rate(cells: dict[float, Cell]) -> float | None:
    """Return the rate with the best validation score; None if no run was ever evaluated."""
    scores = {lr: cell.validation for lr, cell in cells.items() if cell.validation is not None}
    return max(scores, key=lambda lr: scores[lr], default=None)


def report(runs: Sequence[Run], base_width: int) -> str:
    """Return the tables of all experiments: every graph and scaling has two."""
    experiments: dict[str, list[Run]] = defaultdict(list)
    for run in runs:
        experiments[title_of(run)].append(run)
    parts = []
    for title, members in experiments.items():
        parts.append(f"## {title}")
        seeds = seeds_in_words(members)
        text = f"Test score in percent where validation was best, {seeds}; "
        parts.append(f"{text}the rate that validation chooses is bold.")
        if any(run["diverged"] for run in members):
            parts.append(f"{DIVERGED}: a run diverged; its score is the last one before.")
        scalings: dict[str, list[Run]] = defaultdict(list)
        for run in members:
            scalings[scaling_of(run)].append(run)
        for scaling, alike in scalings.items():
            grid = grid_of(alike)
            parts += [f"### {scaling}", table_of_scores(grid), table_of_transfer(grid, base_width)]
    return "\n\n".join(parts)


def title_of(run: Run) -> str:
    """Return what all runs of a table have in common."""
    text = f"{Path(run['graph']).name}, {run['model']}, {run['layers']} hidden layers"
    text += f", m = {run['sub_gcns']}, {run['epochs']:g} epochs, {run['clusters']} clusters"
    return text + (f", `{run['options']}`" if run["options"] else "")


def scaling_of(run: Run) -> str:
    """Return the scaling of a run, with the base width that it depends on."""
    base = run["base_width"]
    return run["scaling"] if base is None else f"{run['scaling']}, base width {base}"


def seeds_in_words(runs: Sequence[Run]) -> str:
    """Return how many seeds the table averages."""
    seeds = len({run["seed"] for run in runs})
    return "one seed" if seeds == 1 else f"mean ± deviation of {seeds} seeds"


def table_of_scores(grid: Grid) -> str:
    """Return the table with a row for each width and a column for each rate."""
    rates = sorted({lr for cells in grid.values() for lr in cells})
    rows = []
    for width, cells in grid.items():
        best = chosen_rate(cells)
        row = [f"{width:,}"]
        for lr in rates:
            text = str(cells[lr]) if lr in cells else ""
            row.append(f"**{text}**" if lr == best else text)
        rows.append(row)
    return table(["width", *(f"{lr:g}" for lr in rates)], rows)


def table_of_transfer(grid: Grid, base_width: int) -> str:
    """Return how well every width does at the rate that validation chooses at the base width."""
    lr = chosen_rate(grid.get(base_width, {}))
    if lr is None:
        return f"There are no scores at width {base_width}, so there is no rate to transfer."
    base = grid[base_width][lr]
    rows = []
    for width, cells in grid.items():
        best_lr = chosen_rate(cells)
        best = None if best_lr is None else cells[best_lr].test
        transferred = cells[lr].test if lr in cells else None
        row = [f"{width:,}"]
        row.append("—" if transferred is None else f"{transferred:.2f}")
        row.append("—" if best is None else f"{best:.2f} at {best_lr:g}")
        row += [difference(transferred, best), difference(transferred, base.test)]
        rows.append(row)
    head = ["width", f"test at {lr:g}", "best of the grid", "difference", f"to width {base_width}"]
    text = f"At width {base_width} validation chooses the rate {lr:g}. At this rate:"
    return f"{text}\n\n{table(head, rows)}"


def difference(score: float | None, other: float | None) -> str:
    """Format how many points a score is above another one."""
    return "—" if score is None or other is None else f"{score - other:+.2f}"


def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse the command line; what comes after ``--`` are options of `gistgnn train`."""
    words = list(sys.argv[1:] if words is None else words)
    end = words.index("--") if "--" in words else len(words)
    first_line = __doc__.split("\n")[0]
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.transfer",
        description=first_line,
        epilog="After --: further options of gistgnn train, such as -- --norm layer --inductive.",
    )
    add = parser.add_argument
    add("files", type=Path, nargs="*", metavar="FILE", help="print finished runs, train nothing")
    add("--picture", type=Path, metavar="SVG", help="draw the runs of the files")
    add("--dataset", default="amazon-computers", help="a name, or a file, as of gistgnn train")
    add("--data-root", default="data")
    add("--device", default="cpu")
    add("--model", default="gcn")
    add("--layers", type=int, default=2, help="hidden layers (default: 2)")
    add("--sub-gcns", type=int, default=1, metavar="M", help="m (default: 1)")
    add("--epochs", type=float, default=12)
    add("--clusters", type=int, default=100)
    add("--widths", type=int, nargs="+", default=list(WIDTHS), metavar="W")
    add("--lr", type=float, nargs="+", default=list(RATES))
    add("--scalings", nargs="+", choices=SCALINGS, default=list(SCALINGS))
    add("--base-width", type=int, default=128, help="of muP, and where the rate is chosen")
    add("--seeds", type=int, nargs="+", default=[0])
    order = "seed: all widths of a seed, then the next; width: all seeds of a width, then the next"
    add("--order", choices=("seed", "width"), default="seed", help=order)
    add("--out", type=Path, default=Path("runs/transfer.jsonl"), help="the file of finished runs")
    options = parser.parse_args(words[:end])
    options.train = words[end + 1 :]
    if options.picture is None and options.files and options.train:
        parser.error("files of finished runs and options of training are both given")
    return options


if __name__ == "__main__":
    main()
