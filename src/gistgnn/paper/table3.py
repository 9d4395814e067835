"""Table 3: models of any width on Amazon2M, up to 32,768, where one device runs out of memory.

GraphSAGE with the settings of Table 2. Every model is scored by parts, and their F1 is averaged
(appendix A.5), the narrow ones too: the paper's F1 of these differs from Table 2. `gistgnn plan`
decides whether a run fits in the memory of the paper's devices: one that does not counts as "OOM"
and is not started.
"""

import itertools
import statistics
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from gistgnn.compare import RunStore, records_on_ranks, with_seeds
from gistgnn.distributed import World
from gistgnn.estimate import Memory, Resources, RunShape
from gistgnn.evaluation import Evaluation
from gistgnn.graphs import GraphSizes, find
from gistgnn.paper import large_graphs as large
from gistgnn.paper.experiment import Defaults, Experiment, Table
from gistgnn.paper.large_graphs import TrainedRun
from gistgnn.paper.published import TABLE3, TABLE3_WIDTHS, paper_cells
from gistgnn.report import Chart, Series
from gistgnn.runs import RunConfig
from gistgnn.utils import duration, mean_sd, size

EVALUATIONS = 6  # per run: scoring the whole graph takes longer than many steps
PARTS = 5000  # of Amazon2M, for evaluation; of a smaller graph, in proportion
FEWEST_PARTS = 4
DEVICE_MEMORY = 32 * 2**30  # of the paper's devices, V100 of 32 GB (appendix A.2)
HOST_MEMORY = 256 * 10**9  # beside eight of them; the paper does not say how much it had
PLACES = {"cpu": "memory", "cuda": "GPU memory", "disk": "room on the disk"}
COLUMNS = ("data set", "L", "m", "d", "ranks", "F1", "time", "memory by plan", "paper: F1", "time")

OOM = "OOM"  # a run does not fit in the memory of the experiment's device, or of its host
NOT_RUN = "not run"  # it fits there, but not on this machine

Size = tuple[int, int]  # m and d


