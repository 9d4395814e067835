"""Tables 6 and 7 (appendix B): GIST against local SGD, and against ensembles of sub-GCNs, on the same batches."""

from __future__ import annotations

import statistics
import time
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import torch

from gistgnn.compare import Row, RunStore
from gistgnn.evaluation import evaluation_mode
from gistgnn.graphs import Graph, load
from gistgnn.nn import members_of
from gistgnn.paper.experiment import Curve, CurveChart, Verdict
from gistgnn.paper.groups import NONE, GroupedExperiment, GroupKey, Groups, Line, RunGroup, if_trained
from gistgnn.paper.large_graphs import PHASES_NOTE, describe_clusters, graphsage, in_phases, large_run
from gistgnn.paper.published import TABLE6, TABLE7, WORKERS, paper_cells
from gistgnn.runs import RunConfig
from gistgnn.sampling import forward, whole_graph
from gistgnn.utils import duration, size

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
    def _times(self, line: Line) -> list[str]:
        """Return the cells between the training time and the paper's numbers."""

    def _groups(self) -> dict[GroupKey, list[RunConfig]]:
        return {(dataset,): self._runs(dataset) for dataset in self.datasets}

    def _runs(self, dataset: str) -> list[RunConfig]:
        # In turn, because local SGD's workers draw different batches and cannot be fused.
        settings = self.epochs, self.local_steps, self.device, "in-turn"
        baseline, *split = (large_run(dataset, graphsage(256, 2), m, *settings) for m in (1, *WORKERS))
        both = [replace(run, method=method) for run in split for method in (self.rival, "gist")]
        return [baseline, *both, *map(in_phases, split)]

    def _cells(self, key: GroupKey, line: Line) -> list[str]:
        method, m = line.name
        papers = self.paper.get(method) if m > 1 else None
        paper = paper_cells(papers[WORKERS.index(m)] if papers else None, self.paper_seconds)
        score, seconds, _ = line.cells
        return [*key, str(m), line.shown.row.name, score, seconds, *self._times(line), *paper]

    def _chart(self, key: GroupKey, group: RunGroup) -> CurveChart:
        """Return the first seed's test scores by epoch."""
        # The report colours dashed and solid lines each in their order: the baseline comes last, so that pairs match.
        baseline, *others = [line for line in group.trained if line.name[0] != "phases"]
        series = [
            Curve.of_scores(line.shown.row.label, line.shown.records[0], "epoch", dashed=line.name[0] != "gist")
            for line in (*others, baseline)
        ]
        return CurveChart(f"F1 by epoch, {key[0]}", "epoch", "test F1 (%)", series)

    def _settings(self) -> str:
        """Say how the models were trained."""
        paper = "" if self.scale == "full" else "The paper's numbers are for Reddit itself, 80 epochs, 8 V100. "
        return (
            "GraphSAGE with two hidden layers of 256, micro-F1 on the test nodes in percent at the best validation "
            f"score, after {self.epochs} epochs split over the workers, ζ = {self.local_steps}, Adam at 0.01, dropout "
            f"0.2; {self.seeds} seed(s). {describe_clusters(self.datasets)}. On one machine the runs follow one "
            f"another, and so do the workers of a run. {PHASES_NOTE} {paper}"
        )


