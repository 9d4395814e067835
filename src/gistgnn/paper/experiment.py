"""What the paper's experiments share: settings for two scales, the outcome, and the files that they write."""

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self

from gistgnn.compare import Record, Row, RunsOnRanks, RunStore, as_markdown
from gistgnn.distributed import World
from gistgnn.paper.registry import EXPERIMENTS
from gistgnn.report import REPORT, Chart, Series, experiment_page, write_report
from gistgnn.runs import RunConfig
from gistgnn.utils import describe_machine

RECORD, RUNS = "experiment.json", "runs"


@dataclass(frozen=True)
class Verdict:
    """Whether a claim of the paper holds in these runs (None: they do not tell), and the numbers that show it."""

    claim: str
    holds: bool | None
    measured: str


class Claim(NamedTuple):
    """What the paper says of some runs, whether it holds in ours, and the numbers that show it; see `judge`."""

    text: str
    holds: bool | None
    numbers: str
    timed: Iterable[Row] = ()  # whose times the claim compares


def judge(where: str, claims: Iterable[Claim]) -> list[Verdict]:
    """Return verdicts on claims about `where`; none on times where training diverged."""
    verdicts = []
    for text, holds, numbers, timed in claims:
        if any(row.speedup is None for row in timed):
            holds, numbers = None, f"training diverged: {numbers}"
        verdicts.append(Verdict(f"{where}: {text}", holds, numbers))
    return verdicts


def scores_of(label: str, record: Record, against: str, *, dashed: bool = False) -> Series:
    """Return a run's test scores, in percent, against another number of its history, such as "epoch"."""
    x = [entry[against] for entry in record["history"]]
    return Series(label, x, [100 * entry["test"] for entry in record["history"]], dashed=dashed)


@dataclass(frozen=True)
class Outcome:
    """The result of an experiment. `machine` is where the runs trained; None: here."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str
    verdicts: Sequence[Verdict] = ()
    charts: Sequence[Chart] = ()
    machine: str | None = None


@dataclass(frozen=True)
class Experiment(ABC):
    """A table or figure of the paper. A new one is a subclass and an entry in `registry.py`."""

    scale: str  # "small": within 20 minutes on an ordinary machine; "full": as in the paper (docs: provenance.md)
    datasets: tuple[str, ...]
    seeds: int  # runs of each row
    epochs: int  # of a run, split over the sub-GCNs
    device: str = "cpu"

    defaults: ClassVar[Mapping[str, Mapping[str, Any]]]  # the other arguments at each scale

    @property
    def name(self) -> str:
        """Its name on the command line, by which the registry lists it."""
        return next(name for name, entry in EXPERIMENTS.items() if entry.home.endswith(f":{type(self).__name__}"))

    @property
    def title(self) -> str:
        return EXPERIMENTS[self.name].help

    @classmethod
    def at(cls, scale: str, device: str = "cpu", **options: Any) -> Self:
        """The experiment at a scale; `options` that are not None replace the scale's."""
        chosen = {name: value for name, value in options.items() if value is not None}
        return cls(scale=scale, device=device, **{**cls.defaults[scale], **chosen})

    @abstractmethod
    def run(self, store: RunStore) -> Outcome:
        """Train the missing runs; return what all runs show."""

    def runs_on_ranks(self, ranks: World, store: RunStore) -> list[RunConfig]:
        """Return the runs that ranks train together; all ranks call this."""
        return []

    def train_on_ranks(self, ranks: World, out: Path, data_root: str, stop: Callable[[], bool]) -> bool:
        """Train what is missing of baselines and runs on ranks; all ranks call this. False if `stop` ended it."""
        store = RunStore(out / RUNS, data_root)
        return RunsOnRanks(store, ranks, stop).train(self.runs_on_ranks(ranks, store), self.seeds, self.name)

    def reproduce(self, out: Path, store: RunStore, command: str) -> Outcome:
        """Run the experiment; write its table (Markdown), its record (JSON) and its report into a directory."""
        outcome = self.run(store)
        machine = outcome.machine or describe_machine(self.device)
        about = {"name": self.name, "title": self.title, "scale": self.scale, "machine": machine, "command": command}
        config = {setting.name: getattr(self, setting.name) for setting in fields(self)}
        record = json.dumps({**asdict(outcome), **about, "config": config}, indent=1, default=list)
        table = as_markdown(outcome.columns, outcome.rows, f"{outcome.note} Measured on {machine}.")
        for name, text in ((f"{self.name}.md", table), (RECORD, record)):
            write_report(out / name, text)
        write_report(out / REPORT, experiment_page(json.loads(record)))
        return outcome
