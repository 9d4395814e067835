"""Tables 6 and 7 (appendix B): GIST against local SGD, and against ensembles of sub-GCNs."""

import itertools
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import torch

from gistgnn.compare import RunStore
from gistgnn.distributed import World
from gistgnn.evaluation import evaluation_mode
from gistgnn.graphs import Graph
from gistgnn.nn import members_of
from gistgnn.paper import large_graphs as large
from gistgnn.paper.experiment import Defaults, Experiment, Table, scores_of
from gistgnn.paper.large_graphs import GroupKey, TrainedRun
from gistgnn.paper.published import TABLE6, TABLE7, WORKERS, paper_cells
from gistgnn.report import Chart
from gistgnn.runs import RunConfig
from gistgnn.sampling import forward, whole_graph
from gistgnn.utils import duration, size

PASSES = 5  # of each model, for the median
NOTE_ON_LOCAL_SGD = (
    "Local SGD's workers draw different batches; GIST's sub-GCNs see the same ones, as in the "
    "authors' code. What a worker sends is computed by formula. The paper's times are on as "
    "many GPUs as workers, with the network."
)
NOTE_ON_ENSEMBLES = (
    "Each member of an ensemble counts as it was at its best validation score; logits are "
    "averaged. Inference is one pass over the whole graph, the median of the passes during "
    'training: members share the first sum over neighbours. "Each model alone" computes '
    f"everything again for every model (median of {PASSES} passes)."
)
SMALL = {"datasets": ("synthetic:reddit@0.2",), "seeds": 1, "epochs": 30}
FULL = {"datasets": ("reddit",), "seeds": 1, "epochs": 80}


@dataclass(frozen=True)
class AppendixB(Experiment):
    """Table 6 or 7: GIST against the method of the experiment's name; see `Experiment`.

    Both have batches of the same kind, and workers share the epochs.
    """

    local_steps: int = 100
    clusters: int | None = None
    clusters_per_batch: int = large.IN_BATCH

    defaults: ClassVar[Defaults] = {
        "local-sgd": {"small": SMALL, "full": FULL},
        # Table 7 repeats Table 2's F1, with its ζ.
        "ensemble": {"small": SMALL, "full": {**FULL, "local_steps": 500}},
    }

    def groups(self) -> dict[GroupKey, list[RunConfig]]:
        """Return the runs on every data set, the baseline first."""
        model = large.graphsage(256, 2)
        training = large.large_training(self.epochs, self.local_steps)
        methods = [("gist", 1)]
        for m in WORKERS:
            methods += [(self.name, m), ("gist", m)]
        groups: dict[GroupKey, list[RunConfig]] = {}
        for dataset in self.datasets:
            sampler = large.cluster_sampling(dataset, self.clusters, self.clusters_per_batch)
            runs = []
            for method, m in methods:
                run = large.large_run(dataset, model, m, training, sampler)
                # In turn, because workers of the other methods draw different batches and cannot be
                # fused.
                runs.append(replace(run, method=method, runner="in-turn", device=self.device))
            groups[dataset,] = runs
        return groups

    def runs_on_ranks(self, ranks: World, store: RunStore) -> list[RunConfig]:
        return list(itertools.chain.from_iterable(self.groups().values()))

    def run(self, store: RunStore) -> list[Table]:
        groups = large.train_groups(self.groups(), self.seeds, store, self.name)
        if self.name == "ensemble":
            return [self._table_of_ensembles(groups, store)]
        return [self._table_of_local_sgd(groups)]

    def _table_of_local_sgd(self, groups: Mapping[GroupKey, Sequence[TrainedRun]]) -> Table:
        rows = []
        for (dataset,), group in groups.items():
            for trained in group:
                row = trained.row
                of_a_worker = duration(row.time / row.sub_gcns) if trained.alone else large.NONE
                paper = paper_cells(_published(TABLE6, trained.config), "{:.0f} s")
                first = _first_cells(dataset, trained, group[0])
                rows.append([*first, of_a_worker, size(row.bytes), *paper])
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
        note = f"{self._note()}{NOTE_ON_LOCAL_SGD}"
        return large.table_of_groups(groups, columns, rows, note, _charts(groups))

    def _table_of_ensembles(
        self, groups: Mapping[GroupKey, Sequence[TrainedRun]], store: RunStore
    ) -> Table:
        rows = []
        for (dataset,), group in groups.items():
            graph = store.graph(dataset).to(self.device)
            runs = [trained.config for trained in group]
            for trained, seconds in zip(group, inference_alone(runs, graph), strict=True):
                inference = trained.row.inference
                shared = duration(inference) if inference else large.NONE
                paper = paper_cells(_published(TABLE7, trained.config), "{:.2f} s")
                first = _first_cells(dataset, trained, group[0])
                rows.append([*first, shared, duration(seconds), *paper])
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
        note = f"{self._note()}{NOTE_ON_ENSEMBLES}"
        return large.table_of_groups(groups, columns, rows, note, _charts(groups))

    def _note(self) -> str:
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
            f"one machine, workers train one after another. {paper}"
        )


def _first_cells(dataset: str, trained: TrainedRun, baseline: TrainedRun) -> list[str]:
    """Return the data set, m, the method, the F1 and the training time of a run."""
    score, seconds, _ = large.cells_of_one_device(trained, baseline.row)
    return [dataset, str(trained.config.sub_gcns), trained.row.name, score, seconds]


def _published(
    table: Mapping[str, Sequence[tuple[float, float]]], run: RunConfig
) -> tuple[float, float] | None:
    """Return the paper's F1 and seconds; the baseline has none."""
    return table[run.method][WORKERS.index(run.sub_gcns)] if run.sub_gcns > 1 else None


def _charts(groups: Mapping[GroupKey, Sequence[TrainedRun]]) -> list[Chart]:
    """Return a chart for each data set: the first seed's test scores by epoch."""
    charts = []
    for (dataset,), (baseline, *other_runs) in groups.items():
        # The report colours dashed and solid lines each in their order: the baseline comes last, so
        # that pairs match.
        series = [
            scores_of(
                trained.row.label,
                trained.records[0],
                "epoch",
                dashed=trained.config.method != "gist",
            )
            for trained in (*other_runs, baseline)
        ]
        charts.append(Chart(f"F1 by epoch, {dataset}", "epoch", "test F1 (%)", series))
    return charts


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
