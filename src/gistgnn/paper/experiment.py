"""What the paper's experiments share: settings for two scales, the outcome, and the files that they write."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar, Self

from gistgnn.compare import tables
from gistgnn.compare.comparison import compare, with_seeds
from gistgnn.compare.many_runs import RunStore
from gistgnn.compare.on_ranks import RunsOnRanks
from gistgnn.compare.processes import Record
from gistgnn.distributed import World
from gistgnn.errors import InputError
from gistgnn.paper.groups import NOTE_ON_WORKERS, RunGroup, machines_of, with_workers, workers_of
from gistgnn.paper.registry import SCALES
from gistgnn.report import REPORT, write_report
from gistgnn.runs.config import RunConfig
from gistgnn.storage.whole_files import replacing
from gistgnn.utils.machine import describe_machine

RECORD, RUNS = "experiment.json", "runs"


@dataclass(frozen=True)
class Verdict:
    """Whether a claim of the paper holds in these runs (None: they do not tell), and the numbers that show it."""

    claim: str
    holds: bool | None
    measured: str


@dataclass(frozen=True)
class Curve:
    """A line of a chart; see `gistgnn.report.charts`."""

    label: str
    x: Sequence[float]
    y: Sequence[float]
    dashed: bool = False

    @classmethod
    def of_scores(cls, label: str, record: Record, against: str, *, dashed: bool = False) -> Self:
        """Return a run's test scores, in percent, against another number of its history, such as "epoch"."""
        history = record["history"]
        return cls(label, [entry[against] for entry in history], [100 * entry["test"] for entry in history], dashed)


@dataclass(frozen=True)
class CurveChart:
    """A chart of a report."""

    title: str
    xlabel: str
    ylabel: str
    series: Sequence[Curve]
    logx: bool = False
    logy: bool = False


