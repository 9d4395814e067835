"""Groups of runs on large graphs (appendix A.4), on one device and on ranks.

On ranks they are timed as the paper timed them.
"""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gistgnn import Training
from gistgnn.compare import Record, Row, RunStore, records_on_ranks, rows_of, speedup, with_seeds
from gistgnn.graphs import find
from gistgnn.paper.experiment import Table
from gistgnn.report import Chart
from gistgnn.runs import ModelConfig, RunConfig
from gistgnn.sampling import ClusterSampling
from gistgnn.utils import duration, mean_sd

IN_BATCH = 10  # clusters, in the text (A.4)
CLUSTERS = 15_000  # the paper's c
NODES = {"reddit": 232_965, "amazon2m": 2_449_029}  # of the paper's graphs
EVALUATIONS = 30  # of a run

# The settings of the authors' code that differ from our defaults.
PLAIN: dict[str, Any] = {"schedule": "constant", "optimizer_state": "reset"}

NONE = "–"  # there was no such run, or it has no such number
COLUMNS = ("ranks", "on ranks: F1", "time of a worker", "of it exchange", "speed-up")
NOTE_ON_WORKERS = (
    'Rows with a number under "ranks" were also trained by W processes at the same time, sub-GCN i '
    "on rank i mod W. The time of a worker is the training time of the slowest rank, without "
    "evaluation, with the exchange and the waiting for other ranks. With as many ranks as sub-GCNs "
    "it is what the paper measures."
)

GroupKey = tuple[Any, ...]  # what the runs of a group share: the data set, and other settings


@dataclass(frozen=True)
class TrainedRun:
    """The runs of one row of a table, by seed, on one device and on ranks.

    What is empty was not trained so.
    """

    config: RunConfig
    alone: Sequence[Record]  # on one device
    # Their times are those of the slowest rank; "workers" has the times of every rank.
    on_ranks: Sequence[Record]

    @property
    def records(self) -> Sequence[Record]:
        """The runs on one device, or if there are none those on ranks."""
        return self.alone or self.on_ranks

    @property
    def row(self) -> Row:
        return rows_of([self.records])[0]


def trained_runs(
    runs: Sequence[RunConfig], seeds: int, store: RunStore, label: str
) -> list[TrainedRun]:
    """Train the runs that one device has not trained; return those that it or ranks have trained.

    Args:
        runs: of a group, the baseline first. All train with one seed before the next seed.
        seeds: how many, from 0 on.
        store: where finished runs are. It may not train: then the runs that there are count.
        label: of the progress bar.
    """
    if store.trains:
        store.run_all(with_seeds(runs, seeds), label)
    all_runs = []
    for run in runs:
        configs = with_seeds([run], seeds)
        all_runs.append(TrainedRun(run, store.finished(configs), records_on_ranks(store, configs)))
    return [trained for trained in all_runs if trained.records]


def train_groups(
    groups: Mapping[GroupKey, Sequence[RunConfig]], seeds: int, store: RunStore, label: str
) -> dict[GroupKey, list[TrainedRun]]:
    """Train the missing runs of every group, such as a baseline and GIST with every m.

    See `trained_runs`.
    """
    return {key: trained_runs(runs, seeds, store, label) for key, runs in groups.items()}


def table_of_groups(
    groups: Mapping[GroupKey, Sequence[TrainedRun]],
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    note: str,
    charts: Sequence[Chart] = (),
) -> Table:
    """Return a table of all runs; where ranks have trained any, with COLUMNS before the paper's.

    Args:
        groups: the runs, in each group the baseline first.
        columns: those of one device, followed by the paper's, which begin with "paper".
        rows: one for each run, in the order of the groups.
        note: the note under the table.
        charts: the charts under it.
    """
    all_runs = [trained for group in groups.values() for trained in group]
    if not any(trained.on_ranks for trained in all_runs):
        return Table(columns, rows, note, charts)
    baselines = [group[0].row for group in groups.values() for _ in group]
    paper = next(i for i, column in enumerate(columns) if column.startswith("paper"))
    rows_with_workers = [
        [*row[:paper], *_worker_cells(trained, baseline), *row[paper:]]
        for row, trained, baseline in zip(rows, all_runs, baselines, strict=True)
    ]
    return Table(
        [*columns[:paper], *COLUMNS, *columns[paper:]],
        rows_with_workers,
        f"{note} {NOTE_ON_WORKERS}",
        charts,
        _describe_machines(all_runs),
    )


