"""Experiments on large graphs (appendix A.4): groups of runs on one device, and on ranks, as the paper timed them."""

import statistics
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from gistgnn import Training
from gistgnn.compare import Record, Row, RunStore, compare, records_on_ranks, rows_of, speedup, with_seeds
from gistgnn.distributed import World
from gistgnn.graphs import find
from gistgnn.paper.experiment import Claim, Experiment, Outcome, Verdict
from gistgnn.report import COSTLY, Chart
from gistgnn.runs import ModelConfig, RunConfig
from gistgnn.sampling import ClusterSampling
from gistgnn.utils import duration, mean_sd

IN_BATCH = 10  # clusters, in the text (A.4)
CLUSTERS, NODES = 15_000, {"reddit": 232_965, "amazon2m": 2_449_029}  # the paper's c, and the sizes of its graphs

PLAIN: dict[str, Any] = {"schedule": "constant", "optimizer_state": "reset"}  # as in the authors' code

NONE = "–"  # there was no such run, or it has no such number
COLUMNS = ("ranks", "on ranks: F1", "time of a worker", "of it exchange", "speed-up")
NOTE_ON_WORKERS = (
    'Rows with a number under "ranks" were also trained by W processes at the same time, sub-GCN i on rank i mod W. '
    "The time of a worker is the training time of the slowest rank, without evaluation, with the exchange and the "
    "waiting for other ranks. With as many ranks as sub-GCNs it is what the paper measures."
)
COMPARABLE = f"at most {COSTLY:g} point of F1"  # "Parenthesis are placed around speedups ... at a cost of >1" (Table 2)


@dataclass(frozen=True)
class Trained:
    """A trained run, with its records by seed. On ranks, the row's seconds are a worker's."""

    row: Row
    records: Sequence[Record]


@dataclass(frozen=True)
class Line:
    """A run of a group: on one device, on ranks, or both; None where it is not trained."""

    name: tuple[str, int]  # the key of the method, and m
    baseline: Row  # of one device, with m = 1
    alone: Trained | None = None  # on one device
    worker: Trained | None = None  # on ranks
    inference: float | None = None  # seconds of one pass, if the run's models run one after another

    @property
    def shown(self) -> Trained:
        """The run on one device, or if there is none that on ranks."""
        found = self.alone or self.worker
        assert found
        return found

    @property
    def cells(self) -> list[str]:
        """The score, the training time and the speed-up of one device."""
        if not self.alone:
            return [NONE] * 3
        row = self.alone.row
        return [mean_sd(row.score), duration(row.time), speedup(row, self.baseline)]

    @property
    def worker_cells(self) -> list[str]:
        if not self.worker:
            return [NONE] * len(COLUMNS)
        row, workers = self.worker.row, [record["workers"] for record in self.worker.records]
        exchange = statistics.fmean(max(each["exchange_seconds"]) for each in workers)
        times = [duration(row.time), duration(exchange) if exchange else NONE]
        return [str(workers[0]["ranks"]), mean_sd(row.score), *times, speedup(row, self.baseline)]


@dataclass(frozen=True)
class RunGroup:
    """All runs of a group, the baseline first, also those that nobody has trained."""

    lines: Sequence[Line]

    def line(self, method: str, m: int) -> Line:
        """Return the run of a method with m sub-GCNs, workers or members."""
        return next(line for line in self.lines if line.name == (method, m))

    @property
    def base(self) -> Row:
        return self.lines[0].baseline

    @property
    def gist(self) -> dict[int, Row]:
        """The rows of the paper's method by m, without the baseline."""
        return {line.name[1]: line.alone.row for line in self.lines[1:] if line.alone and line.name[0] == "gist"}

    @property
    def every(self) -> list[Row]:
        return [self.base, *self.gist.values()]

    @property
    def speedups(self) -> str:
        """How much faster than the baseline every m is."""
        return ", ".join(f"m = {m}: {speedup(row, self.base)}" for m, row in self.gist.items())

    @property
    def trained(self) -> list[Line]:
        """The runs that one device or ranks have trained: the rows of the table."""
        return [line for line in self.lines if line.alone or line.worker]

    def on_ranks(self) -> "RunGroup | None":
        """Return the group with the times of workers, but for the baseline; None if ranks have not trained all."""
        needed = [line for line in self.lines if line.name[1] > 1]
        found = [replace(line, alone=line.worker) for line in needed if line.worker]
        return RunGroup([self.lines[0], *found]) if len(found) == len(needed) else None