@dataclass(frozen=True)
class Outcome:
    """The result of an experiment: a table with a note on how it was made, verdicts and charts.

    `machine` is where the runs trained; None: here.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str
    verdicts: Sequence[Verdict] = ()
    charts: Sequence[CurveChart] = ()
    machine: str | None = None


@dataclass(frozen=True)
class Experiment(ABC):
    """A table or figure of the paper. A new one is a subclass and an entry in `registry.py`.

    Args:
        scale: "small": within 20 minutes on an ordinary machine, often on synthetic graphs; "full": as in the paper
            (docs/explanation/provenance.md).
        datasets: names.
        seeds: runs of each row.
        epochs: of a run; the subclass says whether they are split over the sub-GCNs.
        device: where the runs train.

    Attributes:
        name: on the command line.
        title: of the report.
        defaults: the other arguments at each scale.
    """

    scale: str
    datasets: tuple[str, ...]
    seeds: int
    epochs: int
    device: str = "cpu"

    name: ClassVar[str]
    title: ClassVar[str]
    defaults: ClassVar[Mapping[str, Mapping[str, Any]]]

    @classmethod
    def at(cls, scale: str, device: str = "cpu", **options: Any) -> Self:
        """Return the experiment at a scale; `options` are arguments that replace the scale's, if they are not None.

        Raises:
            InputError: an unknown scale, or a value out of range.
        """
        if scale not in SCALES:
            raise InputError(f"scale is '{scale}', expected one of {', '.join(SCALES)}")
        chosen = {name: value for name, value in options.items() if value is not None}
        return cls(scale=scale, device=device, **{**cls.defaults[scale], **chosen})

    @abstractmethod
    def run(self, store: RunStore, jobs: int = 1) -> Outcome:
        """Train the runs that are missing from the store, and return what all of them show.

        `jobs` runs train at the same time; experiments that time their runs ignore it.

        Raises:
            InputError: an unknown data set, or a value out of range.
        """

    def shortened(self) -> Self:
        """Return the experiment as it is rehearsed (see `gistgnn.paper.rehearsal`), where runs are short anyway."""
        return self

    def reproduce(
        self, out: Path, data_root: str, jobs: int, command: str, store: RunStore | None = None, *, trains: bool = True
    ) -> Outcome:
        """Run the experiment; write its table (Markdown), its record (JSON) and its report into a directory.

        `store` has the finished runs; None: they are in the directory. `trains`: train the runs that are missing;
        otherwise show the finished ones alone.
        """
        outcome = self.run(store or RunStore(out / RUNS, data_root, trains=trains), jobs)
        machine = outcome.machine or describe_machine(self.device)
        record = {
            **asdict(outcome),
            "name": self.name,
            "title": self.title,
            "scale": self.scale,
            "machine": machine,
            "command": command,
            "config": {setting.name: getattr(self, setting.name) for setting in fields(self)},
        }
        text = json.dumps(record, indent=1, default=list)
        from gistgnn.report.experiment_page import experiment_page  # imports matplotlib, which is slow

        with replacing(out / f"{self.name}.md") as path:
            note = f"{outcome.note} Measured on {machine}."
            path.write_text(
                tables.as_markdown(outcome.columns, outcome.rows, note), encoding="utf-8", errors="backslashreplace"
            )
        with replacing(out / RECORD) as path:
            path.write_text(text, encoding="utf-8", errors="backslashreplace")
        write_report(out / REPORT, experiment_page(json.loads(text)))
        return outcome


GroupKey = tuple[Any, ...]  # what the runs of a group share: the data set, and other settings
TablePart = tuple[list[list[str]], list[CurveChart]]  # rows of a table, and charts


@dataclass(frozen=True)
class GroupedExperiment(Experiment):
    """An experiment that compares groups of runs, such as a model's baseline and GIST with every m."""

    columns: ClassVar[Sequence[str]]

    @abstractmethod
    def verdicts(self, groups: Mapping[GroupKey, RunGroup]) -> list[Verdict]:
        """Judge the paper's claims by the groups' results; whatever is needed stands in the groups."""

    @abstractmethod
    def _groups(self) -> Mapping[GroupKey, list[RunConfig]]:
        """Return the runs of each group, the baseline first."""

    @abstractmethod
    def _part(self, key: GroupKey, group: RunGroup) -> TablePart:
        """Return what a group adds to the table and to the charts."""

    @abstractmethod
    def _note(self) -> str:
        """Return the note under the table."""

    def _measure(self, key: GroupKey, runs: list[RunConfig], store: RunStore) -> RunGroup:
        """Train the runs of a group that are missing, and return the results of all; of ranks, those that there are."""
        there = [run for run in runs if store.offers(with_seeds([run], self.seeds))]
        rows, records = compare(store, there, self.seeds, self.name)
        return RunGroup(rows, records, workers=workers_of(store, runs, self.seeds, records[0]))

    def train_on_ranks(self, ranks: World, out: Path, data_root: str, stop: Callable[[], bool]) -> bool:
        """Train what is missing of one device's baselines and of the runs on ranks; all ranks call this.

        Returns:
            False if `stop` has ended a run.

        Raises:
            InputError: there are more ranks than sub-GCNs, or as `run`.
        """
        runs = [run for group in self._groups().values() for run in group]
        return RunsOnRanks(RunStore(out / RUNS, data_root), ranks, stop).train(runs, self.seeds, self.name)

    def run(self, store: RunStore, jobs: int = 1) -> Outcome:
        """See `Experiment`."""
        groups = {key: self._measure(key, runs, store) for key, runs in self._groups().items()}
        parts = [self._part(key, group) for key, group in groups.items()]
        rows, charts = (list(chain.from_iterable(pieces)) for pieces in zip(*parts, strict=True))
        columns, note, machine = self.columns, self._note(), None
        lines = [line for group in groups.values() for line in group.lines]
        if any(line.worker for line in lines):
            columns, rows = with_workers(columns, rows, lines)
            note, machine = f"{note} {NOTE_ON_WORKERS}", machines_of(lines)
        return Outcome(columns, rows, note, self._judge(groups), charts, machine=machine)

    def _judge(self, groups: Mapping[GroupKey, RunGroup]) -> list[Verdict]:
        """Judge the claims by the times of one device, and by those of workers, where all runs are there."""
        verdicts = self.verdicts(groups) if all(group.complete for group in groups.values()) else []
        on_ranks = {key: own for key, group in groups.items() if (own := group.on_ranks())}
        if len(on_ranks) == len(groups):
            others = [verdict for verdict in self.verdicts(on_ranks) if verdict not in verdicts]
            verdicts += [replace(verdict, claim=f"on ranks: {verdict.claim}") for verdict in others]
        missing = "neither one device nor ranks have trained every m"
        return verdicts or [Verdict("the claims about these runs", None, missing)]


def paper_cells(numbers: tuple[float, float] | None, second: str) -> list[str]:
    """Return the cells for two of the paper's numbers: a score, and another one in the format `second`."""
    return [f"{numbers[0]:.2f}", second.format(numbers[1])] if numbers else ["–", "–"]
