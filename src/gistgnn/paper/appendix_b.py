"""Tables 6 and 7 (appendix B): GIST against local SGD, and against ensembles of sub-GCNs, on the same batches."""

from __future__ import annotations

import statistics
import time
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import torch

from gistgnn.compare.comparison import Row
from gistgnn.compare.many_runs import RunStore
from gistgnn.evaluation.scores import evaluation_mode
from gistgnn.graphs import Graph, load
from gistgnn.nn.ensemble_model import members_of
from gistgnn.paper.claims import if_trained
from gistgnn.paper.experiment import Curve, CurveChart, GroupedExperiment, GroupKey, TablePart, Verdict, paper_cells
from gistgnn.paper.groups import Line, RunGroup, name_in_group
from gistgnn.paper.large_graphs import PHASES_NOTE, describe_clusters, graphsage, in_phases, large_run
from gistgnn.runs.config import RunConfig
from gistgnn.sampling import forward, whole_graph
from gistgnn.utils.formats import duration, size

WORKERS = (2, 4, 8)
PASSES = 5  # of each model, for the median
SAME_TIME = 1.25  # times of a few passes that differ by less count as equal


@dataclass(frozen=True)
class AppendixB(GroupedExperiment):
    """GIST against another method on the same batches; see `Experiment`. Epochs are split over the workers.

    Args:
        local_steps: ζ.

    Attributes:
        rival: the other method.
        paper: the paper's F1 in percent and seconds on Reddit, by method, for each of WORKERS.
        paper_seconds: how the paper prints seconds.
    """

    local_steps: int = 100

    rival: ClassVar[str]
    paper: ClassVar[Mapping[str, tuple[tuple[float, float], ...]]]
    paper_seconds: ClassVar[str]
    defaults: ClassVar[dict[str, dict[str, Any]]] = {
        "small": {"datasets": ("synthetic:reddit@0.2",), "seeds": 1, "epochs": 30},
        "full": {"datasets": ("reddit",), "seeds": 1, "epochs": 80},
    }

    @abstractmethod
    def _times(self, line: Line, group: RunGroup) -> list[str]:
        """Return the cells between the score and the paper's numbers."""

    @abstractmethod
    def _judge_one(self, dataset: str, group: RunGroup) -> Iterator[Verdict]:
        """Judge the claims for one data set."""

    def verdicts(self, groups: Mapping[GroupKey, RunGroup]) -> list[Verdict]:
        """See `GroupedExperiment`."""
        return [verdict for (dataset,), group in groups.items() for verdict in self._judge_one(dataset, group)]

    def _groups(self) -> dict[GroupKey, list[RunConfig]]:
        return {(dataset,): self._runs(dataset) for dataset in self.datasets}

    def _runs(self, dataset: str) -> list[RunConfig]:
        # In turn, because local SGD's workers draw different batches and cannot be fused.
        settings = self.epochs, self.local_steps, self.device, "in-turn"
        baseline, *split = (large_run(dataset, graphsage(256, 2), m, *settings) for m in (1, *WORKERS))
        both = [replace(run, method=method) for run in split for method in (self.rival, "gist")]
        return [baseline, *both, *map(in_phases, split)]

    def _settings(self) -> str:
        paper = "" if self.scale == "full" else "The paper's numbers are for Reddit itself, 80 epochs, 8 V100. "
        return (
            "GraphSAGE with two hidden layers of 256, micro-F1 on the test nodes in percent at the best validation "
            f"score, after {self.epochs} epochs split over the workers, ζ = {self.local_steps}, Adam at 0.01, dropout "
            f"0.2; {self.seeds} seed(s). {describe_clusters(self.datasets)}. On one machine the runs follow one "
            f"another, and so do the workers of a run. {PHASES_NOTE} {paper}"
        )

    def _part(self, key: GroupKey, group: RunGroup) -> TablePart:
        (dataset,) = key
        cells = []
        for line in group.lines:
            row = line.row
            papers = self.paper.get(row.method) if row.sub_gcns > 1 else None
            paper = paper_cells(papers[WORKERS.index(row.sub_gcns)] if papers else None, self.paper_seconds)
            cells.append([dataset, str(row.sub_gcns), row.name, line.f1, *self._times(line, group), *paper])
        return cells, [_score_chart(dataset, group)]