def cells_of_one_device(trained: TrainedRun, baseline: Row) -> list[str]:
    """Return the score, the training time and the speed-up of a run on one device."""
    if not trained.alone:
        return [NONE] * 3
    [row] = rows_of([trained.alone])
    return [mean_sd(row.score), duration(row.time), speedup(row, baseline)]


def _worker_cells(trained: TrainedRun, baseline: Row) -> list[str]:
    """Return the cells of COLUMNS; the baseline is that of one device."""
    if not trained.on_ranks:
        return [NONE] * len(COLUMNS)
    [row] = rows_of([trained.on_ranks])
    workers = [record.workers for record in trained.on_ranks if record.workers is not None]
    exchange = statistics.fmean(max(times.exchange_seconds) for times in workers)
    exchange_cell = duration(exchange) if exchange else NONE
    return [
        str(workers[0].ranks),
        mean_sd(row.score),
        duration(row.time),
        exchange_cell,
        speedup(row, baseline),
    ]


def _describe_machines(runs: Iterable[TrainedRun]) -> str:
    """Say on which machines the runs of one device trained, and those on ranks."""
    alone = {record.machine for trained in runs for record in trained.alone}
    on_ranks = {record.machine for trained in runs for record in trained.on_ranks}
    machines_by_place = {"one device": alone, "each rank": on_ranks}
    return "; ".join(
        f"{where}: {', '.join(sorted(machines))}"
        for where, machines in machines_by_place.items()
        if machines
    )


def graphsage(width: int, layers: int) -> ModelConfig:
    """Return GraphSAGE with `layers` hidden layers.

    Norm and dropout are those of the authors' code.
    """
    return ModelConfig("graphsage", (width,) * layers, dropout=0.2, norm="layer")


def default_clusters(dataset: str) -> int:
    """Return the number of clusters that gives batches as large as the paper's.

    Unknown graphs get 40.
    """
    shape = "amazon2m" if "amazon2m" in dataset or "products" in dataset else "reddit"
    info = find(dataset)
    return max(40, round(CLUSTERS * info.nodes / NODES[shape])) if info else 40


def cluster_sampling(
    dataset: str, clusters: int | None = None, in_batch: int = IN_BATCH
) -> ClusterSampling:
    """Return batches of clusters; `clusters` defaults to as many as `default_clusters` gives."""
    return ClusterSampling(clusters or default_clusters(dataset), in_batch)


def describe_clusters(
    datasets: Iterable[str], clusters: int | None = None, in_batch: int = IN_BATCH
) -> str:
    """Say how many clusters each data set has, and each batch.

    For the arguments see `cluster_sampling`.
    """
    counts = ", ".join(
        f"{clusters or default_clusters(dataset)} of {dataset}" for dataset in datasets
    )
    return f"Clusters: {counts}, {in_batch} in a batch"


def large_training(epochs: int, local_steps: int, lr: float = 0.01) -> Training:
    """Return how models on large graphs are trained.

    Adam has a new state in every round, and a constant rate.
    """
    return Training(epochs, local_steps, lr=lr, **PLAIN)


def large_run(
    dataset: str,
    model: ModelConfig,
    sub_gcns: int,
    training: Training,
    sampler: ClusterSampling,
    evaluations: int = EVALUATIONS,
) -> RunConfig:
    """Return the run of one model on a large graph.

    The epochs are split over m, and the model is scored `evaluations` times.
    """
    assert training.epochs
    assert training.local_steps
    assert sampler.clusters
    assert sampler.clusters_per_batch
    batches = training.epochs * sampler.clusters / sampler.clusters_per_batch
    rounds = batches / sub_gcns / training.local_steps
    return RunConfig(
        dataset,
        model,
        sub_gcns,
        training=replace(training, evaluate_every=max(1, round(rounds / evaluations))),
        sampler=sampler,
        runner="fused",
        inductive=True,
        standardise=True,
        width_scaling="none",
    )
