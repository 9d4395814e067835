"""Tables 6 and 7 (appendix B): GIST against local SGD, and against ensembles of sub-GCNs, on batches of one kind."""

import statistics
import time
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch

from gistgnn.compare import RunStore
from gistgnn.evaluation import evaluation_mode
from gistgnn.graphs import Graph, load
from gistgnn.nn import members_of
from gistgnn.paper import large_graphs as large
from gistgnn.paper.experiment import Claim, Verdict, judge, scores_of
from gistgnn.paper.large_graphs import GroupedExperiment, GroupKey, Groups, Line, RunGroup
from gistgnn.paper.published import TABLE6, TABLE7, WORKERS, paper_cells
from gistgnn.report import Chart
from gistgnn.runs import RunConfig
from gistgnn.sampling import forward, whole_graph
from gistgnn.utils import duration, size

PASSES = 5  # of each model, for the median
SAME_TIME = 1.25  # times of a few passes that differ by less count as equal


@dataclass(frozen=True)
class AppendixB(GroupedExperiment):
    """GIST against the `rival` method on batches of the same kind; see `Experiment`. Workers share the epochs."""

    local_steps: int = 100
    clusters: int | None = None
    clusters_per_batch: int = large.IN_BATCH

    rival: ClassVar[str]
    paper: ClassVar[Mapping[str, tuple[tuple[float, float], ...]]]  # F1 in percent and seconds, for each of WORKERS
    paper_seconds: ClassVar[str]
    each: ClassVar[str]  # how a claim names m workers or members
    explained: ClassVar[str]  # what the columns mean, for the note
    defaults: ClassVar[dict[str, dict[str, Any]]] = {
        "small": {"datasets": ("synthetic:reddit@0.2",), "seeds": 1, "epochs": 30},
        "full": {"datasets": ("reddit",), "seeds": 1, "epochs": 80},
    }

    @abstractmethod
    def _times(self, line: Line) -> list[str]:
        """Return the cells between the training time and the paper's numbers."""

    @abstractmethod
    def _times_claim(self, gist: Line, other: Line) -> Claim:
        """Return what the paper says of the times of GIST and of the other method, with as many workers."""

    def verdicts(self, groups: Groups) -> list[Verdict]:
        """Judge the paper's claims for every m; of scores: "GIST outperform[s]" the rival "in all cases"."""
        verdicts = []
        for (dataset,), group in groups.items():
            for m in WORKERS:
                gist, other = group.line("gist", m), group.line(self.rival, m)
                ours, theirs = gist.shown.row.mean, other.shown.row.mean
                higher = Claim("GIST has the higher F1", ours > theirs, f"{ours:.2f} against {theirs:.2f}")
                verdicts += judge(f"{dataset}, {self.each.format(m)}", [self._times_claim(gist, other), higher])
        return verdicts

    def groups(self) -> dict[GroupKey, list[RunConfig]]:
        # In turn, because workers of the other methods draw different batches and cannot be fused.
        settings: dict[str, Any] = {"clusters": self.clusters, "clusters_per_batch": self.clusters_per_batch}
        settings |= {"local_steps": self.local_steps, "device": self.device, "runner": "in-turn"}
        found: dict[GroupKey, list[RunConfig]] = {}
        for dataset in self.datasets:
            model = large.graphsage(256, 2)
            baseline, *split = (large.large_run(dataset, model, m, self.epochs, **settings) for m in (1, *WORKERS))
            both = [replace(run, method=method) for run in split for method in (self.rival, "gist")]
            found[dataset,] = [baseline, *both]
        return found

    def _cells(self, key: GroupKey, line: Line) -> list[str]:
        method, m = line.name
        paper = self.paper[method][WORKERS.index(m)] if m > 1 else None
        score, seconds, _ = line.cells
        cells = [*key, str(m), line.shown.row.name, score, seconds, *self._times(line)]
        return [*cells, *paper_cells(paper, self.paper_seconds)]

    def _chart(self, key: GroupKey, group: RunGroup) -> Chart:
        """Return the first seed's test scores by epoch."""
        # The report colours dashed and solid lines each in their order: the baseline comes last, so that pairs match.
        baseline, *others = group.trained
        series = [
            scores_of(line.shown.row.label, line.shown.records[0], "epoch", dashed=line.name[0] != "gist")
            for line in (*others, baseline)
        ]
        return Chart(f"F1 by epoch, {key[0]}", "epoch", "test F1 (%)", series)

    def _note(self) -> str:
        paper = "" if self.scale == "full" else "The paper's numbers are for Reddit itself, 80 epochs, 8 V100. "
        clusters = large.describe_clusters(self.datasets, self.clusters, self.clusters_per_batch)
        return (
            "GraphSAGE with two hidden layers of 256, micro-F1 on the test nodes in percent at the best validation "
            f"score, {self.epochs} epochs split over the workers, ζ = {self.local_steps}, Adam at 0.01, dropout 0.2; "
            f"{self.seeds} seed(s). {clusters}. On one machine, workers train one after another. {paper}"
            f"{self.explained}"
        )


