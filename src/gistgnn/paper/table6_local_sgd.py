"""Table 6: GIST against local SGD with as many workers, ζ = 100 (appendix B)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from gistgnn.compare.comparison import Row
from gistgnn.compare.many_runs import RunStore
from gistgnn.compare.turns import Record
from gistgnn.paper.experiment import Chart, GroupedExperiment, Part, Series, Verdict, paper_cells
from gistgnn.paper.large_graphs import describe_clusters, graphsage, large_run
from gistgnn.runs.config import RunConfig
from gistgnn.utils.formats import duration, mean_sd, size

WORKERS = (2, 4, 8)

# The paper's F1 in percent and seconds of training on Reddit, by method and workers.
PAPER = {
    ("local-sgd", 2): (96.37, 137.17),
    ("gist", 2): (96.40, 108.67),
    ("local-sgd", 4): (95.00, 127.63),
    ("gist", 4): (96.16, 116.56),
    ("local-sgd", 8): (93.40, 129.58),
    ("gist", 8): (95.46, 123.83),
}


@dataclass(frozen=True)
class AppendixB(GroupedExperiment):
    """GIST against another method on the same batches; see `Experiment`. Epochs are split over the workers.

    Args:
        local_steps: ζ.

    Attributes:
        rival: the other method.
    """

    local_steps: int = 100

    rival: ClassVar[str]
    defaults: ClassVar[dict[str, dict[str, Any]]] = {
        "small": {"datasets": ("synthetic:reddit@0.2",), "seeds": 1, "epochs": 30},
        "full": {"datasets": ("reddit",), "seeds": 1, "epochs": 80},
    }

    def _groups(self) -> dict[tuple[Any, ...], list[RunConfig]]:
        return {(dataset,): self._runs(dataset) for dataset in self.datasets}

    def _runs(self, dataset: str) -> list[RunConfig]:
        # In turn, because local SGD's workers draw different batches and cannot be fused.
        settings = self.epochs, self.local_steps, self.device, "in-turn"
        baseline, *split = (large_run(dataset, graphsage(256, 2), m, *settings) for m in (1, *WORKERS))
        return [baseline, *(replace(run, method=method) for run in split for method in (self.rival, "gist"))]

    def _settings(self) -> str:
        """Say how all rows were trained."""
        paper = "" if self.scale == "full" else "The paper's numbers are for Reddit itself, 80 epochs, 8 V100. "
        return (
            "GraphSAGE with two hidden layers of 256, micro-F1 on the test nodes in percent at the best validation "
            f"score, after {self.epochs} epochs split over the workers, ζ = {self.local_steps}, Adam at 0.01, dropout "
            f"0.2; {self.seeds} seed(s). {describe_clusters(self.datasets)}. The runs take turns on one machine, and "
            f"the workers of a run train one after another. {paper}"
        )


@dataclass(frozen=True)
class LocalSgdTable(AppendixB):
    """Table 6; see `AppendixB`."""

    name = "local-sgd"
    title = "Table 6: GIST against local SGD"
    rival = "local-sgd"
    columns = (
        *("data set", "workers", "method", "F1", "time", "time of a worker", "sent by a worker"),
        *("paper: F1", "time"),
    )

    def _part(self, key: tuple[Any, ...], rows: list[Row], records: list[list[Record]], store: RunStore) -> Part:
        return [_cells(key[0], row) for row in rows], _verdicts(key[0], rows), [chart_of(key[0], rows, records)]

    def _note(self) -> str:
        return (
            f"{self._settings()}Local SGD's workers draw different batches; GIST's sub-GCNs see the same ones, as in "
            "the authors' code. The time of a worker is the time divided by the number of workers: what as many such "
            "machines would take without the network. What a worker sends in the whole run is computed by formula. "
            "The paper's times are on as many GPUs as workers and include the network."
        )


def chart_of(dataset: str, rows: Sequence[Row], records: Sequence[Sequence[Record]]) -> Chart:
    """Return the first seed's test scores by epoch."""
    # The report colours dashed and solid lines each in their order: the baseline comes last, so that pairs match.
    baseline, *others = zip(rows, records, strict=True)
    series = [
        Series.of_scores(row.label, record, "epoch", dashed=row.method != "gist")
        for row, (record, *_) in (*others, baseline)
    ]
    return Chart(f"F1 by epoch, {dataset}", "epoch", "test F1 (%)", series)


def pairs_of(rows: Sequence[Row]) -> list[tuple[Row, Row]]:
    """Return the other method's row and GIST's, for every m."""
    gist = {row.sub_gcns: row for row in rows if row.method == "gist"}
    return [(row, gist[row.sub_gcns]) for row in rows if row.method != "gist"]


def _cells(dataset: str, row: Row) -> list[str]:
    paper = paper_cells(PAPER.get((row.method, row.sub_gcns)), "{:.0f} s")
    measured = [mean_sd(row.score), duration(row.time), duration(row.time / row.sub_gcns), size(row.bytes)]
    return [dataset, str(row.sub_gcns), row.name, *measured, *paper]


def _verdicts(dataset: str, rows: Sequence[Row]) -> list[Verdict]:
    verdicts = []
    for other, gist in pairs_of(rows):
        where = f"{dataset}, {gist.sub_gcns} workers"
        diverged = gist.speedup is None or other.speedup is None
        faster = None if diverged else gist.time < other.time
        times = f"{duration(gist.time)} against {duration(other.time)}"
        scores = f"{gist.mean:.2f} against {other.mean:.2f}"
        verdicts.append(Verdict(f"{where}: GIST trains faster than local SGD", faster, times))
        verdicts.append(Verdict(f"{where}: GIST has the higher F1", gist.mean > other.mean, scores))
    return verdicts
