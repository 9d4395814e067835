"""Table 3: models of any width on Amazon2M, up to 32,768, where one device runs out of memory.

GraphSAGE with the settings of Table 2. Every model is scored by parts, and their F1 is averaged (appendix A.5), the
narrow ones too: the paper's F1 of these differs from Table 2. `gistgnn plan` decides whether a run fits in the memory
of the paper's devices: one that does not counts as "OOM" and is not started.
"""

import itertools
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from gistgnn.compare import Record, Row, RunStore, by_seeds, records_on_ranks, rows_of, with_seeds
from gistgnn.distributed import World
from gistgnn.estimate import Resources, make_plan
from gistgnn.evaluation import Evaluation
from gistgnn.graphs import GraphSizes, find, load
from gistgnn.paper.experiment import Claim, Experiment, Outcome, Verdict, judge
from gistgnn.paper.large_graphs import NODES, describe_clusters, graphsage, large_run
from gistgnn.paper.published import TABLE3, TABLE3_WIDTHS, paper_cells
from gistgnn.report import Chart, Series
from gistgnn.runs import RunConfig
from gistgnn.utils import duration, mean_sd, plural, size

EVALUATIONS = 6  # per run: scoring the whole graph takes longer than many steps
PARTS, FEWEST_PARTS = 5000, 4  # of Amazon2M, for evaluation; of a smaller graph, in proportion
DEVICE_MEMORY = 32 * 2**30  # of the paper's devices, V100 of 32 GB (appendix A.2)
HOST_MEMORY = 256 * 10**9  # beside eight of them; the paper does not say how much it had
PLACES = {"cpu": "memory", "cuda": "GPU memory", "disk": "room on the disk"}
COLUMNS = ("data set", "L", "m", "d", "ranks", "F1", "time", "memory by plan", "paper: F1", "time")

FACTOR = 8  # "widths as high as 32K (i.e., 8x beyond the capacity of a single GPU)"
DOUBLE_M, SOONER = 2, 1.86  # "With GIST (m = 2), ... (i.e., a 1.86x speedup) using d = 8192"
SIMILAR = 0.1  # points of F1; "Similar patterns are observed for deeper models": the paper's L = 3 is 0.08 lower
TIE = 0.05  # points of F1; a fall of at most this much is no fall: the paper's are 0.03 and 0.01


@dataclass(frozen=True)
class UltraWideCell:
    """A width with an m: what the plan says of its run, and what the run has shown."""

    needed: int  # bytes of the device
    fits: bool  # in the memory of the experiment's device, and of its host
    lacking: str = ""  # what this machine has too little of for the run; "": nothing
    row: Row | None = None  # the run, scored by the mean F1 of the parts; None: it was not started
    ranks: int = 1  # that trained it at the same time

    @property
    def runs(self) -> bool:
        return self.fits and not self.lacking


Size = tuple[int, int]  # m and d
Rows = Mapping[Size, Row]  # of one data set and L; a run that did not fit is missing


