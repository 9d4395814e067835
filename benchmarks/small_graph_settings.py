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
# nodes of a random split, as in the public one
VALIDATION = 500
TEST = 1000
COLUMNS = (
    "data set",
    "m",
    "split",
    "training",
    "ζ",
    "norm",
    "projected",
    "training nodes",
    "optimiser",
    "dropout",
)
COLUMNS += ("lr", "decay")
SCORES = (
    "accuracy",
    "best over rounds",
    "on training nodes",
    "loss",
    "best of all rates",
    "never trained, %",
    "paper",
)


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
        run = Table1.at("full").config(
            (self.dataset, self.row, self.norm), lr, self.weight_decay, seed
        )
        zeta = self.local_steps if run.sub_gcns > 1 else 1
        options: dict[str, Any] = {
            "training": self.training,
            "optimizer": self.optimizer,
            "epochs": self.epochs,
        }
        training = replace(run.training, local_steps=zeta, **options)
        return replace(run, training=training, model=replace(run.model, dropout=self.dropout))

    def graph(self, graph: Graph, seed: int) -> Graph:
        """Return the data set with this setting's features and split."""
        if self.projected:
            graph = replace(graph, x=projection(graph.x, ROWS[self.row][0], seed))
        return (
            graph
            if self.train_nodes == PUBLIC
            else random_split(graph, int(self.train_nodes), seed)
        )

    @property
    def cells(self) -> list[str]:
        """The cells of COLUMNS, but for the rate and the decay."""
        m, dims = ROWS[self.row]
        split = ", ".join(f"d_{dim}" for dim in dims)
        zeta = str(self.local_steps) if m > 1 else "–"
        norm = {"whole": "whole matrix", "layer": "each node"}.get(self.norm, "none")
        projected = "yes" if self.projected else "no"
        return [self.dataset, str(m), split, self.training, zeta, norm, projected,
        self.train_nodes, self.optimizer,
                f"{self.dropout:g}"]  # fmt: skip


def projection(x: Tensor, multiple: int, seed: int) -> Tensor:
    """Project features [N, d] at random to the largest multiple of m that is not above d: dense
    features.
    """
    features = x.shape[1] // multiple * multiple
    generator = torch.Generator().manual_seed(seed)
    return x @ torch.randn(x.shape[1], features, generator=generator) / features**0.5


def random_split(graph: Graph, train: int, seed: int) -> Graph:
    """Return the graph with `train` training nodes, 500 validation and 1,000 test nodes, uniformly
    at random.
    """
    labelled = (graph.y >= 0).nonzero().flatten()
    order = labelled[torch.randperm(len(labelled), generator=torch.Generator().manual_seed(seed))]
    masks = torch.zeros(3, graph.num_nodes, dtype=torch.bool)
    for mask, nodes in zip(
        masks, order.tensor_split(np.cumsum([train, VALIDATION, TEST]).tolist()), strict=False
    ):
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
    losses = [
        float(cross_entropy(logits[nodes], graph.y[nodes])) for nodes in (graph.train, graph.test)
    ]
    return {
        "train": 100 * float((logits.argmax(1) == graph.y)[graph.train].float().mean()),
        "train_loss": losses[0],
        "test_loss": losses[1],
        "test": 100 * result.test["accuracy"],
        "validation": 100 * result.validation["accuracy"],
        "best": 100 * max(entry["test"] for entry in result.history),
        "untrained": 100 * result.coverage.never_trained,
    }


def line(
    setting: Setting, runs_by_rate: Mapping[float, Sequence[Mapping[str, float]]]
) -> list[str]:
    """Return the cells of a line from the measurements of every rate, by seed."""
    chosen = max(runs_by_rate, key=lambda lr: fmean(run["validation"] for run in runs_by_rate[lr]))
    runs = runs_by_rate[chosen]
    oracle = max(fmean(run["best"] for run in seeds) for seeds in runs_by_rate.values())
    return [
        *setting.cells,
        *(f"{chosen:g}", f"{setting.weight_decay:g}"),
        *(mean_sd([run[score] for run in runs]) for score in ("test", "best", "train")),
        ", ".join(
            f"{fmean(run[part] for run in runs):.2f}" for part in ("train_loss", "test_loss")
        ),
        *(f"{oracle:.2f}", f"{fmean(run['untrained'] for run in runs):.0f}"),
        f"{PAPER[setting.dataset][setting.row]:.2f}",
    ]


def main(words: Sequence[str] | None = None) -> None:
    """Print the table as Markdown; most options take several values, and every combination is a
    line.
    """
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--dataset", choices=PAPER, default="citeseer")
    parser.add_argument(
        "--rows",
        nargs="+",
        type=int,
        choices=range(len(ROWS)),
        default=[0],
        help="of Table 1, from 0",
    )
    parser.add_argument("--training", nargs="+", choices=("split", "each"), default=["split"])
    parser.add_argument("--norm", nargs="+", choices=NORMS, default=["none"])
    parser.add_argument(
        "--projected",
        nargs="+",
        choices=("no", "yes"),
        default=["no"],
        help="random dense features",
    )
    parser.add_argument(
        "--train-nodes",
        nargs="+",
        default=[PUBLIC],
        metavar="N",
        help="of a random split, or public",
    )
    parser.add_argument("--weight-decay", nargs="+", type=float, default=[5e-4])
    parser.add_argument("--local-steps", nargs="+", type=int, default=[20], metavar="N", help="ζ")
    parser.add_argument("--optimizer", nargs="+", choices=("adam", "adamw"), default=["adam"])
    parser.add_argument("--dropout", nargs="+", type=float, default=[0.5])
    parser.add_argument("--lr", nargs="+", type=float, default=[0.005, 0.01, 0.05, 0.1])
    parser.add_argument("--epochs", type=int, default=400)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--data-root", default="data")
    parser.add_argument(
        "--out", type=Path, required=True, help="a folder for finished runs, which are kept"
    )
    args = parser.parse_args(words)
    graph = load(args.dataset, args.data_root)
    store = RunStore(args.out, args.data_root)
    rows = []
    several = (
        args.rows,
        args.training,
        args.norm,
        [word == "yes" for word in args.projected],
        args.train_nodes,
    )
    for values in itertools.product(
        *several, args.weight_decay, args.local_steps, args.optimizer, args.dropout
    ):
        setting = Setting(args.dataset, *values, epochs=args.epochs)
        runs_by_rate: dict[float, list[Any]] = {lr: [] for lr in args.lr}
        for lr, seed in itertools.product(args.lr, range(args.seeds)):
            work = partial(measure, setting, lr, seed, graph)
            runs_by_rate[lr].append(
                store.measured("setting", {**vars(setting), "lr": lr, "seed": seed}, work)
            )
        rows.append(line(setting, runs_by_rate))
    print(table([*COLUMNS, *SCORES], rows))


if __name__ == "__main__":
    main()
