"""Tables 6 and 7 (appendix B): GIST against local SGD with as many workers, and against ensembles of sub-GCNs."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch

from gistgnn.compare.comparison import Row
from gistgnn.compare.many_runs import RunStore
from gistgnn.compare.turns import Record
from gistgnn.evaluation.scores import evaluation_mode
from gistgnn.graphs import Graph, load
from gistgnn.nn.ensemble_model import members_of
from gistgnn.paper.experiment import Chart, GroupedExperiment, Part, Series, Verdict, paper_cells
from gistgnn.paper.large_graphs import describe_clusters, graphsage, large_run
from gistgnn.runs.config import RunConfig
from gistgnn.sampling import forward, whole_graph
from gistgnn.utils.formats import duration, mean_sd, size

WORKERS = (2, 4, 8)
PASSES = 5  # of each model, for the median


@dataclass(frozen=True)
class AppendixB(GroupedExperiment):
    """GIST against another method on the same batches; see `Experiment`. Epochs are split over the workers.

    Args:
        local_steps: ζ.

    Attributes:
        rival: the other method.
        paper: the paper's F1 in percent and seconds on Reddit, by method, for each of WORKERS.
    """

    local_steps: int = 100

    rival: ClassVar[str]
    paper: ClassVar[Mapping[str, tuple[tuple[float, float], ...]]]
    defaults: ClassVar[dict[str, dict[str, Any]]] = {
        "small": {"datasets": ("synthetic:reddit@0.2",), "seeds": 1, "epochs": 30},
        "full": {"datasets": ("reddit",), "seeds": 1, "epochs": 80},
    }

    def _groups(self) -> dict[tuple[Any, ...], list[RunConfig]]:
        return {(dataset,): self._runs(dataset) for dataset in self.datasets}

    def _runs(self, dataset: str) -> list[RunConfig]:
        # In turn, because local SGD's workers draw different batches and cannot be fused.
        settings = self.epochs, self.local_steps, self.device, "in-turn"
        baseline, *split = (large_run(dataset, graphsage(256, 2), m, *settings) for m in (1, *WORKERS))
        return [baseline, *(replace(run, method=method) for run in split for method in (self.rival, "gist"))]

    def _settings(self) -> str:
        paper = "" if self.scale == "full" else "The paper's numbers are for Reddit itself, 80 epochs, 8 V100. "
        return (
            "GraphSAGE with two hidden layers of 256, micro-F1 on the test nodes in percent at the best validation "
            f"score, after {self.epochs} epochs split over the workers, ζ = {self.local_steps}, Adam at 0.01, dropout "
            f"0.2; {self.seeds} seed(s). {describe_clusters(self.datasets)}. The runs take turns on one machine, and "
            f"the workers of a run train one after another. {paper}"
        )

    def _cells(self, dataset: str, row: Row, times: list[str], unit: str) -> list[str]:
        paper = None if row.sub_gcns == 1 else self.paper[row.method][WORKERS.index(row.sub_gcns)]
        return [dataset, str(row.sub_gcns), row.name, mean_sd(row.score), *times, *paper_cells(paper, unit)]


@dataclass(frozen=True)
class LocalSgdTable(AppendixB):
    """Table 6; see `AppendixB`."""

    name = "local-sgd"
    title = "Table 6: GIST against local SGD"
    rival = "local-sgd"
    columns = (
        *("data set", "workers", "method", "F1", "time", "time of a worker", "sent by a worker"),
        *("paper: F1", "time"),
    )
    paper: ClassVar[Mapping[str, tuple[tuple[float, float], ...]]] = {
        "local-sgd": ((96.37, 137.17), (95.00, 127.63), (93.40, 129.58)),
        "gist": ((96.40, 108.67), (96.16, 116.56), (95.46, 123.83)),
    }

    def _part(self, key: tuple[Any, ...], rows: list[Row], records: list[list[Record]], store: RunStore) -> Part:
        (dataset,) = key
        cells = []
        for row in rows:
            times = [duration(row.time), duration(row.time / row.sub_gcns), size(row.bytes)]
            cells.append(self._cells(dataset, row, times, "{:.0f} s"))
        verdicts = []
        for other, gist in _pairs(rows):
            where = f"{dataset}, {gist.sub_gcns} workers"
            faster = None if None in (gist.speedup, other.speedup) else gist.time < other.time
            times_of_both = f"{duration(gist.time)} against {duration(other.time)}"
            verdicts.append(Verdict(f"{where}: GIST trains faster than local SGD", faster, times_of_both))
            verdicts.append(_higher_score(where, gist, other))
        return cells, verdicts, [_chart(dataset, rows, records)]

    def _note(self) -> str:
        return (
            f"{self._settings()}Local SGD's workers draw different batches; GIST's sub-GCNs see the same ones, as in "
            "the authors' code. The time of a worker is the time divided by the number of workers: what as many such "
            "machines would take without the network. What a worker sends in the whole run is computed by formula. "
            "The paper's times are on as many GPUs as workers and include the network."
        )


@dataclass(frozen=True)
class EnsembleTable(AppendixB):
    """Table 7; see `AppendixB`. The paper's seconds are of inference."""

    name = "ensemble"
    title = "Table 7: GIST against ensembles of sub-GCNs"
    rival = "ensemble"
    columns = ("data set", "m", "method", "F1", "time", "inference", "each model alone", "paper: F1", "inference")
    paper: ClassVar[Mapping[str, tuple[tuple[float, float], ...]]] = {
        "ensemble": ((96.31, 3.59), (96.10, 6.38), (95.28, 11.95)),
        "gist": ((96.40, 1.81), (96.16, 1.81), (95.46, 1.81)),
    }

    def _part(self, key: tuple[Any, ...], rows: list[Row], records: list[list[Record]], store: RunStore) -> Part:
        (dataset,) = key
        runs, graph = self._runs(dataset), load(dataset, store.data_root)
        scale = runs[0].scale(graph)
        alone = inference_alone(runs, (scale.graph(graph) if scale else graph).to(self.device))
        cells = []
        for row, seconds in zip(rows, alone, strict=True):
            times = [duration(row.time), duration(row.inference) if row.inference else "–", duration(seconds)]
            cells.append(self._cells(dataset, row, times, "{:.2f} s"))
        return cells, list(self._verdicts(dataset, rows, alone)), [_chart(dataset, rows, records)]

    def _verdicts(self, dataset: str, rows: Sequence[Row], alone: Sequence[float]) -> Iterator[Verdict]:
        seconds = {(row.method, row.sub_gcns): time for row, time in zip(rows, alone, strict=True)}
        for other, gist in _pairs(rows):
            m = gist.sub_gcns
            where = f"{dataset}, m = {m}"
            yield _higher_score(where, gist, other)
            shared = f"{other.inference / gist.inference:.2f}" if other.inference and gist.inference else "–"
            ratio = seconds["ensemble", m] / seconds["gist", m]
            (_, ensemble), (_, single) = (self.paper[method][WORKERS.index(m)] for method in ("ensemble", "gist"))
            yield Verdict(
                f"{where}: an ensemble's inference takes m times as long if each model runs alone (0.75 m or more)",
                ratio >= 0.75 * m,
                f"{ratio:.2f} times; {shared} if members share the first sum; {ensemble / single:.2f} times in the "
                "paper",
            )

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
    """Return the seconds that the models of each run take for a graph if they share nothing, not even the adjacency.

    The seconds are medians of several passes, of models with new weights, because times do not depend on the weights.
    """
    trainers = [run.trainer(graph.num_features, graph.num_classes) for run in runs]
    models = [[member.to(graph.x.device) for member in members_of(trainer.model())] for trainer in trainers]
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


def _pairs(rows: Sequence[Row]) -> list[tuple[Row, Row]]:
    """Return the other method's row and GIST's, for every m."""
    gist = {row.sub_gcns: row for row in rows if row.method == "gist"}
    return [(row, gist[row.sub_gcns]) for row in rows if row.method != "gist"]


def _higher_score(where: str, gist: Row, other: Row) -> Verdict:
    scores = f"{gist.mean:.2f} against {other.mean:.2f}"
    return Verdict(f"{where}: GIST has the higher F1", gist.mean > other.mean, scores)


def _chart(dataset: str, rows: Sequence[Row], records: Sequence[Sequence[Record]]) -> Chart:
    """Return the first seed's test scores by epoch."""
    # The report colours dashed and solid lines each in their order: the baseline comes last, so that pairs match.
    baseline, *others = zip(rows, records, strict=True)
    series = [
        Series.of_scores(row.label, record, "epoch", dashed=row.method != "gist")
        for row, (record, *_) in (*others, baseline)
    ]
    return Chart(f"F1 by epoch, {dataset}", "epoch", "test F1 (%)", series)
