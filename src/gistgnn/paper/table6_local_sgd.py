"""Table 5: GIST against local SGD with as many workers, ζ = 100 (appendix B)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from gistgnn.compare.comparison import Row, compare_groups
from gistgnn.compare.many_runs import Record, RunStore
from gistgnn.paper.experiment import Chart, Experiment, Outcome, Series, Verdict
from gistgnn.paper.table2_large_graphs import clusters_of, large_run
from gistgnn.runs.config import ModelConfig, RunConfig
from gistgnn.utils.formats import duration, mean_sd, size

WORKERS = (2, 4, 8)
MODEL = ModelConfig("graphsage", (256, 256), dropout=0.2, norm="layer")
LOCAL_STEPS = 100

# The paper's F1 in percent and seconds of training on Reddit, by method and workers.
PAPER = {
    ("local-sgd", 2): (96.37, 137.17),
    ("gist", 2): (96.40, 108.67),
    ("local-sgd", 4): (95.00, 127.63),
    ("gist", 4): (96.16, 116.56),
    ("local-sgd", 8): (93.40, 129.58),
    ("gist", 8): (95.46, 123.83),
}

COLUMNS = (
    "data set",
    "workers",
    "method",
    "F1",
    "time",
    "time of a worker",
    "sent by a worker",
    "paper: F1",
    "time",
)


@dataclass(frozen=True)
class AppendixB(Experiment):
    """GIST against another method on the same batches; see `Experiment`. `epochs` are split over the workers.

    Args:
        local_steps: ζ.

    Attributes:
        rival: the other method.
    """

    local_steps: int = LOCAL_STEPS

    rival: ClassVar[str]

    def groups(self) -> dict[str, list[RunConfig]]:
        """For every data set the baseline, and GIST and the other method with every m."""
        found = {}
        for dataset in self.datasets:
            runs = {m: self._run(dataset, m) for m in (1, *WORKERS)}
            found[dataset] = [runs[1], *(replace(runs[m], method=way) for m in WORKERS for way in (self.rival, "gist"))]
        return found

    def _run(self, dataset: str, m: int) -> RunConfig:
        """In turn, for local SGD's workers have batches of their own and cannot be fused."""
        return large_run(dataset, MODEL, m, self.epochs, self.local_steps, self.device, runner="in-turn")

    def setting(self) -> str:
        """What all rows have in common, in words."""
        clusters = ", ".join(f"{clusters_of(each)} of {each}" for each in self.datasets)
        paper = "" if self.scale == "full" else "The paper's numbers are of Reddit itself, 80 epochs, 8 V100. "
        return (
            "GraphSAGE with two hidden layers of 256, micro-F1 on the test nodes in percent at the best validation "
            f"score, after {self.epochs} epochs split over the workers, ζ = {self.local_steps}, Adam at 0.01, dropout "
            f"0.2; {self.seeds} seed(s). Clusters: {clusters}, 10 in a batch. The runs take turns on one machine, and "
            f"so do the workers of a run, one after another. {paper}"
        )


@dataclass(frozen=True)
class LocalSgdTable(AppendixB):
    """Table 5; see `AppendixB`."""

    name: ClassVar[str] = "local-sgd"
    title: ClassVar[str] = "Table 5: GIST against local SGD"
    rival: ClassVar[str] = "local-sgd"
    defaults: ClassVar[dict[str, dict[str, Any]]] = {
        "small": {"datasets": ("synthetic:reddit@0.2",), "seeds": 1, "epochs": 30},
        "full": {"datasets": ("reddit",), "seeds": 1, "epochs": 80},
    }

    def run(self, store: RunStore, jobs: int = 1) -> Outcome:
        """Run GIST and local SGD with 2, 4 and 8 workers, and one device, in turns."""
        found = compare_groups(store, self.groups(), self.seeds, self.name)
        rows = [_cells(dataset, row) for dataset, (group, _) in found.items() for row in group]
        verdicts = [verdict for dataset, (group, _) in found.items() for verdict in _verdicts(dataset, group)]
        charts = [chart_of(dataset, group, records) for dataset, (group, records) in found.items()]
        return Outcome(COLUMNS, rows, self._note(), verdicts, charts)

    def _note(self) -> str:
        return (
            f"{self.setting()}Local SGD's workers draw batches of their own, GIST's sub-GCNs see the same ones, as in "
            "the authors' code. The time of a worker is the time divided by their number: what as many machines like "
            "this one would take without the network; what a worker sends in the whole run is counted by formula. "
            "The paper's times are of as many GPUs as workers, the network included."
        )


def chart_of(dataset: str, rows: Sequence[Row], records: Sequence[Sequence[Record]]) -> Chart:
    """Test scores of the first seed against epochs.

    Dashed lines have the colours of the solid ones, in the order of both: the baseline comes last.
    """
    series = []
    baseline, *others = zip(rows, records, strict=True)
    for row, (record, *_) in (*others, baseline):
        x = [entry["epoch"] for entry in record["history"]]
        y = [100 * entry["test"] for entry in record["history"]]
        series.append(Series(row.label, x, y, dashed=row.method != "gist"))
    return Chart(f"F1 by epoch, {dataset}", "epoch", "test F1 (%)", series)


def pairs_of(rows: Sequence[Row]) -> list[tuple[Row, Row]]:
    """(the other method's row, GIST's row) of every m."""
    gist = {row.sub_gcns: row for row in rows if row.method == "gist"}
    return [(row, gist[row.sub_gcns]) for row in rows if row.method != "gist"]


def _verdicts(dataset: str, rows: Sequence[Row]) -> list[Verdict]:
    found = []
    for other, gist in pairs_of(rows):
        where = f"{dataset}, {gist.sub_gcns} workers"
        times = f"{duration(gist.time)} against {duration(other.time)}"
        told = gist.speedup is not None and other.speedup is not None  # neither has diverged
        faster = gist.time < other.time if told else None
        found.append(Verdict(f"{where}: GIST trains faster than local SGD", faster, times))
        scores = f"{gist.mean:.2f} against {other.mean:.2f}"
        found.append(Verdict(f"{where}: GIST has the higher F1", gist.mean > other.mean, scores))
    return found


def _cells(dataset: str, row: Row) -> list[str]:
    paper = PAPER.get((row.method, row.sub_gcns))
    shown = [mean_sd(row.score), duration(row.time), duration(row.time / row.sub_gcns), size(row.bytes)]
    said = [f"{paper[0]:.2f}", f"{paper[1]:.0f} s"] if paper else ["–", "–"]
    return [dataset, str(row.sub_gcns), row.name, *shown, *said]
