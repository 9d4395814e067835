"""Table 3: models of any width on Amazon2M, up to 32,768, where one device runs out of memory.

GraphSAGE with the settings of Table 2. Every model is scored by 5,000 parts, and their F1 is averaged (appendix A.5).
The paper says so of models wider than 4096; its F1 of the narrow ones differs from Table 2, as if they were scored in
the same way. `gistgnn plan` decides whether a run fits in the memory of the paper's devices: one that does not counts
as "OOM" and is not started.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from gistgnn.compare.comparison import Row, compare
from gistgnn.compare.many_runs import RunStore
from gistgnn.estimate import Resources, make_plan
from gistgnn.evaluation import Evaluation
from gistgnn.graphs import find, load
from gistgnn.graphs.sizes import GraphSizes
from gistgnn.paper import table3_claims
from gistgnn.paper.claims import not_shown
from gistgnn.paper.experiment import Curve, CurveChart, Experiment, Outcome, Verdict, paper_cells
from gistgnn.paper.large_graphs import NODES, describe_clusters, graphsage, large_run
from gistgnn.runs.config import RunConfig
from gistgnn.utils.formats import duration, mean_sd, plural, size

WIDTHS = (400, 4096, 8192, 16384, 32768)
EVALUATIONS = 6  # per run: scoring the whole graph takes longer than many steps
PARTS, FEWEST_PARTS = 5000, 4  # of Amazon2M, for evaluation; of a smaller graph, in proportion
DEVICE_MEMORY = 32 * 2**30  # of the paper's devices, V100 of 32 GB (appendix A.2)
PLACES = {"cpu": "memory", "cuda": "GPU memory", "disk": "room on the disk"}
DIFFERS = "‡"  # marks a cell where the plan and the paper differ on whether the run fits

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

COLUMNS = ("data set", "L", "m", "d", "F1", "pooled F1", "time", "memory by plan", "paper: F1", "time")


@dataclass(frozen=True)
class Cell:
    """A width with an m: what the plan says of its run, and what the run has shown.

    Args:
        needed: bytes of the device.
        fits: in the memory of the experiment's device.
        lacking: what this machine has too little of for the run; "": nothing.
        row: the run, scored by the mean F1 of the parts; None: it was not started.
        pooled: F1 of all nodes together in percent, by seed.
    """

    needed: int
    fits: bool
    lacking: str = ""
    row: Row | None = None
    pooled: tuple[float, ...] = ()


Cells = Mapping[tuple[int, int], Cell]  # of one data set and L, by m and d


@dataclass(frozen=True)
class UltraWide(Experiment):
    """Table 3; see `Experiment`. Epochs are split over the sub-GCNs.

    `layers` are every L, the number of hidden layers. None clusters: as many as give the paper's batches. Θ lies in
    `store` ("memory", "host" or "disk"). A run may take `device_memory` bytes of the device.
    """

    layers: tuple[int, ...] = (2,)
    widths: tuple[int, ...] = WIDTHS
    sub_gcns: tuple[int, ...] = (1, 2, 4, 8)
    local_steps: int = 5000
    clusters: int | None = None
    store: str = "memory"
    device_memory: int = DEVICE_MEMORY

    name = "ultrawide"
    title = "Table 3: ultra-wide models"
    defaults: ClassVar[dict[str, dict[str, Any]]] = {
        "small": {"datasets": ("synthetic:amazon2m@0.02",), "seeds": 1, "epochs": 12, "local_steps": 25}
        | {"clusters": 1500, "widths": (400, 1024, 4096), "sub_gcns": (1, 4, 8), "device_memory": 7 * 2**28},
        "full": {"datasets": ("amazon2m",), "seeds": 1, "epochs": 400, "layers": (2, 3, 4)},
    }

    def run(self, store: RunStore, jobs: int = 1) -> Outcome:
        """Train every width with every m that fits; the runs of one width follow one another."""
        table, verdicts, charts = [], [], []
        for dataset, layers in itertools.product(self.datasets, self.layers):
            cells = self._train(dataset, layers, store)
            table += self._lines(dataset, layers, cells)
            rows = {key: cell.row for key, cell in cells.items() if cell.row}
            fitting = {key for key, cell in cells.items() if cell.fits}
            verdicts += self.verdicts(dataset, layers, rows, fitting)
            charts.append(self._chart(dataset, layers, rows))
        return Outcome(COLUMNS, table, self._note(), verdicts, charts)

    def config(self, dataset: str, layers: int, width: int, m: int) -> RunConfig:
        """Return the run of one width and m."""
        settings = self.epochs, self.local_steps, self.device, "in-turn", EVALUATIONS, self.clusters
        run = large_run(dataset, graphsage(width, layers), m, *settings)
        return replace(run, evaluation=Evaluation("parts", parts=parts_of(dataset)), store=self.store)

    def _train(self, dataset: str, layers: int, store: RunStore) -> Cells:
        known = find(dataset)
        sizes = GraphSizes.of_dataset(known) if known else GraphSizes.of_graph(load(dataset, store.data_root))
        cells: dict[tuple[int, int], Cell] = {}
        for width in self.widths:
            configs = {m: self.config(dataset, layers, width, m) for m in sorted(self.sub_gcns)}
            planned = {m: self._plan(config, sizes, store) for m, config in configs.items()}
            for m in [m for m, cell in planned.items() if not cell.fits or cell.lacking]:
                store.left_out(configs.pop(m), self._why(planned[m]))
            rows, records = compare(store, list(configs.values()), self.seeds, self.name) if configs else ([], [])
            for m, row, seeds in zip(configs, rows, records, strict=True):
                by_parts = tuple(100 * (record["test"] or {}).get("f1_parts", 0.0) for record in seeds)
                planned[m] = replace(planned[m], row=replace(row, score=by_parts), pooled=row.score)
            cells |= {(m, width): cell for m, cell in planned.items()}
        return cells

    def _plan(self, config: RunConfig, sizes: GraphSizes, store: RunStore) -> Cell:
        """Plan a run within the device's memory, and compare the plan with what this machine has."""
        device = "cpu" if self.device == "cpu" else "cuda"
        within, here = (Resources.here(self.device, store.directory, room) for room in (self.device_memory, None))
        option = make_plan(config, sizes, within, [config.sub_gcns], [self.store], timed=False).options[0]
        short = next((place for place, room in here.limits.items() if option.peaks[place] > room), None)
        lacking = f"; here {size(here.limits[short])} of {PLACES[short]}" if short else ""
        return Cell(option.peaks[device], device not in option.lacking, lacking)

    def _why(self, cell: Cell) -> str:
        """Say why a run is not started."""
        return f"{size(cell.needed)}{cell.lacking if cell.fits else f', OOM in {size(self.device_memory)}'}"

    def _lines(self, dataset: str, layers: int, cells: Cells) -> list[list[str]]:
        lines, in_paper = [], self._in_paper(dataset, layers)
        for m, d in itertools.product(self.sub_gcns, self.widths):
            cell = cells[m, d]
            measured = ["not run" if cell.fits else "OOM", "–", "–"]
            if row := cell.row:
                measured = [mean_sd(row.score), mean_sd(cell.pooled), duration(row.time)]
            differs = DIFFERS if in_paper.get((m, d), cell.fits) != cell.fits else ""
            plan = f"{size(cell.needed)}{cell.lacking if cell.fits else ''}{differs}"
            known = dict(zip(WIDTHS, PAPER.get((layers, m), ()), strict=False))
            paper = ["OOM", "–"] if d in known and not known[d] else paper_cells(known.get(d), "{:.2f} h")
            lines.append([dataset, str(layers), "–" if m == 1 else str(m), str(d), *measured, plan, *paper])
        return lines

    def _in_paper(self, dataset: str, layers: int) -> dict[tuple[int, int], bool]:
        """Return whether the paper's runs fit, by m and d; {} for another graph, or another memory than the paper's."""
        if dataset.removeprefix("synthetic:") != "amazon2m" or self.device_memory != DEVICE_MEMORY:
            return {}
        known = {m: zip(WIDTHS, PAPER.get((layers, m), ()), strict=False) for m in self.sub_gcns}
        return {(m, d): bool(run) for m, runs in known.items() for d, run in runs if d in self.widths}

    def verdicts(
        self,
        dataset: str,
        layers: int,
        rows: Mapping[tuple[int, int], Row],
        fitting: Collection[tuple[int, int]] | None = None,
    ) -> list[Verdict]:
        """Judge the paper's claims for one data set and L.

        Args:
            dataset: the graph's name.
            layers: L.
            rows: the runs, by m and d.
            fitting: m and d of the runs that fit in the device's memory; None: of those in ``rows``.
        """
        where, fitting = f"{dataset}, L = {layers}", set(rows if fitting is None else fitting)
        fits = table3_claims.fits_as_in_the_paper(where, fitting, self._in_paper(dataset, layers))
        if missing := fitting - set(rows):
            claim = f"{where}: what the paper says of F1 and time"
            return [fits, not_shown(claim, f"{plural(len(missing), 'run')} of those that fit need another machine")]
        return [fits, *table3_claims.judge(where, layers, rows, self.widths, self.sub_gcns)]

    def _chart(self, dataset: str, layers: int, rows: Mapping[tuple[int, int], Row]) -> CurveChart:
        series = []
        for m in self.sub_gcns:
            widths = [d for d in sorted(self.widths) if (m, d) in rows]
            scores = [rows[m, d].mean for d in widths]
            series.append(Curve("one device" if m == 1 else f"m = {m}", widths, scores, dashed=m == 1))
        return CurveChart(f"F1 by width, L = {layers}, {dataset}", "d", "test F1 (%)", series, logx=True)

    def _note(self) -> str:
        room, parts = size(self.device_memory), ", ".join(f"{parts_of(name)} of {name}" for name in self.datasets)
        paper = "" if self.scale == "full" else "The paper's numbers are for Amazon2M itself, 400 epochs, ζ = 5000. "
        return (
            f"GraphSAGE after {self.epochs} epochs split over the sub-GCNs, ζ = {self.local_steps}, Adam at 0.01, "
            f"dropout 0.2; {self.seeds} seed(s). F1: the mean of the parts' micro-F1 on the test nodes in percent, at "
            f"the best validation score (parts: {parts}); pooled F1: of all test nodes together. OOM: `gistgnn plan` "
            f"says that the run takes more than {room} of the device; the parameters are in: {self.store} (--store). "
            f"not run: it fits in {room}, but not on this machine. {DIFFERS}: on whether the run fits in {room}, the "
            "plan and the paper differ; what the paper has run has a time. "
            f"{describe_clusters(self.datasets, self.clusters)}. Times are training times without evaluation on one "
            f"machine; the paper's are on 8 V100. {paper}"
        )


def parts_of(dataset: str) -> int:
    """Return the number of parts that are as large as the paper's; unknown graphs get `FEWEST_PARTS`."""
    info = find(dataset)
    return max(FEWEST_PARTS, round(PARTS * info.nodes / NODES["amazon2m"])) if info else FEWEST_PARTS
