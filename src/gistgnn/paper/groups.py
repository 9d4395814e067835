"""Experiments that compare groups of runs, such as a baseline and GIST with every m, for each model of a table."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from gistgnn.compare.comparison import Row, compare
from gistgnn.compare.many_runs import RunStore
from gistgnn.compare.turns import Record
from gistgnn.paper.experiment import Chart, Experiment, Outcome, Verdict
from gistgnn.runs.config import RunConfig

Way = tuple[str, int]  # method, m


@dataclass(frozen=True)
class Group:
    """Finished runs that are compared with each other.

    Args:
        key: what the runs share: the data set, and whatever else differs between groups.
        rows: one for each run, the baseline first.
        records: of each row, by seed.
        measured: what the experiment measured of each run after training, if anything.
    """

    key: tuple[Any, ...]
    rows: list[Row]
    records: list[list[Record]]
    measured: Mapping[Way, float]

    @property
    def baseline(self) -> Row:
        """The row that the others are compared with."""
        return self.rows[0]

    @property
    def points_lost(self) -> str:
        """How many points of the baseline's score the other rows lose."""
        lost = (f"m = {row.sub_gcns}: {self.baseline.mean - row.mean:.2f}" for row in self.rows[1:])
        return f"points lost: {', '.join(lost)}"


@dataclass(frozen=True)
class GroupedExperiment(Experiment):
    """An experiment that compares groups of runs; the runs of a group take turns. See `Experiment`.

    Attributes:
        columns: of the table.
    """

    columns: ClassVar[tuple[str, ...]]

    @abstractmethod
    def _groups(self) -> Mapping[tuple[Any, ...], list[RunConfig]]:
        """Return the runs of each group, the baseline first, by the group's key."""

    @abstractmethod
    def _cells(self, group: Group, row: Row) -> list[str]:
        """Return a row of the table."""

    @abstractmethod
    def _verdicts(self, group: Group) -> list[Verdict]:
        """Return the verdicts on a group."""

    @abstractmethod
    def _note(self) -> str:
        """Return the note under the table."""

    def _charts(self, group: Group) -> list[Chart]:
        """Return the charts of a group; none by default."""
        return []

    def _measure(self, runs: list[RunConfig], data_root: str) -> Mapping[Way, float]:
        """Measure the runs of a group after training; nothing by default."""
        return {}

    def run(self, store: RunStore, jobs: int = 1) -> Outcome:
        """Train the runs that are missing, group by group, and return what all of them show."""
        groups = [
            Group(key, *compare(store, runs, self.seeds, self.name), self._measure(runs, store.data_root))
            for key, runs in self._groups().items()
        ]
        return Outcome(
            self.columns,
            [self._cells(group, row) for group in groups for row in group.rows],
            self._note(),
            [verdict for group in groups for verdict in self._verdicts(group)],
            [chart for group in groups for chart in self._charts(group)],
        )


def paper_cells(numbers: tuple[float, float] | None, second: str) -> list[str]:
    """Return the cells for two of the paper's numbers: a score, and another one in the format `second`."""
    return [f"{numbers[0]:.2f}", second.format(numbers[1])] if numbers else ["–", "–"]
