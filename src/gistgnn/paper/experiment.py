"""What the experiments of the paper have in common: a scale, what comes out, and the files it is written into."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar, Self

from gistgnn.compare import tables
from gistgnn.compare.many_runs import RunStore
from gistgnn.errors import InputError
from gistgnn.io.whole_files import replacing
from gistgnn.report import REPORT, write_report
from gistgnn.utils.machine import describe_machine

SCALES = ("small", "full")
RECORD = "experiment.json"


@dataclass(frozen=True)
class Verdict:
    """What becomes of a claim of the paper.

    Args:
        claim: in words.
        holds: whether it does here; None: not shown.
        measured: the numbers that say so.
    """

    claim: str
    holds: bool | None
    measured: str


@dataclass(frozen=True)
class Series:
    """A line of a chart; see `gistgnn.report.charts`."""

    label: str
    x: Sequence[float]
    y: Sequence[float]
    dashed: bool = False


@dataclass(frozen=True)
class Chart:
    """A chart of a report."""

    title: str
    xlabel: str
    ylabel: str
    series: Sequence[Series]
    logx: bool = False
    logy: bool = False


@dataclass(frozen=True)
class Outcome:
    """What an experiment has found.

    Args:
        columns: of its table.
        rows: cells as they are shown.
        note: what the table says, how it was made, and what differs from the paper.
        verdicts: the paper's claims.
        charts: curves.
        centred: columns whose cells are ticks.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str
    verdicts: Sequence[Verdict] = ()
    charts: Sequence[Chart] = ()
    centred: Sequence[str] = field(default=())


@dataclass(frozen=True)
class Experiment(ABC):
    """A table or figure of the paper. A new one is a subclass in a file of its own and an entry in `cli/reproduce.py`.

    Args:
        scale: "small": real or synthetic graphs on an ordinary machine, within 20 minutes; "full": the paper's.
        datasets: names.
        seeds: runs of each row.
        epochs: as the experiment counts them.
        device: where the runs run.

    Attributes:
        name: on the command line.
        title: of the report.
        defaults: what the other arguments are, by scale.

    Raises:
        InputError: an unknown scale.
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
    def at(cls, scale: str, device: str = "cpu", **given: Any) -> Self:
        """Return the experiment of a scale.

        Args:
            scale: of `SCALES`.
            device: where the runs run.
            given: other arguments than those of the scale; None counts as not given.

        Raises:
            InputError: an unknown scale, or a value out of range.
        """
        if scale not in SCALES:
            raise InputError(f"scale is '{scale}', expected one of {', '.join(SCALES)}")
        chosen = {name: value for name, value in given.items() if value is not None}
        return cls(scale=scale, device=device, **{**cls.defaults[scale], **chosen})

    @abstractmethod
    def run(self, store: RunStore, jobs: int = 1) -> Outcome:
        """Do the runs that are not there yet, and return what they show.

        Args:
            store: finished runs.
            jobs: how many runs that are not timed go on at the same time.

        Raises:
            InputError: a data set that is not there, or a value out of range.
        """

    def reproduce(self, out: Path, data_root: str, jobs: int, command: str) -> Outcome:
        """Run it, and write its table as Markdown, its record and its report into a directory."""
        outcome = self.run(RunStore(out / "runs", data_root), jobs)
        machine = describe_machine(self.device)
        said = f"{outcome.note} Measured on {machine}."
        record = {
            **asdict(outcome),
            "name": self.name,
            "title": self.title,
            "scale": self.scale,
            "machine": machine,
            "command": command,
            "config": {each.name: getattr(self, each.name) for each in fields(self)},
        }
        from gistgnn.report.experiment_page import experiment_page  # imports matplotlib, which is slow

        with replacing(out / f"{self.name}.md") as path:
            path.write_text(tables.as_markdown(outcome.columns, outcome.rows, said), encoding="utf-8")
        with replacing(out / RECORD) as path:
            path.write_text(json.dumps(record, indent=1, default=list), encoding="utf-8")
        write_report(out / REPORT, experiment_page(json.loads(json.dumps(record, default=list))))
        return outcome
