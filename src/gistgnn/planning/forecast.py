"""Plans a run for several m, or for its phases, and several stores of Θ: what each needs, and which of them fit."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

import psutil
import torch

from gistgnn.errors import InputError
from gistgnn.graphs.sizes import GraphSizes
from gistgnn.partition import Partition
from gistgnn.planning.ledger import DISK
from gistgnn.planning.option import Option, option_of
from gistgnn.planning.phases import PhaseOption, Total, phase_options
from gistgnn.planning.rates import measure
from gistgnn.planning.rehearsal import rehearse
from gistgnn.runs.config import THETA, RunConfig
from gistgnn.theta.registry import STORES
from gistgnn.utils.formats import rough_duration, size
from gistgnn.utils.process_memory import Kept, available_bytes, held_bytes

PLANNED = [name for name, place in STORES.items() if place.alone]  # the stores that one process can use
_ROWS = ("options", "totals")
_SUB_GCNS = (1, 2, 4, 8, 16)
_PLACES = {"device": "memory", "host": "the host's memory", "disk": "files"}
_LACKING = {"cpu": "memory", "cuda": "GPU memory", DISK: "room on the disk"}
_CLEARLY = 1.1  # times as slow: what is closer is within the error of the estimate
_TOUCHED = 40 * 2**20  # bytes of torch's code that the first steps bring into memory
_LOADED = 80 * 2**20  # bytes that the modules of Python take that are loaded later


@dataclass(frozen=True)
class Resources:
    """What a run may take, in bytes."""

    host: int  # memory of the process, with what it holds already
    gpu: int | None  # memory of the run's GPU, or None where the run is on the CPU
    disk: int  # room for the run's files, with what the Θ of a resumed run holds already
    base: int  # what the process holds already
    limited: bool = False  # ``host`` is a limit for this process

    @classmethod
    def here(cls, device: str, out: Path | None = None, memory: int | None = None) -> Resources:
        """Return what this process can have now; ``memory``, if given, takes the place of what the device has free.

        ``out`` is the run's folder, which need not exist; None: this one. Under a limit of the host's memory the pages
        of mapped files do not count, as in `gistgnn.utils.process_memory.limit_memory`.
        """
        limited = memory is not None and torch.device(device).type == "cpu"
        base = held_bytes() + _LOADED if limited else psutil.Process().memory_info().rss + _TOUCHED
        host, gpu = available_bytes(torch.device("cpu")) + base, None
        if torch.device(device).type == "cuda":
            gpu = memory or available_bytes(torch.device(device))
        else:
            host = memory or host
        folder = (out or Path()).absolute()
        held = sum(file.stat().st_size for file in (folder / THETA).rglob("*") if file.is_file())
        exists = next(path for path in (folder, *folder.parents) if path.exists())
        return cls(host, gpu, shutil.disk_usage(exists).free + held, base, limited)

    @property
    def kept(self) -> Kept:
        """What the process keeps of freed memory."""
        return Kept.under(self.host if self.limited else None)

    @property
    def limits(self) -> dict[str, int]:
        """The bytes of every place."""
        return {"cpu": self.host, DISK: self.disk} | ({} if self.gpu is None else {"cuda": self.gpu})


@dataclass(frozen=True)
class _Planned:
    graph: GraphSizes
    batch: GraphSizes  # the sizes of a step's batch
    parameters: int  # of the full model, a number
    theta: int  # bytes of Θ
    resources: Resources
    disk_rate: float | None  # bytes that the disk of the graph's folder gives in a second, if it was measured


@dataclass(frozen=True)
class Plan(_Planned):
    """A run for several m and stores."""

    options: tuple[Option, ...]  # every m in every store

    @property
    def choice(self) -> Option | None:
        """The fastest m that fits with Θ in memory, else with Θ elsewhere; None where nothing fits.

        A larger m has to be clearly faster than a smaller one. Without times it is the smallest m.
        """
        fitting = sorted(self._fitting, key=lambda option: option.sub_gcns)
        times = [option.seconds["total"] for option in fitting if option.seconds]
        if len(times) < len(fitting):
            return next(iter(fitting), None)
        return next((each for each, time in zip(fitting, times, strict=True) if time <= _CLEARLY * min(times)), None)

    @property
    def _fitting(self) -> list[Option]:
        """What fits with Θ in memory, or, if nothing does, elsewhere."""
        fitting = [option for option in self.options if option.fits]
        return [option for option in fitting if option.store == "memory"] or fitting

    @property
    def advice(self) -> str:
        """A sentence that says what to choose."""
        chosen, first = self.choice, self.options[0].store
        if chosen is None:
            least = min(self.options, key=lambda option: max(option.peaks.values()))
            return (
                f"nothing fits: the least is m = {least.sub_gcns} with the parameters in "
                f"{_PLACES[STORES[least.store].holds]}, and it lacks {_lacks(least)}; {_smaller(self.graph)}"
            )
        why = "no smaller m fits"
        if chosen.store != first:
            why = f"no m fits with the parameters in {_PLACES[STORES[first].holds]}"
        elif chosen.sub_gcns == min(option.sub_gcns for option in self.options):
            why = "it is the smallest m that was asked for" + ", and no other is clearly faster" * bool(chosen.seconds)
        elif other := self._slower(chosen):
            why = f"m = {other.sub_gcns} takes {_costs(other)}"
        return f"choose m = {chosen.sub_gcns} with the parameters in {_where(chosen.store)}, {_costs(chosen)}: {why}"

    def _slower(self, chosen: Option) -> Option | None:
        """The smallest m that fits where the chosen one does, if it is another."""
        least = min(self._fitting, key=lambda option: option.sub_gcns)
        return least if least.sub_gcns < chosen.sub_gcns else None

    def as_dict(self) -> dict[str, Any]:
        """Return what `gistgnn plan --json` prints."""
        options = [{**asdict(option), "fits": option.fits} for option in self.options]
        chosen = self.choice and {"sub_gcns": self.choice.sub_gcns, "store": self.choice.store}
        return {**asdict(self), "options": options, "choice": chosen, "advice": self.advice}


@dataclass(frozen=True)
class PhasedPlan(_Planned):
    """A run with phases for several stores."""

    options: tuple[PhaseOption, ...]  # every phase in every store
    totals: tuple[Total, ...]  # of every store

    @property
    def choice(self) -> Total | None:
        """The first store in which every phase fits."""
        return next((total for total in self.totals if total.fits), None)

    @property
    def advice(self) -> str:
        """A sentence that says what to choose."""
        if self.choice:
            return f"every phase fits with the parameters in {_where(self.choice.store)}"
        least = min(self.totals, key=lambda total: max(total.peaks.values())).store
        short = next(option for option in self.options if option.store == least and not option.fits)
        return (
            f"nothing fits: with the parameters in {_PLACES[STORES[least].holds]}, {short.name} lacks {_lacks(short)}; "
            f"give it more sub-GCNs, or {_smaller(self.graph)}"
        )

    def as_dict(self) -> dict[str, Any]:
        """Return what `gistgnn plan --json` prints."""
        rows = {name: [{**asdict(each), "fits": each.fits} for each in getattr(self, name)] for name in _ROWS}
        return {**asdict(self), **rows, "choice": self.choice and {"store": self.choice.store}, "advice": self.advice}


def make_plan(
    config: RunConfig,
    sizes: GraphSizes,
    resources: Resources,
    sub_gcns: Sequence[int] | None = None,
    stores: Sequence[str] = PLANNED,
    *,
    timed: bool = True,
) -> Plan | PhasedPlan:
    """Plan a run for several m and stores of Θ, or its phases for several stores.

    Args:
        config: the run; its own m is ignored.
        sizes: of its graph.
        resources: what there is.
        sub_gcns: every m; None: 1, 2, 4, 8 and 16, as far as the widths allow. Phases have their own.
        stores: of `PLANNED`.
        timed: measure the machine, for about a second.

    Raises:
        InputError: a setting or an m out of range, or too little memory for any evaluation layer by layer.
    """
    phased, limits = bool(config.training.phases), resources.limits
    every = [config.sub_gcns] if phased else sub_gcns or possible_sub_gcns(config, sizes, _SUB_GCNS) or [1]
    runs = [(store, m) for store in stores for m in every]
    there = resources.base, limits, resources.kept
    rehearsed = [rehearse(replace(config, sub_gcns=m), sizes, store, *there) for store, m in runs]
    rates = None
    if timed:
        works = [work for run in rehearsed for found in run for work in (found.step, found.scoring)]
        rates = measure(works, torch.device(config.device), features_of(sizes))
    first = rehearsed[0][0]
    shared = sizes, first.batch, first.full, first.theta, resources, rates.disk if rates else None
    planned = [(store, found) for (store, _), found in zip(runs, rehearsed, strict=True)]
    if phased:
        parts = [phase_options(store, found, limits, rates) for store, found in planned]
        return PhasedPlan(*shared, tuple(chain(*parts)), tuple(map(Total.of, parts)))
    return Plan(*shared, tuple(option_of(store, found, limits, rates) for store, [found] in planned))


def features_of(sizes: GraphSizes) -> Path | None:
    """Return the file of a graph's features that runs read; None: the graph is in memory."""
    return Path(sizes.stored.folder) / "x.npy" if sizes.stored else None


def _smaller(graph: GraphSizes) -> str:
    """Say how a run takes less."""
    batches = ", and with a small --clusters-per-batch" if graph.stored else ""
    return f"make --hidden smaller, or train by --sampler clusters{batches}"


def _costs(option: Option) -> str:
    """Return the time of a run and the memory that it takes on its device."""
    memory = size(max(taken for place, taken in option.peaks.items() if place != DISK))
    return f"about {rough_duration(option.seconds['total'])} and {memory}" if option.seconds else memory


def _where(store: str) -> str:
    return f"{_PLACES[STORES[store].holds]} (--store {store})"


def _lacks(option: Option) -> str:
    return " and ".join(_LACKING[place] for place in option.lacking)


def possible_sub_gcns(config: RunConfig, sizes: GraphSizes, candidates: Sequence[int]) -> list[int]:
    """Return those of some m into which the run's widths can be split."""
    widths = enumerate((sizes.features, *config.model.hidden))
    split, possible = [width for dim, width in widths if dim in config.partitioned_dims], []
    for m in candidates:
        with suppress(InputError):
            Partition(split, m, kind=config.partition)
            possible.append(m)
    return possible
