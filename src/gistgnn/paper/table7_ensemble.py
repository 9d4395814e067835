"""Table 7: GIST against ensembles of sub-GCNs that are never merged (appendix B)."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import torch

from gistgnn.compare.comparison import Row
from gistgnn.compare.many_runs import RunStore
from gistgnn.evaluation.scores import evaluation_mode
from gistgnn.graphs import Graph, load
from gistgnn.nn.ensemble_model import members_of
from gistgnn.paper.appendix_b import WORKERS, AppendixB, higher_score, pairs, score_chart
from gistgnn.paper.experiment import Key, Part, Verdict
from gistgnn.paper.groups import Group, name_of
from gistgnn.runs.config import RunConfig
from gistgnn.sampling import forward, whole_graph
from gistgnn.utils.formats import duration

PASSES = 5  # of each model, for the median
SAME = 1.25  # times of a few passes that differ by less count as equal


@dataclass(frozen=True)
class EnsembleTable(AppendixB):
    """Table 7; see `AppendixB`. The paper's seconds are of inference, the median of `passes` over the whole graph."""

    passes: int = PASSES

    name = "ensemble"
    title = "Table 7: GIST against ensembles of sub-GCNs"
    rival = "ensemble"
    defaults: ClassVar[dict[str, dict[str, Any]]] = {
        "small": AppendixB.defaults["small"],
        "full": {**AppendixB.defaults["full"], "local_steps": 500},  # Table 7 repeats Table 2's F1, with its ζ
    }
    columns = ("data set", "m", "method", "F1", "time", "inference", "each model alone", "paper: F1", "inference")
    paper: ClassVar[Mapping[str, tuple[tuple[float, float], ...]]] = {
        "ensemble": ((96.31, 3.59), (96.10, 6.38), (95.28, 11.95)),
        "gist": ((96.40, 1.81), (96.16, 1.81), (95.46, 1.81)),
    }

    def verdicts(self, groups: Mapping[Key, Group]) -> list[Verdict]:
        """See `GroupedExperiment`."""
        return [verdict for (dataset,), group in groups.items() for verdict in self._judge_one(dataset, group)]

    def shortened(self) -> Self:
        """See `Experiment`: one pass of each model."""
        return replace(self, passes=1)

    def _measure(self, key: Key, runs: list[RunConfig], store: RunStore) -> Group:
        group, graph = super()._measure(key, runs, store), load(store.dataset(runs[0].dataset), store.data_root)
        scale = runs[0].scale(graph)
        alone = inference_alone(runs, (scale.graph(graph) if scale else graph).to(self.device), self.passes)
        return replace(group, alone=dict(zip(map(name_of, runs), alone, strict=True)))

    def _part(self, key: Key, group: Group) -> Part:
        (dataset,) = key
        cells = []
        for line in group.lines:
            row = line.row
            inference = duration(row.inference) if row.inference else "–"
            times = [line.time, inference, duration(group.alone[row.method, row.sub_gcns])]
            cells.append(self._cells(dataset, line, times, "{:.2f} s"))
        return cells, [score_chart(dataset, group)]

    def _judge_one(self, dataset: str, group: Group) -> Iterator[Verdict]:
        seconds = group.alone
        for other, gist in pairs(group.rows):
            where = f"{dataset}, m = {gist.sub_gcns}"
            yield higher_score(where, gist, other)
            yield self._burdensome(where, gist, other, seconds)
        yield _same_for_every_m(dataset, [seconds["gist", gist.sub_gcns] for _, gist in pairs(group.rows)])

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


def _same_for_every_m(dataset: str, seconds: Sequence[float]) -> Verdict:
    """Judge "do not suffer from increased inference time as the number of sub-GCNs is increased" (caption)."""
    claim = (
        f"{dataset}: GIST's inference takes as long for every m (the longest is at most {SAME:g} times the shortest)"
    )
    times = ", ".join(f"m = {m}: {duration(time)}" for m, time in zip(WORKERS, seconds, strict=True))
    return Verdict(claim, max(seconds) <= SAME * min(seconds), times)


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