GroupKey = tuple[Any, ...]  # what the runs of a group share: the data set, and other settings
Groups = Mapping[GroupKey, RunGroup]


@dataclass(frozen=True)
class GroupedExperiment(Experiment):
    """An experiment that compares groups of runs, such as a model's baseline and GIST with every m."""

    columns: ClassVar[Sequence[str]]

    @abstractmethod
    def verdicts(self, groups: Groups) -> list[Verdict]:
        """Judge the paper's claims by the groups' results; whatever is needed stands in the groups."""

    @abstractmethod
    def groups(self) -> Mapping[GroupKey, list[RunConfig]]:
        """Return the runs of each group, the baseline first."""

    @abstractmethod
    def _cells(self, key: GroupKey, line: Line) -> list[str]:
        """Return the cells of a run in the table."""

    @abstractmethod
    def _note(self) -> str:
        """Return the note under the table."""

    def _chart(self, key: GroupKey, group: RunGroup) -> Chart | None:
        """Return the chart of a group; None: it has none."""
        return None

    def _measure(self, runs: Sequence[RunConfig], store: RunStore) -> RunGroup:
        """Train the runs of a group that are missing, and return the results of all; of ranks, those that there are."""
        repeated = [with_seeds([run], self.seeds) for run in runs]
        there = [i for i, configs in enumerate(repeated) if store.offers(configs)]
        rows, records = compare(store, [runs[i] for i in there], self.seeds, self.name)
        alone = {i: Trained(row, own) for i, row, own in zip(there, rows, records, strict=True)}
        found = {i: known for i, configs in enumerate(repeated) if (known := records_on_ranks(store, configs))}
        _, *on_ranks = rows_of([records[0], *found.values()])
        workers = {i: Trained(row, found[i]) for i, row in zip(found, on_ranks, strict=True)}
        names = [(run.method, run.sub_gcns) for run in runs]
        return RunGroup([Line(name, rows[0], alone.get(i), workers.get(i)) for i, name in enumerate(names)])

    def runs_on_ranks(self, ranks: World, store: RunStore) -> list[RunConfig]:
        return [run for group in self.groups().values() for run in group]

    def run(self, store: RunStore) -> Outcome:
        groups = {key: self._measure(runs, store) for key, runs in self.groups().items()}
        lines = [line for group in groups.values() for line in group.trained]
        rows = [self._cells(key, line) for key, group in groups.items() for line in group.trained]
        charts = [chart for key, group in groups.items() if (chart := self._chart(key, group))]
        columns, note, machine = [*self.columns], self._note(), None
        if any(line.worker for line in lines):
            place = next(i for i, column in enumerate(columns) if column.startswith("paper"))
            columns[place:place] = COLUMNS
            for row, line in zip(rows, lines, strict=True):
                row[place:place] = line.worker_cells
            note, machine = f"{note} {NOTE_ON_WORKERS}", _machines(lines)
        return Outcome(columns, rows, note, self.judge(groups), charts, machine=machine)

    def judge(self, groups: Groups) -> list[Verdict]:
        """Judge the claims by the times of workers if ranks have trained every m, else by those of one device."""
        on_ranks = {key: own for key, group in groups.items() if (own := group.on_ranks())}
        if len(on_ranks) == len(groups):
            return [replace(verdict, claim=f"on ranks: {verdict.claim}") for verdict in self.verdicts(on_ranks)]
        if all(line.alone for group in groups.values() for line in group.lines):
            return self.verdicts(groups)
        missing = "neither one device nor ranks have trained every m"
        return [Verdict("the claims about these runs", None, missing)]