# `layers` are every L, the number of hidden layers. A run may take `device_memory` bytes of the device.
@dataclass(frozen=True)
class UltraWide(Experiment):
    """Table 3; see `Experiment`. Epochs are split over the sub-GCNs.

    Θ lies in `store`. None: in the host's memory, as the authors have it; with one device in the device's.
    """

    layers: tuple[int, ...] = (2,)
    widths: tuple[int, ...] = TABLE3_WIDTHS
    sub_gcns: tuple[int, ...] = (1, 2, 4, 8)
    local_steps: int = 5000
    clusters: int | None = None
    store: str | None = None
    device_memory: int = DEVICE_MEMORY

    defaults: ClassVar[dict[str, dict[str, Any]]] = {
        "small": {"datasets": ("synthetic:amazon2m@0.02",), "seeds": 1, "epochs": 12, "local_steps": 25}
        | {"clusters": 1500, "widths": (400, 1024, 4096), "sub_gcns": (1, 4, 8), "device_memory": 7 * 2**28},
        "full": {"datasets": ("amazon2m",), "seeds": 1, "epochs": 400, "layers": (2, 3, 4)},
    }

    def run(self, store: RunStore) -> Outcome:
        """Train every width with every m that fits; the runs of one width follow one another."""
        table, verdicts, charts = [], [], []
        for dataset, layers in itertools.product(self.datasets, self.layers):
            cells = self._train(dataset, layers, store)
            every = itertools.product(self.sub_gcns, self.widths)
            table += [self._line(dataset, layers, key, cells[key]) for key in every]
            rows = {key: cell.row for key, cell in cells.items() if cell.row}
            verdicts += self.verdicts(dataset, layers, rows, {key for key, cell in cells.items() if cell.fits})
            charts.append(self._chart(dataset, layers, rows))
        return Outcome(COLUMNS, table, self._note(), verdicts, charts)

    def config(self, dataset: str, layers: int, width: int, m: int) -> RunConfig:
        settings = self.epochs, self.local_steps, self.device, "in-turn", EVALUATIONS, self.clusters
        run = large_run(dataset, graphsage(width, layers), m, *settings)
        store = self.store or ("host" if m > 1 else "memory")
        return replace(run, evaluation=Evaluation("parts", parts=parts_of(dataset)), store=store)

    def runs_on_ranks(self, ranks: World, store: RunStore) -> list[RunConfig]:
        """Return the runs that fit; each rank holds 1/W of the rows of Θ. Rank 0 plans them."""

        def fitting() -> list[tuple[Any, ...]]:
            planned = ((*key, self._planned(*key, store)) for key in itertools.product(self.datasets, self.layers))
            return [(*key, d, m) for *key, cells in planned for (m, d), each in cells.items() if each.runs]

        runs = [self.config(*key) for key in ranks.lead(fitting)]
        return [replace(run, share="rows" if run.sub_gcns > 1 else "whole") for run in runs]

    def _train(self, dataset: str, layers: int, store: RunStore) -> Mapping[Size, UltraWideCell]:
        cells = self._planned(dataset, layers, store)
        for width in self.widths:
            configs = {m: self.config(dataset, layers, width, m) for m in sorted(self.sub_gcns)}
            for m in [m for m in configs if not cells[m, width].fits]:
                needed, room = size(cells[m, width].needed), size(self.device_memory)
                store.left_out(configs.pop(m), f"{needed}, OOM in {room}")
            configs = {m: config for m, config in configs.items() if store.rehearses or cells[m, width].runs}
            for m, own in self._records(configs, store).items():
                [row], key = rows_of([own]), (m, width)
                by_parts = tuple(100 * (record["test"] or {}).get("f1_parts", 0.0) for record in own)
                ranks = own[0].get("workers", {}).get("ranks", 1)
                cells[key] = replace(cells[key], row=replace(row, score=by_parts), ranks=ranks)
        return cells

    def _records(self, configs: Mapping[int, RunConfig], store: RunStore) -> dict[int, list[Record]]:
        """Train the runs that are missing; return the records of all by m, those of ranks if they trained the run."""
        repeated = {m: with_seeds([run], self.seeds) for m, run in configs.items()}
        found = {m: own for m, runs in repeated.items() if (own := records_on_ranks(store, runs))}
        alone = [m for m, runs in repeated.items() if m not in found and store.offers(runs)]
        records = store.run_all(with_seeds([configs[m] for m in alone], self.seeds), self.name) if alone else []
        return found | dict(zip(alone, by_seeds(records, self.seeds), strict=True))

    def _planned(self, dataset: str, layers: int, store: RunStore) -> dict[Size, UltraWideCell]:
        known = find(dataset)
        sizes = GraphSizes.of_dataset(known) if known else GraphSizes.of_graph(load(dataset, store.data_root))
        every = [(m, width) for width in self.widths for m in sorted(self.sub_gcns)]
        return {(m, d): self._plan(self.config(dataset, layers, d, m), sizes, store) for m, d in every}

    def _plan(self, config: RunConfig, sizes: GraphSizes, store: RunStore) -> UltraWideCell:
        """Plan a run within the paper's device, or at the small scale within this one; and within this machine."""
        within, here = (Resources.here(self.device, store.directory, room) for room in (self.device_memory, None))
        if self.scale == "full":
            within = replace(within, host=HOST_MEMORY, gpu=self.device_memory)
        option, own = (
            make_plan(config, sizes, room, [config.sub_gcns], [config.store], timed=False).options[0]
            for room in (within, here)
        )
        lacking = "".join(f"; here {size(here.limits[place])} of {PLACES[place]}" for place in own.memory.lacking[:1])
        fits = not {"cpu", within.device} & {*option.memory.lacking}
        return UltraWideCell(option.memory.peaks[within.device], fits, lacking)

    def _line(self, dataset: str, layers: int, key: Size, cell: UltraWideCell) -> list[str]:
        m, d = key
        measured = ["–", "not run" if cell.fits else "OOM", "–"]
        if row := cell.row:
            measured = ["–" if cell.ranks == 1 else str(cell.ranks), mean_sd(row.score), duration(row.time)]
        plan = f"{size(cell.needed)}{cell.lacking if cell.fits else ''}"
        known = dict(zip(TABLE3_WIDTHS, TABLE3.get((layers, m), ()), strict=False))
        paper = ["OOM", "–"] if d in known and not known[d] else paper_cells(known.get(d), "{:.2f} h")
        return [dataset, str(layers), "–" if m == 1 else str(m), str(d), *measured, plan, *paper]

    def _in_paper(self, dataset: str, layers: int) -> dict[Size, bool]:
        """Return whether the paper's runs fit; {} for another graph, or another memory than the paper's."""
        if dataset.removeprefix("synthetic:") != "amazon2m" or self.device_memory != DEVICE_MEMORY:
            return {}
        known = {m: zip(TABLE3_WIDTHS, TABLE3.get((layers, m), ()), strict=False) for m in self.sub_gcns}
        return {(m, d): bool(run) for m, runs in known.items() for d, run in runs if d in self.widths}

    def verdicts(self, dataset: str, layers: int, rows: Rows, fitting: Collection[Size] | None = None) -> list[Verdict]:
        """Judge section 5.3's claims for a data set and L. `fitting` are the sizes that fit; None: all of `rows`."""
        fitting = set(rows if fitting is None else fitting)
        claims = [_fits_as_in_the_paper(fitting, self._in_paper(dataset, layers))]
        several = sorted(m for m in self.sub_gcns if m > 1)
        if missing := fitting - set(rows):
            reason = f"{plural(len(missing), 'run')} of those that fit need another machine"
            claims.append(Claim("what the paper says of F1 and time", None, reason))
        else:
            if 1 in self.sub_gcns and several:
                claims += _against_one_device(layers, rows, sorted(self.widths), several)
            claims += [_rises_with_width(m, rows) for m in several]
        return judge(f"{dataset}, L = {layers}", claims)

    def _chart(self, dataset: str, layers: int, rows: Rows) -> Chart:
        series = []
        for m in self.sub_gcns:
            widths = [d for d in sorted(self.widths) if (m, d) in rows]
            scores = [rows[m, d].mean for d in widths]
            series.append(Series("one device" if m == 1 else f"m = {m}", widths, scores, dashed=m == 1))
        return Chart(f"F1 by width, L = {layers}, {dataset}", "d", "test F1 (%)", series, log_x=True)

    def _note(self) -> str:
        room, parts = size(self.device_memory), ", ".join(f"{parts_of(name)} of {name}" for name in self.datasets)
        where = f"--store {self.store}" if self.store else "with m = 1 on the device"
        paper = "" if self.scale == "full" else " The paper's numbers are for Amazon2M itself, 400 epochs, ζ = 5000."
        return (
            f"GraphSAGE, {self.epochs} epochs split over the sub-GCNs, ζ = {self.local_steps}, Adam at 0.01, dropout "
            f"0.2; {self.seeds} seed(s). F1: the mean of the parts' micro-F1 on test nodes in percent, at the best "
            f"validation score, the micro-F1 of all validation nodes together (parts: {parts}). OOM: by the plan, the "
            f"run takes more than {room} of the device, or {size(HOST_MEMORY)} of its host's memory, where the "
            f"parameters are ({where}). not run: it does not fit on this machine. Ranks trained at the same time; the "
            "time is that of the slowest. "
            f"{describe_clusters(self.datasets, self.clusters)}. Times are of "
            f"training on one machine; the paper has 8 V100.{paper}"
        )


