"""What the paper's experiments share: settings for two scales, tables, and what they write."""

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

from gistgnn.compare import Record, RunStore, as_markdown, train_on_ranks
from gistgnn.distributed import World
from gistgnn.paper.registry import EXPERIMENTS
from gistgnn.report import REPORT, Chart, Series, experiment_page, write_report
from gistgnn.runs import RunConfig
from gistgnn.utils import describe_machine

RECORD = "experiment.json"
RUNS = "runs"

# The arguments of an experiment, by its name and its scale.
Defaults = Mapping[str, Mapping[str, Mapping[str, Any]]]


@dataclass(frozen=True)
class Table:
    """Our numbers beside the paper's."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str  # paragraphs, with an empty line between them
    charts: Sequence[Chart] = ()
    machine: str = ""  # where the runs trained; empty: here


@dataclass(frozen=True)
class Experiment(ABC):
    """A table or figure of the paper: its settings, and the tables that come of them.

    A new one is a subclass, a dataclass, and an entry in `registry.py`.
    """

    name: str  # on the command line; the registry lists it
    # "small": within 20 minutes on an ordinary machine; "full": as in the paper
    # (docs/paper/provenance.md).
    scale: str
    datasets: tuple[str, ...]
    seeds: int  # runs of each row
    epochs: int  # of a run, split over the sub-GCNs
    device: str = "cpu"

    defaults: ClassVar[Defaults]

    @property
    def title(self) -> str:
        return EXPERIMENTS[self.name].help

    @classmethod
    def at(cls, name: str, scale: str, device: str = "cpu", **options: Any) -> Self:
        """Return the experiment of a name at a scale.

        The `options` that are not None replace the settings of the scale.
        """
        chosen = {option: value for option, value in options.items() if value is not None}
        settings = {**cls.defaults[name][scale], **chosen}
        return cls(name=name, scale=scale, device=device, **settings)

    @abstractmethod
    def run(self, store: RunStore) -> list[Table]:
        """Train the missing runs; return what all runs show."""

    def runs_on_ranks(self, ranks: World, store: RunStore) -> list[RunConfig]:
        """Return the runs that ranks train together; all ranks call this."""
        return []

    def train_on_ranks(
        self, ranks: World, out: Path, data_root: str, stop: Callable[[], bool]
    ) -> bool:
        """Train what is missing of baselines and runs on ranks; all ranks call this.

        Returns False if `stop` ended it.
        """
        store = RunStore(out / RUNS, data_root)
        return train_on_ranks(
            store, self.runs_on_ranks(ranks, store), self.seeds, ranks, stop, self.name
        )

    def reproduce(self, out: Path, store: RunStore, command: str) -> list[Table]:
        """Run the experiment, and write what came of it into a directory.

        It writes its tables (Markdown), its record (JSON) and its report.
        """
        tables = self.run(store)
        machine = tables[0].machine or describe_machine(self.device)
        settings = {field.name: getattr(self, field.name) for field in fields(self)}
        del settings["name"]  # the record has it beside them
        record = {
            "name": self.name,
            "title": self.title,
            "scale": self.scale,
            "machine": machine,
            "command": command,
            "tables": [asdict(table) for table in tables],
            "config": settings,
        }
        text = json.dumps(record, indent=1, default=list)
        markdown = [as_markdown(table.columns, table.rows, table.note) for table in tables]
        write_report(out / f"{self.name}.md", "\n".join([*markdown, f"Measured on {machine}.\n"]))
        write_report(out / RECORD, text)
        write_report(out / REPORT, experiment_page(json.loads(text)))
        return tables


def scores_of(
    label: str, record: Record, against: Literal["epoch", "train_seconds"], *, dashed: bool = False
) -> Series:
    """Return a run's test scores, in percent, against its epochs or its time."""
    x = [entry[against] for entry in record.history]
    scores = [None if entry["test"] is None else 100 * entry["test"] for entry in record.history]
    return Series(label, x, scores, dashed=dashed)
