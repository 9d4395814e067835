"""Table 3: models of any width on Amazon2M, up to 32,768, where one device runs out of memory.

Settings of Table 2 (see `table2_large_graphs`), GraphSAGE; above 4096 the paper scores by 5,000 parts. Whether a
model fits is said by `gistgnn plan`: what needs more than `memory` is "OOM", here and where it would be run.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

from gistgnn.compare.comparison import Row, compare_groups
from gistgnn.compare.many_runs import RunStore
from gistgnn.evaluation import Evaluation
from gistgnn.graphs import load
from gistgnn.paper.experiment import Chart, Experiment, Outcome, Series, Verdict
from gistgnn.paper.table2_large_graphs import SUB_GCNS, clusters_of, large_run
from gistgnn.planning import GraphSizes, Resources, make_plan
from gistgnn.report.formats import duration, mean_sd
from gistgnn.runs.config import ModelConfig, RunConfig

WIDTHS = (400, 4096, 8192, 16384, 32768)
EVALUATIONS = 6  # of a run: the whole graph takes longer than many steps
PARTS, WHOLE_UP_TO = 5000, 4096  # wider models are scored by parts, as in the paper

# The paper's F1 in percent and hours, by L and m, in the order of WIDTHS; None: out of memory.
PAPER: dict[tuple[int, int], tuple[tuple[float, float] | None, ...]] = {
    (2, 1): ((89.38, 1.81), (90.58, 5.17), None, None, None),
    (2, 2): ((87.48, 1.25), (90.09, 1.70), (90.87, 2.76), (90.94, 9.31), (90.91, 32.31)),
    (2, 4): ((84.82, 1.11), (88.79, 1.13), (89.76, 1.49), (90.10, 2.24), (90.17, 5.16)),
    (2, 8): ((82.56, 1.13), (87.16, 1.11), (88.31, 1.20), (88.89, 1.39), (89.46, 1.76)),
    (3, 1): ((89.73, 2.32), (90.99, 9.52), None, None, None),
    (3, 2): ((87.79, 1.56), (90.40, 2.12), (90.91, 4.87), (91.05, 17.7), None),
    (3, 4): ((85.30, 1.37), (88.51, 1.42), (89.75, 2.07), (90.15, 3.44), None),
    (3, 8): ((82.84, 1.37), (86.12, 1.34), (88.38, 1.37), (88.67, 1.88), (88.66, 2.56)),
    (4, 1): ((89.77, 3.00), (91.02, 14.20), None, None, None),
    (4, 2): ((87.75, 1.79), (90.36, 2.77), (91.08, 6.92), (91.09, 26.44), None),
    (4, 4): ((85.32, 1.58), (88.50, 1.65), (89.76, 2.36), (90.05, 4.93), None),
    (4, 8): ((83.45, 1.56), (86.60, 1.55), (88.13, 1.61), (88.44, 2.30), None),
}

COLUMNS = ("data set", "L", "m", "d", "F1", "time", "paper: F1", "time")

Cell = tuple[str, int, int]  # data set, L, d


@dataclass(frozen=True)
class UltraWide(Experiment):
    """Table 3; see `Experiment`. `epochs` are split over the sub-GCNs.

    Args:
        layers: every L, hidden layers.
        widths: every d.
        sub_gcns: every m, 1 for one device.
        local_steps: ζ.
        clusters: c, of 10 in a batch; None: as many as give the paper's batches.
        memory: bytes that a run may take; None: what is available.
    """

    layers: tuple[int, ...] = (2,)
    widths: tuple[int, ...] = WIDTHS
    sub_gcns: tuple[int, ...] = SUB_GCNS
    local_steps: int = 5000
    clusters: int | None = None
    memory: int | None = None

    name: ClassVar[str] = "ultrawide"
    title: ClassVar[str] = "Table 3: ultra-wide models"
    defaults: ClassVar[dict[str, dict[str, Any]]] = {
        "small": {
            "datasets": ("synthetic:amazon2m@0.02",),
            "seeds": 1,
            "epochs": 12,
            "local_steps": 25,
            "clusters": 1500,
            "widths": (400, 1024, 4096),
            "sub_gcns": (1, 4, 8),
            "memory": 7 * 2**28,
        },
        "full": {"datasets": ("amazon2m",), "seeds": 1, "epochs": 400, "layers": (2, 3, 4)},
    }

    def run(self, store: RunStore, jobs: int = 1) -> Outcome:
        """Run every width with every m that fits, the runs of one width in turns."""
        cells = [(dataset, L, d) for dataset in self.datasets for L in self.layers for d in self.widths]
        groups = {cell: self._fitting(cell, store.data_root) for cell in cells}
        some = {cell: group for cell, group in groups.items() if group}
        found = compare_groups(store, some, self.seeds, self.name)
        of = {(*cell, row.sub_gcns): row for cell, (rows, _) in found.items() for row in rows}
        rows = [
            [dataset, str(L), "–" if m == 1 else str(m), str(d), *_said(of.get((dataset, L, d, m))), *_paper(L, m, d)]
            for dataset in self.datasets
            for L in self.layers
            for m in self.sub_gcns
            for d in self.widths
        ]
        groups_of = [(dataset, L) for dataset in self.datasets for L in self.layers]
        charts = [self._chart(dataset, L, of) for dataset, L in groups_of]
        verdicts = [verdict for dataset, L in groups_of for verdict in self._verdicts(dataset, L, of)]
        return Outcome(COLUMNS, rows, self._note(), verdicts, charts)

    def config(self, dataset: str, layers: int, width: int, m: int) -> RunConfig:
        """The run of one cell."""
        model = ModelConfig("graphsage", (width,) * layers, dropout=0.2, norm="layer")
        steps = self.epochs, self.local_steps
        run = large_run(dataset, model, m, *steps, self.device, "in-turn", EVALUATIONS, self.clusters)
        wide = width > WHOLE_UP_TO
        return replace(run, evaluation=Evaluation("parts", parts=PARTS)) if wide else run

    def _fitting(self, cell: Cell, data_root: str) -> list[RunConfig]:
        """The runs of a width that fit into the memory, the smallest m first."""
        dataset, layers, width = cell
        sizes, found = GraphSizes.of_graph(load(dataset, data_root)), []
        for m in sorted(self.sub_gcns):
            config = self.config(dataset, layers, width, m)
            resources = Resources.here(self.device, None, self.memory)
            if make_plan(config, sizes, resources, [m], ["memory"], timed=False).options[0].fits:
                found.append(config)
        return found

    def _verdicts(self, dataset: str, layers: int, of: dict[tuple[str, int, int, int], Row]) -> list[Verdict]:
        wide, most = max(self.widths), max(self.sub_gcns)
        scores = [of[dataset, layers, d, most].mean for d in sorted(self.widths) if (dataset, layers, d, most) in of]
        fits = (dataset, layers, wide, most) in of
        oom = (dataset, layers, wide, 1) not in of
        tried = most > 1 and 1 in self.sub_gcns
        where = f"{dataset}, L = {layers}"
        return [
            Verdict(
                f"{where}: GIST trains a width that does not fit on one device",
                fits and oom if tried else None,
                f"d = {wide}: one device {'OOM' if oom else 'fits'}, m = {most} {'fits' if fits else 'OOM'}",
            ),
            Verdict(
                f"{where}: with m = {most}, F1 rises with the width",
                scores == sorted(scores) if len(scores) > 1 else None,
                ", ".join(f"{score:.2f}" for score in scores),
            ),
        ]

    def _chart(self, dataset: str, layers: int, of: dict[tuple[str, int, int, int], Row]) -> Chart:
        series = []
        for m in self.sub_gcns:
            there = [d for d in sorted(self.widths) if (dataset, layers, d, m) in of]
            scores = [of[dataset, layers, d, m].mean for d in there]
            series.append(Series("one device" if m == 1 else f"m = {m}", there, scores, dashed=m == 1))
        return Chart(f"F1 by width, L = {layers}, {dataset}", "d", "test F1 (%)", series, logx=True)

    def _note(self) -> str:
        memory = f"{self.memory / 2**30:g} GiB" if self.memory else "what is available"
        paper = "" if self.scale == "full" else "The paper's numbers are of Amazon2M itself, 400 epochs, ζ = 5000. "
        clusters = ", ".join(f"{self.clusters or clusters_of(each)} of {each}" for each in self.datasets)
        return (
            f"Micro-F1 of GraphSAGE on the test nodes in percent at the best validation score, after {self.epochs} "
            f"epochs split over the sub-GCNs, ζ = {self.local_steps}, Adam at 0.01, dropout 0.2; {self.seeds} "
            f"seed(s). OOM: the run would take more than {memory}, by `gistgnn plan` with Θ in memory (with Θ in "
            f"files, wider models fit: docs/how-to/wide-models.md). Clusters: {clusters}, 10 in a batch. Times are "
            f"of training without evaluation, on one machine; the paper's are on 8 V100. {paper}"
        )


def _said(row: Row | None) -> list[str]:
    return [mean_sd(row.score), duration(row.time)] if row else ["OOM", "–"]


def _paper(layers: int, m: int, width: int) -> list[str]:
    if width not in WIDTHS or (layers, m) not in PAPER:
        return ["–", "–"]
    found = PAPER[layers, m][WIDTHS.index(width)]
    return [f"{found[0]:.2f}", f"{found[1]:.2f} h"] if found else ["OOM", "–"]