def parts_of(dataset: str) -> int:
    """Return the number of parts that are as large as the paper's; unknown graphs get `FEWEST_PARTS`."""
    info = find(dataset)
    return max(FEWEST_PARTS, round(PARTS * info.nodes / NODES["amazon2m"])) if info else FEWEST_PARTS


def _fits_as_in_the_paper(fitting: Collection[Size], paper: Mapping[Size, bool]) -> Claim:
    """The mark "OOM marks experiments that cause out-of-memory errors" (caption). `paper`: {} if not comparable."""
    text = "the same runs as in the paper fit in the memory of a device, by the plan"
    if not paper:
        return Claim(text, None, "another graph or another memory than in the paper")
    differing = sorted((d, m) for (m, d), fits in paper.items() if fits != ((m, d) in fitting))
    each = [f"d = {d}, m = {m} {'fits' if (m, d) in fitting else 'does not fit'}" for d, m in differing]
    return Claim(text, not differing, "; ".join(each) or f"all {len(paper)} agree")


def _against_one_device(layers: int, rows: Rows, widths: list[int], several: list[int]) -> Iterator[Claim]:
    alone = max((d for m, d in rows if m == 1), default=0)
    widest = max((d for m, d in rows if m > 1), default=0)
    text = "GIST trains widths that one device cannot"
    if widths[-1] <= alone:
        yield Claim(text, None, "every width fits on one device")
        return
    both = f"one device: up to d = {alone}, GIST: up to d = {widest}"
    yield Claim(text, widest > alone, both)
    if layers == 2:
        text, tried = f"GIST trains a width {FACTOR} times one device's widest", widths[-1] >= FACTOR * alone > 0
        yield Claim(text, widest >= FACTOR * alone if tried else None, both if tried else "no such width was tried")
    if alone:
        yield _best_is_beyond(rows, alone)
        yield _double_width(layers, rows, alone, {(m, d) for m in several for d in widths})