@dataclass(frozen=True)
class LocalSgdTable(AppendixB):
    """Table 6; see `AppendixB`."""

    name = "local-sgd"
    title = "Table 6: GIST against local SGD"
    rival, paper, paper_seconds = "local-sgd", TABLE6, "{:.0f} s"
    columns = (
        *("data set", "workers", "method", "F1", "time", "time / workers", "sent by a worker"),
        *("paper: F1", "time"),
    )

    def _times(self, line: Line) -> list[str]:
        row, (method, m) = line.shown.row, line.name
        if method == "phases":  # there one part trains: nothing is shared out to workers
            return [NONE, NONE]
        return [duration(row.time / m) if line.alone else NONE, size(row.bytes)]

    def verdicts(self, groups: Groups) -> list[Verdict]:
        """Judge "GIST outperform[s] ... local SGD in terms of test F1 score and ... training time in all cases"."""
        verdicts = []
        for (dataset,), group in groups.items():
            for m in WORKERS:
                gist, other = (group.line(method, m).shown.row for method in ("gist", "local-sgd"))
                claim = f"{dataset}, {m} workers: GIST trains faster than local SGD"
                times = f"{duration(gist.time)} against {duration(other.time)}"
                verdicts.append(if_trained(claim, [gist, other], gist.time < other.time, times))
                verdicts.append(_higher_score(f"{dataset}, {m} workers", gist, other))
        return verdicts

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
    rival, paper, paper_seconds = "ensemble", TABLE7, "{:.2f} s"
    defaults: ClassVar[dict[str, dict[str, Any]]] = {
        "small": AppendixB.defaults["small"],
        "full": {**AppendixB.defaults["full"], "local_steps": 500},  # Table 7 repeats Table 2's F1, with its ζ
    }
    columns = ("data set", "m", "method", "F1", "time", "inference", "each model alone", "paper: F1", "inference")

    def shortened(self) -> Self:
        """See `Experiment`: one pass of each model."""
        return replace(self, passes=1)

    def _measure(self, runs: Sequence[RunConfig], store: RunStore) -> RunGroup:
        """See `GroupedExperiment`; each run's inference is measured, too."""
        group, graph = super()._measure(runs, store), load(store.dataset(runs[0].dataset), store.data_root)
        scale = runs[0].scale(graph)
        seconds = inference_alone(runs, (scale.graph(graph) if scale else graph).to(self.device), self.passes)
        pairs = zip(group.lines, seconds, strict=True)
        return RunGroup([replace(line, inference=inference) for line, inference in pairs])

    def _times(self, line: Line) -> list[str]:
        return [duration(one) if one else NONE for one in (line.shown.row.inference, line.inference)]

    def verdicts(self, groups: Groups) -> list[Verdict]:
        """Judge the claims on scores and inference."""
        verdicts = []
        for (dataset,), group in groups.items():
            pairs = {m: (group.line("gist", m), group.line("ensemble", m)) for m in WORKERS}
            for m, pair in pairs.items():
                where = f"{dataset}, m = {m}"
                verdicts.append(_higher_score(where, *(line.shown.row for line in pair)))
                verdicts.append(_burdensome(where, *pair))
            verdicts.append(_same_for_every_m(dataset, {m: gist.inference or 0.0 for m, (gist, _) in pairs.items()}))
        return verdicts

    def _note(self) -> str:
        return (
            f"{self._settings()}Each member of an ensemble counts as it was at its best validation score; logits "
            "are averaged. An ensemble's members are scored after every round of ζ steps. Inference is one pass over "
            "the whole graph, the median of the passes during training. There, the first sum over neighbours, of the "
            'input features, is computed once for all members and passes, and members are narrow. "Each model alone" '
            f"computes everything again for every model, as if m models ran one after another (median of "
            f"{self.passes} passes)."
        )


def _higher_score(where: str, gist: Row, other: Row) -> Verdict:
    scores = f"{gist.mean:.2f} against {other.mean:.2f}"
    return Verdict(f"{where}: GIST has the higher F1", gist.mean > other.mean, scores)


def _burdensome(where: str, gist: Line, other: Line) -> Verdict:
    """Judge "inference time for sub-GCN ensembles becomes burdensome as the number of sub-GCNs is increased"."""
    m, ours, theirs = gist.name[1], gist.shown.row.inference, other.shown.row.inference
    shared = f"{theirs / ours:.2f}" if theirs and ours else NONE
    ratio = (other.inference or 0.0) / (gist.inference or 1.0)
    (_, ensemble), (_, single) = (TABLE7[method][WORKERS.index(m)] for method in ("ensemble", "gist"))
    return Verdict(
        f"{where}: an ensemble's inference takes m times as long if each model runs alone (0.75 m or more)",
        ratio >= 0.75 * m,
        f"{ratio:.2f} times; {shared} if members share the first sum; {ensemble / single:.2f} times in the paper",
    )


def _same_for_every_m(dataset: str, seconds: Mapping[int, float]) -> Verdict:
    """Judge "do not suffer from increased inference time as the number of sub-GCNs is increased" (caption)."""
    most = f"the longest is at most {SAME_TIME:g} times the shortest"
    claim = f"{dataset}: GIST's inference takes as long for every m ({most})"
    times = ", ".join(f"m = {m}: {duration(inference)}" for m, inference in seconds.items())
    return Verdict(claim, max(seconds.values()) <= SAME_TIME * min(seconds.values()), times)


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
