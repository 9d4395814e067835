"""Table 6: GIST against ensembles of sub-GCNs that are never merged (appendix B)."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from gistgnn.compare.comparison import Row, compare_groups
from gistgnn.compare.many_runs import RunStore
from gistgnn.evaluation.scores import evaluation_mode
from gistgnn.graphs import Graph, load
from gistgnn.nn.ensemble_model import members_of
from gistgnn.paper.experiment import Outcome, Verdict
from gistgnn.paper.table6_local_sgd import AppendixB, chart_of, pairs_of
from gistgnn.report.formats import duration, mean_sd
from gistgnn.runs.config import RunConfig
from gistgnn.sampling import forward, whole_graph

# The paper's F1 in percent and seconds of inference on Reddit, by method and m.
PAPER = {
    ("ensemble", 2): (96.31, 3.59),
    ("gist", 2): (96.40, 1.81),
    ("ensemble", 4): (96.10, 6.38),
    ("gist", 4): (96.16, 1.81),
    ("ensemble", 8): (95.28, 11.95),
    ("gist", 8): (95.46, 1.81),
}
PASSES = 5  # of every model, when inference is timed; the median counts

COLUMNS = ("data set", "m", "method", "F1", "time", "inference", "each model alone", "paper: F1", "inference")


@dataclass(frozen=True)
class EnsembleTable(AppendixB):
    """Table 6; see `AppendixB`."""

    name: ClassVar[str] = "ensemble"
    title: ClassVar[str] = "Table 6: GIST against ensembles of sub-GCNs"
    rival: ClassVar[str] = "ensemble"
    defaults: ClassVar[dict[str, dict[str, Any]]] = {
        "small": {"datasets": ("synthetic:reddit@0.2",), "seeds": 1, "epochs": 30},
        "full": {"datasets": ("reddit",), "seeds": 1, "epochs": 80},
    }

    def run(self, store: RunStore, jobs: int = 1) -> Outcome:
        """Run GIST and the ensembles of 2, 4 and 8 sub-GCNs, and one device, in turns; then time inference."""
        groups = self.groups()
        found = compare_groups(store, groups, self.seeds, self.name)
        rows, verdicts, charts = [], [], []
        for dataset, (group, records) in found.items():
            graph = load(dataset, store.data_root)
            scale = groups[dataset][0].scale(graph)
            alone = inference_alone(groups[dataset], (scale.graph(graph) if scale else graph).to(self.device))
            rows += [_cells(dataset, row, seconds) for row, seconds in zip(group, alone, strict=True)]
            of = {(row.method, row.sub_gcns): seconds for row, seconds in zip(group, alone, strict=True)}
            for other, gist in pairs_of(group):
                verdicts += _verdicts(dataset, other, gist, of)
            charts.append(chart_of(dataset, group, records))
        return Outcome(COLUMNS, rows, self._note(), verdicts, charts)

    def _note(self) -> str:
        return (
            f"{self.setting()}Each member of an ensemble counts as it was at its own best validation score; logits "
            "are averaged. An ensemble's members are scored after every round of ζ steps. Inference is one pass over "
            "the whole graph, the median of those during training: there the first sum over neighbours, of the input "
            'features, is made once for all members and passes, and members are narrow. "Each model alone" makes '
            f"everything anew for every model, as running m models one after another does (the median of {PASSES} "
            "passes)."
        )


def inference_alone(runs: Sequence[RunConfig], graph: Graph) -> list[float]:
    """Seconds that the models of some runs take for the whole graph when they share nothing, not even the adjacency.

    Args:
        runs: whose models are built anew: times do not depend on the weights.
        graph: where the models are.
    """
    models = []
    for run in runs:
        trainer = run.trainer(graph.num_features, graph.num_classes)
        models.append([member.to(graph.x.device) for member in members_of(trainer.model())])
    seconds: list[list[float]] = [[] for _ in models]
    for _ in range(PASSES):
        for taken, members in zip(seconds, models, strict=True):  # by turns, so that noise meets all
            begun = time.perf_counter()
            for member in members:
                with evaluation_mode(member):
                    forward(member, whole_graph(graph))
            if graph.x.is_cuda:
                torch.cuda.synchronize(graph.x.device)
            taken.append(time.perf_counter() - begun)
    return [statistics.median(taken) for taken in seconds]


def _verdicts(dataset: str, other: Row, gist: Row, alone: dict[tuple[str, int], float]) -> list[Verdict]:
    m = gist.sub_gcns
    where = f"{dataset}, m = {m}"
    shared = f"{other.inference / gist.inference:.2f}" if other.inference and gist.inference else "–"
    apart = alone["ensemble", m] / alone["gist", m]
    return [
        Verdict(
            f"{where}: GIST has the higher F1", gist.mean > other.mean, f"{gist.mean:.2f} against {other.mean:.2f}"
        ),
        Verdict(
            f"{where}: where every model runs alone, the ensemble's inference takes {m} times as long (0.75 m or more)",
            apart >= 0.75 * m,
            f"{apart:.2f} times; {shared} where members share the first sum; in the paper's table {_paper_ratio(m)}",
        ),
    ]


def _paper_ratio(m: int) -> str:
    return f"{PAPER['ensemble', m][1] / PAPER['gist', m][1]:.2f} times"


def _cells(dataset: str, row: Row, alone: float) -> list[str]:
    paper = PAPER.get((row.method, row.sub_gcns))
    times = [duration(row.time), duration(row.inference) if row.inference else "–", duration(alone)]
    said = [f"{paper[0]:.2f}", f"{paper[1]:.2f} s"] if paper else ["–", "–"]
    return [dataset, str(row.sub_gcns), row.name, mean_sd(row.score), *times, *said]