def _best_is_beyond(rows: Rows, alone: int) -> Claim:
    """The method "enables training of higher-performing, ultra-wide models" (caption)."""
    text = "the best model that only GIST can train beats the best one of one device"
    beyond = {key: row for key, row in rows.items() if key[1] > alone}
    if not beyond:
        return Claim(text, None, f"no model wider than d = {alone} fits")
    best = max(row.mean for (m, _), row in rows.items() if m == 1)
    (m, d), wide = max(beyond.items(), key=lambda item: item[1].mean)
    return Claim(text, wide.mean > best, f"d = {d}, m = {m}: {wide.mean:.2f}; one device: {best:.2f}")


def _double_width(layers: int, rows: Rows, alone: int, tried: Collection[Size]) -> Claim:
    """With "GIST (m = 2), we achieve a higher F1 score ... (i.e., a 1.86x speedup) using d = 8192"."""
    score = "a higher F1" if layers == 2 else f"a similar F1 (at most {SIMILAR:g} points lower)"
    text = f"GIST trains twice one device's best width, m = {DOUBLE_M}, {SOONER:g}x faster to {score}"
    (_, d), base = max(((key, row) for key, row in rows.items() if key[0] == 1), key=lambda item: item[1].mean)
    double = rows.get((DOUBLE_M, 2 * d))
    if d != alone:
        return Claim(text, None, f"one device's best width, d = {d}, is not its widest, d = {alone}")
    if (DOUBLE_M, 2 * d) not in tried:
        return Claim(text, None, f"needs m = {DOUBLE_M} with d = {2 * d}")
    if double is None:
        return Claim(text, False, f"d = {2 * d} does not fit with m = {DOUBLE_M}")
    higher = double.mean > base.mean if layers == 2 else round(base.mean - double.mean, 2) <= SIMILAR
    sooner = round(base.time / double.time, 2)
    shown = "; ".join(f"d = {w}: {row.mean:.2f} in {duration(row.time)}" for w, row in ((2 * d, double), (d, base)))
    return Claim(text, higher and sooner >= SOONER, f"{shown}; {sooner:.2f}x", [base, double])


def _rises_with_width(m: int, rows: Rows) -> Claim:
    """Larger "hidden dimensions yields further performance improvements"."""
    text = f"with m = {m}, F1 rises with the width (a fall of {TIE:g} points counts as none)"
    scores = {d: row.mean for (parts, d), row in sorted(rows.items()) if parts == m}
    if len(scores) < 2:
        return Claim(text, None, "fewer than two widths fit")
    values = list(scores.values())
    falls = [round(before - after, 2) for before, after in itertools.pairwise(values)]
    rises = max(falls) <= TIE and values[-1] > values[0]
    return Claim(text, rises, ", ".join(f"d = {d}: {score:.2f}" for d, score in scores.items()))