def _machines(lines: Sequence[Line]) -> str:
    """Say on which machines the runs of one device trained, and those on ranks."""
    places = {"one device": [line.alone for line in lines], "each rank": [line.worker for line in lines]}
    names = {
        place: sorted({record["machine"] for run in runs if run for record in run.records})
        for place, runs in places.items()
    }
    return "; ".join(f"{place}: {', '.join(own)}" for place, own in names.items() if own)


def graphsage(width: int, layers: int) -> ModelConfig:
    """Return GraphSAGE with `layers` hidden layers; norm and dropout are those of the authors' code."""
    return ModelConfig("graphsage", (width,) * layers, dropout=0.2, norm="layer")


def default_clusters(dataset: str) -> int:
    """Return the number of clusters that gives batches as large as the paper's; unknown graphs get 40."""
    shape = "amazon2m" if "amazon2m" in dataset or "products" in dataset else "reddit"
    info = find(dataset)
    return max(40, round(CLUSTERS * info.nodes / NODES[shape])) if info else 40


def describe_clusters(datasets: Iterable[str], clusters: int | None = None, in_batch: int = IN_BATCH) -> str:
    """Say how many clusters each data set has, and each batch; None: as many as `default_clusters` gives."""
    counts = ", ".join(f"{clusters or default_clusters(dataset)} of {dataset}" for dataset in datasets)
    return f"Clusters: {counts}, {in_batch} in a batch"


def large_run(
    dataset: str,
    model: ModelConfig,
    sub_gcns: int,
    epochs: int,
    local_steps: int,
    device: str,
    runner: str = "fused",
    evaluations: int = 30,
    clusters: int | None = None,
    clusters_per_batch: int = IN_BATCH,
    lr: float = 0.01,
) -> RunConfig:
    """The run of one model on a large graph; the epochs are split over m, and it is scored `evaluations` times."""
    clusters = clusters or default_clusters(dataset)
    sampler = ClusterSampling(clusters, clusters_per_batch)
    rounds = epochs * clusters / clusters_per_batch / sub_gcns / local_steps
    every = max(1, round(rounds / evaluations))
    training = Training(epochs, local_steps, lr=lr, evaluate_every=every, **PLAIN)
    return RunConfig(
        dataset, model, sub_gcns, device=device, training=training, sampler=sampler, runner=runner,
        inductive=True, standardise=True, width_scaling="none",
    )  # fmt: skip


def faster(row: Row) -> float:
    """Return a row's speed-up with the two digits that the paper prints; 0 if there is none."""
    return round(row.speedup or 0.0, 2)


def lost(base: Row, row: Row) -> float:
    """Return how many points of the baseline's score a row loses, with the two digits that the paper prints."""
    return round(base.mean - row.mean, 2)


def points_lost(base: Row, rows: Iterable[Row]) -> str:
    """Say how many points of the baseline's score each row loses."""
    return "points lost: " + ", ".join(f"m = {row.sub_gcns}: {lost(base, row):.2f}" for row in rows)


def gains_more(text: str, heavy: RunGroup, light: RunGroup | None, missing: str = "") -> Claim:
    """Claim that every m speeds up the first group by more than the second; `missing` names the second."""
    if light is None:
        return Claim(text, None, f"{missing} was not run")
    pairs = [(row, light.gist[m]) for m, row in heavy.gist.items()]
    each = ", ".join(f"m = {row.sub_gcns}: {faster(row):.2f}x against {faster(less):.2f}x" for row, less in pairs)
    return Claim(text, all(faster(row) > faster(less) for row, less in pairs), each, [row for p in pairs for row in p])