@dataclass(frozen=True)
class LocalSgdTable(AppendixB):
    """Table 6; see `AppendixB`."""

    name = "local-sgd"
    title = "Table 6: GIST against local SGD"
    rival, paper_seconds = "local-sgd", "{:.0f} s"
    columns = (
        *("data set", "workers", "method", "F1", "time", "time / workers", "sent by a worker"),
        *("paper: F1", "time"),
    )
    paper: ClassVar[Mapping[str, tuple[tuple[float, float], ...]]] = {
        "local-sgd": ((96.37, 137.17), (95.00, 127.63), (93.40, 129.58)),
        "gist": ((96.40, 108.67), (96.16, 116.56), (95.46, 123.83)),
    }

    def _times(self, line: Line, group: RunGroup) -> list[str]:
        row, alone = line.row, line.alone
        shared = row.method != "phases"  # there one part trains: nothing is shared out to workers
        share = duration(alone.time / row.sub_gcns) if alone and shared else "–"
        return [line.time, share, size(row.bytes) if shared else "–"]

    def _judge_one(self, dataset: str, group: RunGroup) -> Iterator[Verdict]:
        """Judge "GIST outperform[s] ... local SGD in terms of test F1 score and ... training time in all cases"."""
        for other, gist in _pairs(group.rows):
            where = f"{dataset}, {gist.sub_gcns} workers"
            faster = if_trained(gist.time < other.time, [gist, other])
            times_of_both = f"{duration(gist.time)} against {duration(other.time)}"
            yield Verdict(f"{where}: GIST trains faster than local SGD", faster, times_of_both)
            yield _higher_score(where, gist, other)

    def _note(self) -> str:
        return (
            f"{self._settings()}Local SGD's workers draw different batches; GIST's sub-GCNs see the same ones, as in "
            "the authors' code. The time divided by the number of workers is what as many such machines would take "
            "without the network; in phases one part trains at a time. What a worker sends in the "
            "whole run is computed by formula. "
            "The paper's times are on as many GPUs as workers and include the network."
        )


@dataclass(frozen=True)
class EnsembleTable(AppendixB):
    """Table 7; see `AppendixB`. The paper's seconds are of inference, the median of `passes` over the whole graph."""

    passes: int = PASSES

    name = "ensemble"
    title = "Table 7: GIST against ensembles of sub-GCNs"
    rival, paper_seconds = "ensemble", "{:.2f} s"
    defaults: ClassVar[dict[str, dict[str, Any]]] = {
        "small": AppendixB.defaults["small"],
        "full": {**AppendixB.defaults["full"], "local_steps": 500},  # Table 7 repeats Table 2's F1, with its ζ
    }
    columns = ("data set", "m", "method", "F1", "time", "inference", "each model alone", "paper: F1", "inference")
    paper: ClassVar[Mapping[str, tuple[tuple[float, float], ...]]] = {
        "ensemble": ((96.31, 3.59), (96.10, 6.38), (95.28, 11.95)),
        "gist": ((96.40, 1.81), (96.16, 1.81), (95.46, 1.81)),
    }

    def shortened(self) -> Self:
        """See `Experiment`: one pass of each model."""
        return replace(self, passes=1)

    def _measure(self, key: GroupKey, runs: list[RunConfig], store: RunStore) -> RunGroup:
        group, graph = super()._measure(key, runs, store), load(store.dataset(runs[0].dataset), store.data_root)
        scale = runs[0].scale(graph)
        alone = inference_alone(runs, (scale.graph(graph) if scale else graph).to(self.device), self.passes)
        return replace(group, alone=dict(zip(map(name_in_group, runs), alone, strict=True)))

    def _times(self, line: Line, group: RunGroup) -> list[str]:
        inference = duration(line.row.inference) if line.row.inference else "–"
        return [line.time, inference, duration(group.alone[line.row.method, line.row.sub_gcns])]

    def _judge_one(self, dataset: str, group: RunGroup) -> Iterator[Verdict]:
        seconds = group.alone
        for other, gist in _pairs(group.rows):
            where = f"{dataset}, m = {gist.sub_gcns}"
            yield _higher_score(where, gist, other)
            yield self._burdensome(where, gist, other, seconds)
        yield _same_for_every_m(dataset, [seconds["gist", gist.sub_gcns] for _, gist in _pairs(group.rows)])

    def _burdensome(self, where: str, gist: Row, other: Row, seconds: Mapping[tuple[str, int], float]) -> Verdict:
        """Judge "inference time for sub-GCN ensembles becomes burdensome as the number of sub-GCNs is increased"."""
        m = gist.sub_gcns
        shared = f"{other.inference / gist.inference:.2f}" if other.inference and gist.inference else "–"
        ratio = seconds["ensemble", m] / seconds["gist", m]
        (_, ensemble), (_, single) = (self.paper[method][WORKERS.index(m)] for method in ("ensemble", "gist"))
        return Verdict(
            f"{where}: an ensemble's inference takes m times as long if each model runs alone (0.75 m or more)",
            ratio >= 0.75 * m,
            f"{ratio:.2f} times; {shared} if members share the first sum; {ensemble / single:.2f} times in the paper",
        )

    def _note(self) -> str:
        return (
            f"{self._settings()}Each member of an ensemble counts as it was at its best validation score; logits "
            "are averaged. An ensemble's members are scored after every round of ζ steps. Inference is one pass over "
            "the whole graph, the median of the passes during training. There, the first sum over neighbours, of the "
            'input features, is computed once for all members and passes, and members are narrow. "Each model alone" '
            f"computes everything again for every model, as if m models ran one after another (median of "
            f"{self.passes} passes)."
        )


