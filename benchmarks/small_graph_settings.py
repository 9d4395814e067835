"""What settings of the authors' public sweep, and other splits, do to rows of Table 1.

Each line of the table is one row of Table 1 with one combination of settings. Every learning rate
trains with every seed; the rate with the best mean validation score is shown, and beside it the
best test score of any rate. "On training nodes" is the accuracy of the chosen model there, "loss"
its cross-entropy on training and on test nodes.
"""

import argparse
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from benchmarks.tables import table
from gistgnn.compare import RunStore
from gistgnn.gist import GIST
from gistgnn.graphs import Graph, load
from gistgnn.paper.published import TABLE1 as PAPER
from gistgnn.paper.published import TABLE1_ROWS as ROWS
from gistgnn.paper.table1 import Table1
from gistgnn.runs.config import RunConfig
from gistgnn.utils.formats import mean_sd

NORMS = ("none", "layer", "whole")
PUBLIC = "public"
# The nodes of a random split: as many as in the public one.
VALIDATION = 500
TEST = 1000
COLUMNS = ("data set", "m", "split", "training", "ζ", "norm", "projected", "training nodes")
COLUMNS += ("optimiser", "dropout", "lr", "decay")
SCORES = ("accuracy", "best over rounds", "on training nodes", "loss", "best of all rates")
SCORES += ("never trained, %", "paper")


@dataclass(frozen=True)
class Setting:
    """One row of Table 1, trained in one way; see the options of the command."""

    dataset: str
    row: int
    training: str
    norm: str
    projected: bool
    train_nodes: str
    weight_decay: float
    local_steps: int = 20
    optimizer: str = "adam"
    dropout: float = 0.5
    epochs: int = 400

    def config(self, lr: float, seed: int) -> RunConfig:
        """Return the run. One device is scored after every step, as in the public code."""
        row = (self.dataset, self.row, self.norm)
        run = Table1.at("table1", "full").config(row, lr, self.weight_decay, seed)
        options: dict[str, Any] = {
            "training": self.training,
            "optimizer": self.optimizer,
            "epochs": self.epochs,
            "local_steps": self.local_steps if run.sub_gcns > 1 else 1,
        }
        training = replace(run.training, **options)
        model = replace(run.model, dropout=self.dropout)
        return replace(run, training=training, model=model)

    def graph(self, graph: Graph, seed: int) -> Graph:
        """Return the data set with this setting's features and split."""
        if self.projected:
            graph = replace(graph, x=projection(graph.x, ROWS[self.row][0], seed))
        if self.train_nodes == PUBLIC:
            return graph
        return random_split(graph, int(self.train_nodes), seed)

    @property
    def cells(self) -> list[str]:
        """The cells of COLUMNS, but for the rate and the decay."""
        m, dims = ROWS[self.row]
        split = ", ".join(f"d_{dim}" for dim in dims)
        zeta = str(self.local_steps) if m > 1 else "–"
        norm = {"whole": "whole matrix", "layer": "each node"}.get(self.norm, "none")
        projected = "yes" if self.projected else "no"
        cells = [self.dataset, str(m), split, self.training, zeta, norm, projected]
        return [*cells, self.train_nodes, self.optimizer, f"{self.dropout:g}"]


def projection(x: Tensor, multiple: int, seed: int) -> Tensor:
    """Project features [N, d] at random, so that they are dense.

    Their number becomes the largest multiple of ``multiple`` that is not above d.
    """
    features = x.shape[1] // multiple * multiple
    generator = torch.Generator().manual_seed(seed)
    return x @ torch.randn(x.shape[1], features, generator=generator) / features**0.5


def random_split(graph: Graph, train: int, seed: int) -> Graph:
    """Split at random: `train` training nodes, 500 validation and 1,000 test nodes."""
    labelled = (graph.y >= 0).nonzero().flatten()
    order = labelled[torch.randperm(len(labelled), generator=torch.Generator().manual_seed(seed))]
    ends = np.cumsum([train, VALIDATION, TEST]).tolist()
    *splits, _ = order.tensor_split(ends)  # The last part is in no split.
    masks = torch.zeros(3, graph.num_nodes, dtype=torch.bool)
    for mask, nodes in zip(masks, splits, strict=True):
        mask[nodes] = True
    return replace(graph, train=masks[0], val=masks[1], test=masks[2])


