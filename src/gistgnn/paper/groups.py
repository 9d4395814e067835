"""The runs that a part of a table compares: on one device, and on ranks, whose times are those of the paper."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from gistgnn.compare.comparison import Row, rows_of, with_seeds
from gistgnn.compare.many_runs import RunStore
from gistgnn.compare.on_ranks import records_on_ranks
from gistgnn.compare.processes import Record
from gistgnn.compare.tables import speedup
from gistgnn.runs.config import RunConfig
from gistgnn.utils.formats import duration, mean_sd

NONE = "–"  # there was no such run, or it has no such number
COLUMNS = ("ranks", "on ranks: F1", "time of a worker", "of it exchange", "speed-up")
NOTE_ON_WORKERS = (
    'Rows with a number under "ranks" were also trained by so many processes at the same time, started by torchrun: '
    "sub-GCN i on rank i mod W. The time of a worker is the training time of the slowest rank, without evaluation. It "
    'includes the exchange of the sub-GCNs and the waiting for other ranks; "of it exchange" is the time of sending '
    "and receiving. The speed-up is one device's time over it. With as many ranks as sub-GCNs this is the time that "
    "the paper measures. Runs on ranks train one after another."
)

Name = tuple[str, int]  # the key of the method, and m: what tells the runs of a group apart


@dataclass(frozen=True)
class Worker:
    """The runs of a row on ranks.

    Args:
        row: its seconds are the times of a worker; its speed-up is one device's time over them.
        records: of the runs, by seed.
    """

    row: Row
    records: Sequence[Record]

    @property
    def ranks(self) -> int:
        """W."""
        count: int = self.records[0]["workers"]["ranks"]
        return count

    @property
    def exchange(self) -> float:
        """The seconds that the slowest rank has exchanged slices, on average over the seeds."""
        return statistics.fmean(max(record["workers"]["exchange_seconds"]) for record in self.records)


@dataclass(frozen=True)
class Line:
    """A row of a table: the runs on one device, the runs on ranks, or both.

    Args:
        baseline: one device's row, with m = 1.
        alone: one device's; None: there are none.
        worker: those on ranks; None: there are none.
        records: one device's, or if there are none those on ranks, by seed.
    """

    baseline: Row
    alone: Row | None
    worker: Worker | None
    records: Sequence[Record]

    @property
    def row(self) -> Row:
        """One device's row, or if there is none that on ranks."""
        found = self.alone or (self.worker and self.worker.row)
        assert found
        return found

    @property
    def f1(self) -> str:
        """One device's score."""
        return mean_sd(self.alone.score) if self.alone else NONE

    @property
    def time(self) -> str:
        """One device's training time."""
        return duration(self.alone.time) if self.alone else NONE

    @property
    def cells(self) -> list[str]:
        """The score, the training time and the speed-up of one device."""
        return [self.f1, self.time, speedup(self.alone, self.baseline) if self.alone else NONE]

    @property
    def worker_cells(self) -> list[str]:
        """The cells of COLUMNS."""
        worker = self.worker
        if worker is None:
            return [NONE] * len(COLUMNS)
        exchange = duration(worker.exchange) if worker.exchange else NONE
        measured = [mean_sd(worker.row.score), duration(worker.row.time), exchange]
        return [str(worker.ranks), *measured, speedup(worker.row, self.baseline)]


@dataclass(frozen=True)
class RunGroup:
    """The results of runs on one device, and of those that ranks have trained.

    Args:
        rows: one for each run on one device, the baseline first.
        records: of each row, by seed.
        alone: seconds of inference of each run, if its models run one after another; {} if not measured.
        workers: of every run, in the order of the table; None: no ranks have trained it.
    """

    rows: Sequence[Row]
    records: Sequence[Sequence[Record]] = ()
    alone: Mapping[Name, float] = field(default_factory=dict)
    workers: Mapping[Name, Worker | None] = field(default_factory=dict)

    @property
    def gist(self) -> tuple[Row, list[Row]]:
        """The baseline's row, and the paper's method's rows."""
        return self.rows[0], [row for row in self.rows[1:] if row.method == "gist"]

    @property
    def ours(self) -> list[Row]:
        """The rows of our own recipe, which are not the paper's."""
        return [row for row in self.rows if row.method == "phases"]

    @property
    def lines(self) -> list[Line]:
        """The rows of the table: the runs that one device or ranks have trained."""
        names = [(row.method, row.sub_gcns) for row in self.rows]
        alone = dict(zip(names, zip(self.rows, self.records, strict=True), strict=True))
        lines = []
        for name, worker in self.workers.items():
            row, records = alone.get(name, (None, worker.records if worker else ()))
            if row or worker:
                lines.append(Line(self.rows[0], row, worker, records))
        return lines

    @property
    def complete(self) -> bool:
        """Whether one device has trained all runs."""
        return len(self.rows) == len(self.workers)

    def on_ranks(self) -> RunGroup | None:
        """Return the results with the times of workers in place of one device's; None if ranks have not trained all.

        The baseline is one device's, and our own recipe is not among them.
        """
        needed = [worker for (method, m), worker in self.workers.items() if m > 1 and method != "phases"]
        found = [worker for worker in needed if worker]
        if len(found) < len(needed):
            return None
        rows, records = [worker.row for worker in found], [worker.records for worker in found]
        return replace(self, rows=[self.rows[0], *rows], records=[self.records[0], *records])


def name_in_group(run: RunConfig) -> Name:
    """Return what tells a run from the others of its group."""
    return "phases" if run.training.phases else run.method, run.sub_gcns


def workers_of(
    store: RunStore, runs: Sequence[RunConfig], seeds: int, baseline: Sequence[Record]
) -> dict[Name, Worker | None]:
    """Return what ranks have trained of a group's runs, in their order; None where they have not.

    Args:
        store: of the runs on one device.
        runs: of the group.
        seeds: how many each run has.
        baseline: one device's records, by seed.
    """
    found = {name_in_group(run): records_on_ranks(store, with_seeds([run], seeds)) for run in runs}
    trained = {name: records for name, records in found.items() if records}
    _, *rows = rows_of([baseline, *trained.values()])
    workers = {name: Worker(row, trained[name]) for name, row in zip(trained, rows, strict=True)}
    return {name: workers.get(name) for name in found}


def with_workers(
    columns: Sequence[str], rows: Sequence[Sequence[str]], lines: Sequence[Line]
) -> tuple[list[str], list[list[str]]]:
    """Return the columns and rows of a table, one row for each line, with COLUMNS before the paper's columns."""
    place = next(i for i, column in enumerate(columns) if column.startswith("paper"))
    wider = [[*row[:place], *line.worker_cells, *row[place:]] for row, line in zip(rows, lines, strict=True)]
    return [*columns[:place], *COLUMNS, *columns[place:]], wider


def machines_of(lines: Sequence[Line]) -> str:
    """Say on which machines the runs of one device trained, and those on ranks. Older records do not know."""
    places = {
        "one device": [record for line in lines if line.alone for record in line.records],
        "each rank": [record for line in lines if line.worker for record in line.worker.records],
    }
    names = {place: sorted({r["machine"] for r in records if "machine" in r}) for place, records in places.items()}
    return "; ".join(f"{place}: {', '.join(own)}" for place, own in names.items() if own)
