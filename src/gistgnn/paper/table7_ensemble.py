"""Table 7: GIST against ensembles of sub-GCNs that are never merged (appendix B)."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from gistgnn.compare.comparison import Row
from gistgnn.compare.many_runs import RunStore
from gistgnn.compare.turns import Record
from gistgnn.evaluation.scores import evaluation_mode
from gistgnn.graphs import Graph, load
from gistgnn.nn.ensemble_model import members_of
from gistgnn.paper.experiment import Part, Verdict, paper_cells
from gistgnn.paper.table6_local_sgd import AppendixB, chart_of, pairs_of
from gistgnn.runs.config import RunConfig
from gistgnn.sampling import forward, whole_graph
from gistgnn.utils.formats import duration, mean_sd

# The paper's F1 in percent and seconds of inference on Reddit, by method and m.
PAPER = {
    ("ensemble", 2): (96.31, 3.59),
    ("gist", 2): (96.40, 1.81),
    ("ensemble", 4): (96.10, 6.38),
    ("gist", 4): (96.16, 1.81),
    ("ensemble", 8): (95.28, 11.95),
    ("gist", 8): (95.46, 1.81),
}
PASSES = 5  # of each model, for the median


@dataclass(frozen=True)
class EnsembleTable(AppendixB):
    """Table 7; see `AppendixB`."""

    name = "ensemble"
    title = "Table 7: GIST against ensembles of sub-GCNs"
    rival = "ensemble"
    columns = (
        *("data set", "m", "method", "F1", "time", "inference", "each model alone"),
        *("paper: F1", "inference"),
    )

    def _part(self, key: tuple[Any, ...], rows: list[Row], records: list[list[Record]], store: RunStore) -> Part:
        (dataset,) = key
        runs = self._runs(dataset)
        graph = load(dataset, store.data_root)
        scale = runs[0].scale(graph)
        alone = inference_alone(runs, (scale.graph(graph) if scale else graph).to(self.device))
        cells = [_cells(dataset, row, seconds) for row, seconds in zip(rows, alone, strict=True)]
        return cells, _verdicts(dataset, rows, alone), [chart_of(dataset, rows, records)]

    def _note(self) -> str:
        return (
            f"{self._settings()}Each member of an ensemble counts as it was at its best validation score; logits "
            "are averaged. An ensemble's members are scored after every round of ζ steps. Inference is one pass over "
            "the whole graph, the median of the passes during training. There, the first sum over neighbours, of the "
            'input features, is computed once for all members and passes, and members are narrow. "Each model alone" '
            f"computes everything again for every model, as if m models ran one after another (median of {PASSES} "
            "passes)."
        )


def inference_alone(runs: Sequence[RunConfig], graph: Graph) -> list[float]:
    """Measure how long the models of each run take for the whole graph if they share nothing, not even the adjacency.

    Args:
        runs: their models are built with new weights, because times do not depend on the weights.
        graph: on the device to be measured.

    Returns:
        Seconds for each run, the median of several passes.
    """
    models = []
    for run in runs:
        trainer = run.trainer(graph.num_features, graph.num_classes)
        models.append([member.to(graph.x.device) for member in members_of(trainer.model())])
    seconds: list[list[float]] = [[] for _ in models]
    for _ in range(PASSES):
        for times, members in zip(seconds, models, strict=True):  # in turns, so that other load slows all alike
            start = time.perf_counter()
            for member in members:
                with evaluation_mode(member):
                    forward(member, whole_graph(graph))
            if graph.x.is_cuda:
                torch.cuda.synchronize(graph.x.device)
            times.append(time.perf_counter() - start)
    return [statistics.median(times) for times in seconds]


def _cells(dataset: str, row: Row, alone: float) -> list[str]:
    times = [duration(row.time), duration(row.inference) if row.inference else "–", duration(alone)]
    paper = paper_cells(PAPER.get((row.method, row.sub_gcns)), "{:.2f} s")
    return [dataset, str(row.sub_gcns), row.name, mean_sd(row.score), *times, *paper]


def _verdicts(dataset: str, rows: Sequence[Row], alone: Sequence[float]) -> list[Verdict]:
    seconds = {(row.method, row.sub_gcns): time for row, time in zip(rows, alone, strict=True)}
    verdicts = []
    for other, gist in pairs_of(rows):
        m = gist.sub_gcns
        where = f"{dataset}, m = {m}"
        shared = f"{other.inference / gist.inference:.2f}" if other.inference and gist.inference else "–"
        ratio = seconds["ensemble", m] / seconds["gist", m]
        paper = PAPER["ensemble", m][1] / PAPER["gist", m][1]
        scores = f"{gist.mean:.2f} against {other.mean:.2f}"
        claim = f"{where}: an ensemble's inference takes m times as long if each model runs alone (0.75 m or more)"
        ratios = f"{ratio:.2f} times; {shared} if members share the first sum; {paper:.2f} times in the paper"
        verdicts.append(Verdict(f"{where}: GIST has the higher F1", gist.mean > other.mean, scores))
        verdicts.append(Verdict(claim, ratio >= 0.75 * m, ratios))
    return verdicts