@dataclass(frozen=True)
class LocalSgdTable(AppendixB):
    """Table 6; see `AppendixB`."""

    rival, paper, paper_seconds, each = "local-sgd", TABLE6, "{:.0f} s", "{} workers"
    columns = (
        *("data set", "workers", "method", "F1", "time", "time / workers", "sent by a worker"),
        *("paper: F1", "time"),
    )
    explained = (
        "Local SGD's workers draw different batches; GIST's sub-GCNs see the same ones, as in the authors' code. What "
        "a worker sends is computed by formula. The paper's times are on as many GPUs as workers, with the network."
    )

    def _times(self, line: Line) -> list[str]:
        row = line.shown.row
        return [duration(row.time / row.sub_gcns) if line.alone else large.NONE, size(row.bytes)]

    def _times_claim(self, gist: Line, other: Line) -> Claim:
        ours, theirs = gist.shown.row, other.shown.row
        times = f"{duration(ours.time)} against {duration(theirs.time)}"
        return Claim("GIST trains faster than local SGD", ours.time < theirs.time, times, [ours, theirs])


@dataclass(frozen=True)
class EnsembleTable(AppendixB):
    """Table 7; see `AppendixB`. The paper's seconds are of inference."""

    rival, paper, paper_seconds, each = "ensemble", TABLE7, "{:.2f} s", "m = {}"
    defaults: ClassVar[dict[str, dict[str, Any]]] = {
        "small": AppendixB.defaults["small"],
        "full": {**AppendixB.defaults["full"], "local_steps": 500},  # Table 7 repeats Table 2's F1, with its ζ
    }
    columns = ("data set", "m", "method", "F1", "time", "inference", "each model alone", "paper: F1", "inference")
    explained = (
        "Each member of an ensemble counts as it was at its best validation score; logits are averaged. Inference is "
        "one pass over the whole graph, the median of the passes during training: members share the first sum over "
        'neighbours. "Each model alone" computes everything again for every model '
        f"(median of {PASSES} passes)."
    )

    def _measure(self, runs: Sequence[RunConfig], store: RunStore) -> RunGroup:
        """See `GroupedExperiment`; each run's inference is measured, too."""
        group, graph = super()._measure(runs, store), load(store.dataset(runs[0].dataset), store.data_root)
        seconds = inference_alone(runs, graph.to(self.device))
        pairs = zip(group.lines, seconds, strict=True)
        return RunGroup([replace(line, inference=inference) for line, inference in pairs])

    def _times(self, line: Line) -> list[str]:
        return [duration(one) if one else large.NONE for one in (line.shown.row.inference, line.inference)]

    def verdicts(self, groups: Groups) -> list[Verdict]:
        """Judge "do not suffer from increased inference time as the number of sub-GCNs is increased" (caption), too."""
        verdicts = super().verdicts(groups)
        for (dataset,), group in groups.items():
            seconds = {m: group.line("gist", m).inference or 0.0 for m in WORKERS}
            text = "GIST's inference takes as long for every m "
            text += f"(the longest is at most {SAME_TIME:g} times the shortest)"
            times = ", ".join(f"m = {m}: {duration(inference)}" for m, inference in seconds.items())
            same = max(seconds.values()) <= SAME_TIME * min(seconds.values())
            verdicts += judge(dataset, [Claim(text, same, times)])
        return verdicts

    def _times_claim(self, gist: Line, other: Line) -> Claim:
        """Its "inference time for sub-GCN ensembles becomes burdensome as the number of sub-GCNs is increased"."""
        m, ours, theirs = gist.name[1], gist.shown.row.inference, other.shown.row.inference
        shared = f"{theirs / ours:.2f}" if theirs and ours else large.NONE
        ratio = (other.inference or 0.0) / (gist.inference or 1.0)
        (_, ensemble), (_, single) = (TABLE7[method][WORKERS.index(m)] for method in ("ensemble", "gist"))
        text = "an ensemble's inference takes m times as long if each model runs alone (0.75 m or more)"
        paper = f"{ensemble / single:.2f} times in the paper"
        return Claim(text, ratio >= 0.75 * m, f"{ratio:.2f} times; {shared} if members share the first sum; {paper}")


def inference_alone(runs: Sequence[RunConfig], graph: Graph) -> list[float]:
    """Return the seconds that the models of each run take for a graph if they share nothing (median of passes)."""
    # Models have new weights: times do not depend on the weights.
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