def measure(setting: Setting, lr: float, seed: int, graph: Graph) -> dict[str, float]:
    """Train once; return scores in percent and the share of Θ that never trained."""
    graph = setting.graph(graph, seed)
    run = setting.config(lr, seed)
    gist: GIST = run.trainer(graph.num_features, graph.num_classes)
    result = run.fit(gist, graph, progress=False)
    with torch.no_grad():
        logits = result.model.eval()(graph.x, graph.edge_index)
    right = logits.argmax(1) == graph.y
    return {
        "train": 100 * float(right[graph.train].float().mean()),
        "train_loss": float(cross_entropy(logits[graph.train], graph.y[graph.train])),
        "test_loss": float(cross_entropy(logits[graph.test], graph.y[graph.test])),
        "test": 100 * result.test["accuracy"],
        "validation": 100 * result.validation["accuracy"],
        "best": 100 * max(entry["test"] for entry in result.history),
        "untrained": 100 * result.coverage.never_trained,
    }


def line(
    setting: Setting, runs_by_rate: Mapping[float, Sequence[Mapping[str, float]]]
) -> list[str]:
    """Return the cells of a line from the measurements of every rate, by seed."""
    validations = {
        lr: fmean(run["validation"] for run in runs) for lr, runs in runs_by_rate.items()
    }
    chosen = max(validations, key=lambda lr: validations[lr])
    runs = runs_by_rate[chosen]
    train_loss = fmean(run["train_loss"] for run in runs)
    test_loss = fmean(run["test_loss"] for run in runs)
    best_of_rates = max(fmean(run["best"] for run in seeds) for seeds in runs_by_rate.values())
    cells = [*setting.cells, f"{chosen:g}", f"{setting.weight_decay:g}"]
    cells += [mean_sd([run[score] for run in runs]) for score in ("test", "best", "train")]
    cells += [f"{train_loss:.2f}, {test_loss:.2f}", f"{best_of_rates:.2f}"]
    cells.append(f"{fmean(run['untrained'] for run in runs):.0f}")
    cells.append(f"{PAPER[setting.dataset][setting.row]:.2f}")
    return cells


def main(words: Sequence[str] | None = None) -> None:
    """Print the table as Markdown: a line for every combination of the options' values."""
    args = parse(words)
    graph = load(args.dataset, args.data_root)
    store = RunStore(args.out, args.data_root)
    rows = []
    projected = [word == "yes" for word in args.projected]
    of_models = (args.rows, args.training, args.norm, projected, args.train_nodes)
    of_steps = (args.weight_decay, args.local_steps, args.optimizer, args.dropout)
    for values in itertools.product(*of_models, *of_steps):
        setting = Setting(args.dataset, *values, epochs=args.epochs)
        runs_by_rate: dict[float, list[Any]] = {lr: [] for lr in args.lr}
        for lr, seed in itertools.product(args.lr, range(args.seeds)):
            work = partial(measure, setting, lr, seed, graph)
            key = {**vars(setting), "lr": lr, "seed": seed}
            runs_by_rate[lr].append(store.measured("setting", key, work))
        rows.append(line(setting, runs_by_rate))
    print(table([*COLUMNS, *SCORES], rows))


def parse(words: Sequence[str] | None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    of_rows = "of Table 1, from 0"
    of_split = "of a random split, or public"
    add("--dataset", choices=PAPER, default="citeseer")
    add("--rows", nargs="+", type=int, choices=range(len(ROWS)), default=[0], help=of_rows)
    add("--training", nargs="+", choices=("split", "each"), default=["split"])
    add("--norm", nargs="+", choices=NORMS, default=["none"])
    yes_or_no = ("no", "yes")
    add("--projected", nargs="+", choices=yes_or_no, default=["no"], help="random dense features")
    add("--train-nodes", nargs="+", default=[PUBLIC], metavar="N", help=of_split)
    add("--weight-decay", nargs="+", type=float, default=[5e-4])
    add("--local-steps", nargs="+", type=int, default=[20], metavar="N", help="ζ")
    add("--optimizer", nargs="+", choices=("adam", "adamw"), default=["adam"])
    add("--dropout", nargs="+", type=float, default=[0.5])
    add("--lr", nargs="+", type=float, default=[0.005, 0.01, 0.05, 0.1])
    add("--epochs", type=int, default=400)
    add("--seeds", type=int, default=2)
    add("--data-root", default="data")
    add("--out", type=Path, required=True, help="a folder for finished runs, which are kept")
    return parser.parse_args(words)


if __name__ == "__main__":
    main()