@dataclass(frozen=True)
class UltraWide(Experiment):
    """Table 3; see `Experiment`. Epochs are split over the sub-GCNs.

    `layers` are every L, the number of hidden layers. A run may take `device_memory` bytes of the
    device. Θ lies in `store`. It defaults to the host's memory, as the authors have it; with one
    device to the device's.
    """

    layers: tuple[int, ...] = (2,)
    widths: tuple[int, ...] = TABLE3_WIDTHS
    sub_gcns: tuple[int, ...] = (1, 2, 4, 8)
    local_steps: int = 5000
    clusters: int | None = None
    store: str | None = None
    device_memory: int = DEVICE_MEMORY

    defaults: ClassVar[Defaults] = {
        "ultrawide": {
            "small": {
                "datasets": ("synthetic:amazon2m@0.02",),
                "seeds": 1,
                "epochs": 12,
                "local_steps": 25,
                "clusters": 1500,
                "widths": (400, 1024, 4096),
                "sub_gcns": (1, 4, 8),
                "device_memory": 7 * 2**28,
            },
            "full": {"datasets": ("amazon2m",), "seeds": 1, "epochs": 400, "layers": (2, 3, 4)},
        }
    }

    def run(self, store: RunStore) -> list[Table]:
        """Train every width with every m that fits; the runs of one width follow one another."""
        rows = []
        charts = []
        for dataset, layers in itertools.product(self.datasets, self.layers):
            plans = self.plans(dataset, layers, store)
            trained = self._train(dataset, layers, plans, store)
            for m, width in itertools.product(self.sub_gcns, self.widths):
                memory, reason = plans[m, width]
                measured = _cells(trained.get((m, width)), reason or NOT_RUN)
                settings = [dataset, str(layers), "–" if m == 1 else str(m), str(width)]
                rows.append([*settings, *measured, memory, *cells_of_paper(layers, m, width)])
            charts.append(self._chart(dataset, layers, trained))
        return [Table(COLUMNS, rows, self._note(), charts)]

    def config(self, dataset: str, layers: int, width: int, m: int) -> RunConfig:
        training = large.large_training(self.epochs, self.local_steps)
        sampler = large.cluster_sampling(dataset, self.clusters)
        run = large.large_run(
            dataset, large.graphsage(width, layers), m, training, sampler, EVALUATIONS
        )
        return replace(
            run,
            runner="in-turn",
            device=self.device,
            evaluation=Evaluation("parts", parts=parts_of(dataset)),
            store=self.store or ("host" if m > 1 else "memory"),
        )

    def plans(self, dataset: str, layers: int, store: RunStore) -> dict[Size, tuple[str, str]]:
        """Return by m and width what a run takes of the device, and why it is not trained.

        The reason is "" if it is trained.
        """
        sizes = find(dataset) or GraphSizes.of_graph(store.graph(dataset))
        shapes: dict[Size, RunShape] = {}
        for width in self.widths:
            same_width = None  # The layout of a model is the same for every m.
            for m in sorted(self.sub_gcns):
                run = self.config(dataset, layers, width, m)
                same_width = RunShape(run, sizes, same_width)
                shapes[m, width] = same_width
        return {
            (m, width): self._plan(shapes[m, width], store)
            for m, width in itertools.product(sorted(self.sub_gcns), self.widths)
        }

    def runs_on_ranks(self, ranks: World, store: RunStore) -> list[RunConfig]:
        """Return the runs that fit; each rank holds 1/W of the rows of Θ. Rank 0 plans them."""

        def fitting() -> list[tuple[Any, ...]]:
            settings: list[tuple[Any, ...]] = []
            for dataset, layers in itertools.product(self.datasets, self.layers):
                plans = self.plans(dataset, layers, store)
                settings += [
                    (dataset, layers, width, m)
                    for (m, width), (_, reason) in plans.items()
                    if not reason
                ]
            return settings

        runs = [self.config(*settings) for settings in ranks.lead(fitting)]
        return [replace(run, share="rows" if run.sub_gcns > 1 else "whole") for run in runs]

    def _plan(self, run: RunShape, store: RunStore) -> tuple[str, str]:
        """Plan a run within the paper's device and within this machine.

        At the small scale the device is this one.
        """
        here = Resources.here(self.device, store.directory, None)
        theirs = Resources.here(self.device, store.directory, self.device_memory)
        if self.scale == "full":
            theirs = replace(theirs, host=HOST_MEMORY, gpu=self.device_memory)
        on_theirs = Memory(run, run.config.store, theirs)
        on_ours = Memory(run, run.config.store, here)
        needed = size(on_theirs.peaks[theirs.device])
        if {"cpu", theirs.device} & {*on_theirs.lacking}:
            return needed, OOM
        if on_ours.lacking:
            lacking = on_ours.lacking[0]
            return f"{needed}; here {size(here.limits[lacking])} of {PLACES[lacking]}", NOT_RUN
        return needed, ""

    def _train(
        self, dataset: str, layers: int, plans: Mapping[Size, tuple[str, str]], store: RunStore
    ) -> dict[Size, TrainedRun]:
        """Train the runs that fit; return all by m and width.

        Runs that ranks have trained are not trained again.
        """
        by_size: dict[Size, TrainedRun] = {}
        for width in self.widths:
            every_m = [m for m in sorted(self.sub_gcns) if not plans[m, width][1]]
            runs = {m: self.config(dataset, layers, width, m) for m in every_m}
            alone = []
            for m, run in runs.items():
                on_ranks = records_on_ranks(store, with_seeds([run], self.seeds))
                if on_ranks:
                    by_size[m, width] = TrainedRun(run, [], on_ranks)
                else:
                    alone.append(run)
            for trained in large.trained_runs(alone, self.seeds, store, self.name):
                by_size[trained.config.sub_gcns, width] = trained
        return by_size

    def _chart(self, dataset: str, layers: int, trained: Mapping[Size, TrainedRun]) -> Chart:
        series = []
        for m in self.sub_gcns:
            widths = [d for d in sorted(self.widths) if (m, d) in trained]
            scores = [statistics.fmean(_scores_by_parts(trained[m, d])) for d in widths]
            series.append(
                Series("one device" if m == 1 else f"m = {m}", widths, scores, dashed=m == 1)
            )
        return Chart(
            f"F1 by width, L = {layers}, {dataset}", "d", "test F1 (%)", series, log_x=True
        )

    def _note(self) -> str:
        room = size(self.device_memory)
        parts = ", ".join(f"{parts_of(name)} of {name}" for name in self.datasets)
        where = f"--store {self.store}" if self.store else "with m = 1 on the device"
        paper = (
            ""
            if self.scale == "full"
            else " The paper's numbers are for Amazon2M itself, 400 epochs, ζ = 5000."
        )
        return (
            f"GraphSAGE, {self.epochs} epochs split over the sub-GCNs, ζ = {self.local_steps}, "
            f"Adam at 0.01, dropout 0.2; {self.seeds} seed(s). F1: the mean of the parts' micro-F1 "
            "on test nodes in percent, at the best validation score, the micro-F1 of all "
            f"validation nodes together (parts: {parts}). OOM: by the plan, the run takes more "
            f"than {room} of the device, or {size(HOST_MEMORY)} of its host's memory, where the "
            f"parameters are ({where}). not run: it does not fit on this machine. Ranks trained at "
            "the same time; the time is that of the slowest. "
            f"{large.describe_clusters(self.datasets, self.clusters)}. Times are of training on "
            f"one machine; the paper has 8 V100.{paper}"
        )


def parts_of(dataset: str) -> int:
    """Return the number of parts that are as large as the paper's.

    Unknown graphs get `FEWEST_PARTS`.
    """
    info = find(dataset)
    return (
        max(FEWEST_PARTS, round(PARTS * info.nodes / large.NODES["amazon2m"]))
        if info
        else FEWEST_PARTS
    )


def cells_of_paper(layers: int, m: int, width: int) -> list[str]:
    """Return the cells of the paper's run: F1 and time, OOM, or dashes if there is no such run."""
    runs = dict(zip(TABLE3_WIDTHS, TABLE3.get((layers, m), ()), strict=False))
    if width in runs and runs[width] is None:
        return [OOM, "–"]
    return paper_cells(runs.get(width), "{:.2f} h")


def _scores_by_parts(trained: TrainedRun) -> list[float]:
    return [100 * (record.test.get("f1_parts") or 0.0) for record in trained.records]


def _cells(trained: TrainedRun | None, reason: str) -> list[str]:
    """Return the ranks, the F1 and the time of a run; if it is not trained, the reason."""
    if trained is None:
        return ["–", reason, "–"]
    workers = trained.on_ranks[0].workers if trained.on_ranks else None
    ranks = "–" if workers is None else str(workers.ranks)
    seconds = statistics.fmean(record.train_seconds for record in trained.records)
    return [ranks, mean_sd(_scores_by_parts(trained)), duration(seconds)]
