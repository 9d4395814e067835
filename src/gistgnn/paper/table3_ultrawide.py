"""Table 3: models of any width on Amazon2M, up to 32,768, where one device runs out of memory.

GraphSAGE with the settings of Table 2. As in the paper, models wider than 4096 are scored by 5,000 parts. `gistgnn
plan` decides whether a model fits: a run that would need more than `memory` counts as "OOM" and is not started.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from gistgnn.compare.comparison import Row, compare
from gistgnn.compare.many_runs import RunStore
from gistgnn.evaluation import Evaluation
from gistgnn.graphs import load
from gistgnn.paper import table3_claims
from gistgnn.paper.experiment import Chart, Experiment, Outcome, Series, Verdict, paper_cells
from gistgnn.paper.large_graphs import describe_clusters, graphsage, large_run
from gistgnn.planning import GraphSizes, Resources, make_plan
from gistgnn.runs.config import RunConfig
from gistgnn.utils.formats import duration, mean_sd

WIDTHS = (400, 4096, 8192, 16384, 32768)
EVALUATIONS = 6  # per run: scoring the whole graph takes longer than many steps
PARTS, WHOLE_UP_TO = 5000, 4096

# The paper's F1 in percent and hours, by L and m, for each of WIDTHS; None: out of memory.
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
Rows = dict[tuple[int, int], Row]  # of one data set and L, by m and d; a run that did not fit is missing


@dataclass(frozen=True)
class UltraWide(Experiment):
    """Table 3; see `Experiment`. Epochs are split over the sub-GCNs.

    `layers` are every L, the number of hidden layers. None clusters: as many as give the paper's batches. A run may
    take `memory` bytes; None: what is available.
    """

    layers: tuple[int, ...] = (2,)
    widths: tuple[int, ...] = WIDTHS
    sub_gcns: tuple[int, ...] = (1, 2, 4, 8)
    local_steps: int = 5000
    clusters: int | None = None
    memory: int | None = None

    name = "ultrawide"
    title = "Table 3: ultra-wide models"
    defaults: ClassVar[dict[str, dict[str, Any]]] = {
        "small": {"datasets": ("synthetic:amazon2m@0.02",), "seeds": 1, "epochs": 12, "local_steps": 25}
        | {"clusters": 1500, "widths": (400, 1024, 4096), "sub_gcns": (1, 4, 8), "memory": 7 * 2**28},
        "full": {"datasets": ("amazon2m",), "seeds": 1, "epochs": 400, "layers": (2, 3, 4)},
    }

    def run(self, store: RunStore, jobs: int = 1) -> Outcome:
        """Train every width with every m that fits; the runs of one width take turns."""
        cells, verdicts, charts = [], [], []
        for dataset, layers in itertools.product(self.datasets, self.layers):
            rows = self._train(dataset, layers, store)
            cells += self._cells(dataset, layers, rows)
            verdicts += self.verdicts(dataset, layers, rows)
            charts.append(self._chart(dataset, layers, rows))
        return Outcome(COLUMNS, cells, self._note(), verdicts, charts)

    def config(self, dataset: str, layers: int, width: int, m: int) -> RunConfig:
        """Return the run of one width and m."""
        settings = self.epochs, self.local_steps, self.device, "in-turn", EVALUATIONS, self.clusters
        run = large_run(dataset, graphsage(width, layers), m, *settings)
        return replace(run, evaluation=Evaluation("parts", parts=PARTS)) if width > WHOLE_UP_TO else run

    def _train(self, dataset: str, layers: int, store: RunStore) -> Rows:
        sizes = GraphSizes.of_graph(load(dataset, store.data_root))
        rows: Rows = {}
        for width in self.widths:
            configs = [self.config(dataset, layers, width, m) for m in sorted(self.sub_gcns)]
            if fitting := [config for config in configs if self._fits(config, sizes)]:
                compared, _ = compare(store, fitting, self.seeds, self.name)
                rows |= {(row.sub_gcns, width): row for row in compared}
        return rows

    def _fits(self, config: RunConfig, sizes: GraphSizes) -> bool:
        resources = Resources.here(self.device, None, self.memory)
        return make_plan(config, sizes, resources, [config.sub_gcns], ["memory"], timed=False).options[0].fits

    def _cells(self, dataset: str, layers: int, rows: Rows) -> list[list[str]]:
        cells = []
        for m, d in itertools.product(self.sub_gcns, self.widths):
            row = rows.get((m, d))
            measured = [mean_sd(row.score), duration(row.time)] if row else ["OOM", "–"]
            known = dict(zip(WIDTHS, PAPER.get((layers, m), ()), strict=False))
            paper = ["OOM", "–"] if d in known and not known[d] else paper_cells(known.get(d), "{:.2f} h")
            cells.append([dataset, str(layers), "–" if m == 1 else str(m), str(d), *measured, *paper])
        return cells

    def verdicts(self, dataset: str, layers: int, rows: Rows) -> list[Verdict]:
        """Judge the paper's claims for one data set and L."""
        return table3_claims.judge(f"{dataset}, L = {layers}", layers, rows, self.widths, self.sub_gcns)

    def _chart(self, dataset: str, layers: int, rows: Rows) -> Chart:
        series = []
        for m in self.sub_gcns:
            widths = [d for d in sorted(self.widths) if (m, d) in rows]
            scores = [rows[m, d].mean for d in widths]
            series.append(Series("one device" if m == 1 else f"m = {m}", widths, scores, dashed=m == 1))
        return Chart(f"F1 by width, L = {layers}, {dataset}", "d", "test F1 (%)", series, logx=True)

    def _note(self) -> str:
        memory = f"{self.memory / 2**30:g} GiB" if self.memory else "what is available"
        paper = "" if self.scale == "full" else "The paper's numbers are for Amazon2M itself, 400 epochs, ζ = 5000. "
        return (
            f"Micro-F1 of GraphSAGE on the test nodes in percent at the best validation score, after {self.epochs} "
            f"epochs split over the sub-GCNs, ζ = {self.local_steps}, Adam at 0.01, dropout 0.2; {self.seeds} "
            f"seed(s). OOM: `gistgnn plan` says that the run, with Θ in memory, would take more than {memory} (with Θ "
            f"in files, wider models fit: docs/how-to/wide-models.md). "
            f"{describe_clusters(self.datasets, self.clusters)}. Times are training times without evaluation on one "
            f"machine; the paper's are on 8 V100. {paper}"
        )
