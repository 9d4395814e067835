"""Tables 6 and 7 (appendix B): GIST against local SGD, and against ensembles of sub-GCNs."""

import statistics
import time
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch

from gistgnn.compare import RunStore
from gistgnn.evaluation import evaluation_mode
from gistgnn.graphs import Graph
from gistgnn.nn import members_of
from gistgnn.paper import large_graphs as large
from gistgnn.paper.experiment import scores_of
from gistgnn.paper.large_graphs import ComparisonOfRuns, GroupKey, TrainedRun
from gistgnn.paper.published import TABLE6, TABLE7, WORKERS, paper_cells
from gistgnn.report import Chart
from gistgnn.runs import RunConfig
from gistgnn.sampling import forward, whole_graph
from gistgnn.utils import duration, size

PASSES = 5  # of each model, for the median


@dataclass(frozen=True)
class AppendixB(ComparisonOfRuns):
    """GIST against the `rival` method on batches of the same kind; see `Experiment`.

    Workers share the epochs.
    """

    local_steps: int = 100
    clusters: int | None = None
    clusters_per_batch: int = large.IN_BATCH

    rival: ClassVar[str]
    # F1 in percent and seconds, for each of WORKERS.
    paper: ClassVar[Mapping[str, tuple[tuple[float, float], ...]]]
    paper_seconds: ClassVar[str]
    explained: ClassVar[str]  # what the columns mean, for the note
    defaults: ClassVar[dict[str, dict[str, Any]]] = {
        "small": {"datasets": ("synthetic:reddit@0.2",), "seeds": 1, "epochs": 30},
        "full": {"datasets": ("reddit",), "seeds": 1, "epochs": 80},
    }

    @abstractmethod
    def times(self, group: Sequence[TrainedRun], store: RunStore) -> list[list[str]]:
        """Return for every run the cells between the training time and the paper's numbers."""

    def groups(self) -> dict[GroupKey, list[RunConfig]]:
        model = large.graphsage(256, 2)
        training = large.large_training(self.epochs, self.local_steps)
        groups: dict[GroupKey, list[RunConfig]] = {}
        for dataset in self.datasets:
            sampler = large.cluster_sampling(dataset, self.clusters, self.clusters_per_batch)
            runs = []
            for method, m in [
                ("gist", 1),
                *((method, m) for m in WORKERS for method in (self.rival, "gist")),
            ]:
                run = large.large_run(dataset, model, m, training, sampler)
                # In turn, because workers of the other methods draw different batches and cannot be
                # fused.
                runs.append(replace(run, method=method, runner="in-turn", device=self.device))
            groups[dataset,] = runs
        return groups

    def rows(self, key: GroupKey, group: Sequence[TrainedRun], store: RunStore) -> list[list[str]]:
        baseline = group[0].row
        rows = []
        for trained, times in zip(group, self.times(group, store), strict=True):
            m = trained.config.sub_gcns
            score, seconds, _ = large.cells_of_one_device(trained, baseline)
            paper = self.paper[trained.config.method][WORKERS.index(m)] if m > 1 else None
            cells = [*key, str(m), trained.row.name, score, seconds, *times]
            rows.append([*cells, *paper_cells(paper, self.paper_seconds)])
        return rows

    def chart(self, key: GroupKey, group: Sequence[TrainedRun]) -> Chart:
        """Return the first seed's test scores by epoch."""
        # The report colours dashed and solid lines each in their order: the baseline comes last, so
        # that pairs match.
        baseline, *other_runs = group
        series = [
            scores_of(
                trained.row.label,
                trained.records[0],
                "epoch",
                dashed=trained.config.method != "gist",
            )
            for trained in (*other_runs, baseline)
        ]
        return Chart(f"F1 by epoch, {key[0]}", "epoch", "test F1 (%)", series)

    def note(self) -> str:
        paper = (
            ""
            if self.scale == "full"
            else "The paper's numbers are for Reddit itself, 80 epochs, 8 V100. "
        )
        clusters = large.describe_clusters(self.datasets, self.clusters, self.clusters_per_batch)
        return (
            "GraphSAGE with two hidden layers of 256, micro-F1 on the test nodes in percent at the "
            f"best validation score, {self.epochs} epochs split over the workers, ζ = "
            f"{self.local_steps}, Adam at 0.01, dropout 0.2; {self.seeds} seed(s). {clusters}. On "
            f"one machine, workers train one after another. {paper}{self.explained}"
        )


@dataclass(frozen=True)
class LocalSgdTable(AppendixB):
    """Table 6; see `AppendixB`."""

    rival = "local-sgd"
    paper = TABLE6
    paper_seconds = "{:.0f} s"
    columns = (
        "data set",
        "workers",
        "method",
        "F1",
        "time",
        "time / workers",
        "sent by a worker",
        "paper: F1",
        "time",
    )
    explained = (
        "Local SGD's workers draw different batches; GIST's sub-GCNs see the same ones, as in the "
        "authors' code. What a worker sends is computed by formula. The paper's times are on as "
        "many GPUs as workers, with the network."
    )

    def times(self, group: Sequence[TrainedRun], store: RunStore) -> list[list[str]]:
        cells = []
        for trained in group:
            row = trained.row
            of_a_worker = duration(row.time / row.sub_gcns) if trained.alone else large.NONE
            cells.append([of_a_worker, size(row.bytes)])
        return cells


@dataclass(frozen=True)
class EnsembleTable(AppendixB):
    """Table 7; see `AppendixB`. The paper's seconds are of inference."""

    rival = "ensemble"
    paper = TABLE7
    paper_seconds = "{:.2f} s"
    defaults: ClassVar[dict[str, dict[str, Any]]] = {
        "small": AppendixB.defaults["small"],
        # Table 7 repeats Table 2's F1, with its ζ.
        "full": {**AppendixB.defaults["full"], "local_steps": 500},
    }
    columns = (
        "data set",
        "m",
        "method",
        "F1",
        "time",
        "inference",
        "each model alone",
        "paper: F1",
        "inference",
    )
    explained = (
        "Each member of an ensemble counts as it was at its best validation score; logits are "
        "averaged. Inference is one pass over the whole graph, the median of the passes during "
        'training: members share the first sum over neighbours. "Each model alone" computes '
        f"everything again for every model (median of {PASSES} passes)."
    )

    def times(self, group: Sequence[TrainedRun], store: RunStore) -> list[list[str]]:
        runs = [trained.config for trained in group]
        graph = store.graph(runs[0].dataset).to(self.device)
        cells = []
        for trained, seconds in zip(group, inference_alone(runs, graph), strict=True):
            inference = trained.row.inference
            cells.append([duration(inference) if inference else large.NONE, duration(seconds)])
        return cells


def inference_alone(runs: Sequence[RunConfig], graph: Graph) -> list[float]:
    """Return the seconds that the models of each run take for a graph if they share nothing.

    They are medians of `PASSES` passes.
    """
    # Models have new weights: times do not depend on the weights.
    trainers = [run.trainer(graph.num_features, graph.num_classes) for run in runs]
    models = [
        [member.to(graph.x.device) for member in members_of(trainer.model())]
        for trainer in trainers
    ]
    seconds: list[list[float]] = [[] for _ in models]
    for _ in range(PASSES):
        # The models take turns, so that other load slows all alike.
        for times, members in zip(seconds, models, strict=True):
            start = time.perf_counter()
            for member in members:
                with evaluation_mode(member):
                    forward(member, whole_graph(graph))
            if graph.x.is_cuda:
                torch.cuda.synchronize(graph.x.device)
            times.append(time.perf_counter() - start)
    return [statistics.median(times) for times in seconds]
