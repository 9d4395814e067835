"""The form of Tables 6 and 7 (appendix B): GIST against another method on the same batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from gistgnn.compare.comparison import Row
from gistgnn.paper.experiment import Chart, GroupedExperiment, Key, Series, Verdict, paper_cells
from gistgnn.paper.groups import Group, Line
from gistgnn.paper.large_graphs import PHASES_NOTE, describe_clusters, graphsage, in_phases, large_run
from gistgnn.runs.config import RunConfig

WORKERS = (2, 4, 8)


@dataclass(frozen=True)
class AppendixB(GroupedExperiment):
    """GIST against another method on the same batches; see `Experiment`. Epochs are split over the workers.

    Args:
        local_steps: ζ.

    Attributes:
        rival: the other method.
        paper: the paper's F1 in percent and seconds on Reddit, by method, for each of WORKERS.
    """

    local_steps: int = 100

    rival: ClassVar[str]
    paper: ClassVar[Mapping[str, tuple[tuple[float, float], ...]]]
    defaults: ClassVar[dict[str, dict[str, Any]]] = {
        "small": {"datasets": ("synthetic:reddit@0.2",), "seeds": 1, "epochs": 30},
        "full": {"datasets": ("reddit",), "seeds": 1, "epochs": 80},
    }

    def _groups(self) -> dict[Key, list[RunConfig]]:
        return {(dataset,): self._runs(dataset) for dataset in self.datasets}

    def _runs(self, dataset: str) -> list[RunConfig]:
        # In turn, because local SGD's workers draw different batches and cannot be fused.
        settings = self.epochs, self.local_steps, self.device, "in-turn"
        baseline, *split = (large_run(dataset, graphsage(256, 2), m, *settings) for m in (1, *WORKERS))
        both = [replace(run, method=method) for run in split for method in (self.rival, "gist")]
        return [baseline, *both, *map(in_phases, split)]

    def _settings(self) -> str:
        paper = "" if self.scale == "full" else "The paper's numbers are for Reddit itself, 80 epochs, 8 V100. "
        return (
            "GraphSAGE with two hidden layers of 256, micro-F1 on the test nodes in percent at the best validation "
            f"score, after {self.epochs} epochs split over the workers, ζ = {self.local_steps}, Adam at 0.01, dropout "
            f"0.2; {self.seeds} seed(s). {describe_clusters(self.datasets)}. The runs take turns on one machine, and "
            f"the workers of a run train one after another. {PHASES_NOTE} {paper}"
        )

    def _cells(self, dataset: str, line: Line, times: list[str], unit: str) -> list[str]:
        row = line.row
        papers = self.paper.get(row.method) if row.sub_gcns > 1 else None
        paper = papers[WORKERS.index(row.sub_gcns)] if papers else None
        return [dataset, str(row.sub_gcns), row.name, line.f1, *times, *paper_cells(paper, unit)]


def pairs(rows: Sequence[Row]) -> list[tuple[Row, Row]]:
    """Return the other method's row and GIST's, for every m."""
    gist = {row.sub_gcns: row for row in rows if row.method == "gist"}
    return [(row, gist[row.sub_gcns]) for row in rows if row.method not in ("gist", "phases")]


def higher_score(where: str, gist: Row, other: Row) -> Verdict:
    """Return whether GIST's score is higher."""
    scores = f"{gist.mean:.2f} against {other.mean:.2f}"
    return Verdict(f"{where}: GIST has the higher F1", gist.mean > other.mean, scores)


def score_chart(dataset: str, group: Group) -> Chart:
    """Return the first seed's test scores by epoch."""
    # The report colours dashed and solid lines each in their order: the baseline comes last, so that pairs match.
    baseline, *others = [line for line in group.lines if line.row.method != "phases"]
    series = [
        Series.of_scores(line.row.label, line.records[0], "epoch", dashed=line.row.method != "gist")
        for line in (*others, baseline)
    ]
    return Chart(f"F1 by epoch, {dataset}", "epoch", "test F1 (%)", series)