def _pairs(rows: Sequence[Row]) -> list[tuple[Row, Row]]:
    """Return the other method's row and GIST's, for every m."""
    gist = {row.sub_gcns: row for row in rows if row.method == "gist"}
    return [(row, gist[row.sub_gcns]) for row in rows if row.method not in ("gist", "phases")]


def _higher_score(where: str, gist: Row, other: Row) -> Verdict:
    """Return whether GIST's score is higher."""
    scores = f"{gist.mean:.2f} against {other.mean:.2f}"
    return Verdict(f"{where}: GIST has the higher F1", gist.mean > other.mean, scores)


def _score_chart(dataset: str, group: RunGroup) -> CurveChart:
    """Return the first seed's test scores by epoch."""
    # The report colours dashed and solid lines each in their order: the baseline comes last, so that pairs match.
    baseline, *others = [line for line in group.lines if line.row.method != "phases"]
    series = [
        Curve.of_scores(line.row.label, line.records[0], "epoch", dashed=line.row.method != "gist")
        for line in (*others, baseline)
    ]
    return CurveChart(f"F1 by epoch, {dataset}", "epoch", "test F1 (%)", series)


def _same_for_every_m(dataset: str, seconds: Sequence[float]) -> Verdict:
    """Judge "do not suffer from increased inference time as the number of sub-GCNs is increased" (caption)."""
    most = f"the longest is at most {SAME_TIME:g} times the shortest"
    claim = f"{dataset}: GIST's inference takes as long for every m ({most})"
    times = ", ".join(f"m = {m}: {duration(time)}" for m, time in zip(WORKERS, seconds, strict=True))
    return Verdict(claim, max(seconds) <= SAME_TIME * min(seconds), times)


def inference_alone(runs: Sequence[RunConfig], graph: Graph, passes: int) -> list[float]:
    """Return the seconds that the models of each run take for a graph if they share nothing, not even the adjacency.

    The seconds are medians of several passes, of models with new weights, because times do not depend on the weights.
    """
    trainers = [run.trainer(graph.num_features, graph.num_classes) for run in runs]
    models = [[member.to(graph.x.device) for member in members_of(trainer.model())] for trainer in trainers]
    seconds: list[list[float]] = [[] for _ in models]
    for _ in range(passes):
        for times, members in zip(seconds, models, strict=True):  # in turns, so that other load slows all alike
            start = time.perf_counter()
            for member in members:
                with evaluation_mode(member):
                    forward(member, whole_graph(graph))
            if graph.x.is_cuda:
                torch.cuda.synchronize(graph.x.device)
            times.append(time.perf_counter() - start)
    return [statistics.median(times) for times in seconds]
