"""Plans a run for several m and stores of Θ: what each needs, and which of them fit."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import psutil
import torch

from gistgnn.errors import InputError
from gistgnn.graphs.sizes import GraphSizes
from gistgnn.partition import Partition
from gistgnn.planning.ledger import DISK
from gistgnn.planning.rates import Rates, measure
from gistgnn.planning.rehearsal import Rehearsal, rehearse
from gistgnn.runs.config import THETA, RunConfig
from gistgnn.theta.registry import STORES
from gistgnn.utils.process_memory import available_bytes

PLANNED = [name for name, place in STORES.items() if place.alone]  # the stores that one process can use
_SUB_GCNS = (1, 2, 4, 8, 16)
_PLACES = {"device": "memory", "host": "the host's memory", "disk": "files"}
_LACKING = {"cpu": "memory", "cuda": "GPU memory", DISK: "room on the disk"}
_TOUCHED = 40 * 2**20  # bytes of torch's code that the first steps bring into memory


@dataclass(frozen=True)
class Resources:
    """What a run may take, in bytes."""

    host: int  # memory of the process, with what it holds already
    gpu: int | None  # memory of the run's GPU, or None where the run is on the CPU
    disk: int  # room for the run's files, with what the Θ of a resumed run holds already
    base: int  # what the process holds already

    @classmethod
    def here(cls, device: str, out: Path | None = None, memory: int | None = None) -> Resources:
        """Return what this process can have now, or ``memory`` on the run's device; ``out`` need not exist."""
        torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))])  # torch loads much of its code at the first one
        base = psutil.Process().memory_info().rss + _TOUCHED
        host, gpu = available_bytes(torch.device("cpu")) + base, None
        if torch.device(device).type == "cuda":
            gpu = memory or available_bytes(torch.device(device))
        else:
            host = memory or host
        folder = (out or Path()).absolute()
        held = sum(file.stat().st_size for file in (folder / THETA).rglob("*") if file.is_file())
        exists = next(path for path in (folder, *folder.parents) if path.exists())
        return cls(host, gpu, shutil.disk_usage(exists).free + held, base)

    @property
    def limits(self) -> dict[str, int]:
        """The bytes of every place."""
        return {"cpu": self.host, DISK: self.disk} | ({} if self.gpu is None else {"cuda": self.gpu})


@dataclass(frozen=True)
class Option:
    """What a run with one m and one store takes; sizes in bytes."""

    sub_gcns: int
    store: str
    parameters: int  # of the largest sub-GCN, a number
    slice: int  # the largest sub-GCN's parameters and buffers
    training: int  # the same with gradients and the optimiser's state
    activations: int  # what a step takes beyond what it leaves (of all sub-GCNs at once, where they are fused)
    evaluation: int  # what an evaluation takes beyond what is there
    method: str  # how the model is evaluated: "whole", "layers" or "parts"
    moved: int  # from and to Θ in a round, by the sub-GCN that moves most
    moved_by_all: int  # the same, by all sub-GCNs
    data_parallel: int  # what m processes that train all of Θ send in as many steps: 2 (m - 1) |Θ| for a step
    peaks: dict[str, int]  # the most that each place ("cpu", "cuda", "disk") holds
    phase: str  # the phase in which the device holds most
    lacking: tuple[str, ...]  # the places that have too little
    seconds: dict[str, float] | None = None  # of a step, a round, an epoch, an evaluation

    @property
    def fits(self) -> bool:
        """Whether every place has enough."""
        return not self.lacking


@dataclass(frozen=True)
class Plan:
    """A run for several m and stores."""

    graph: GraphSizes
    batch: GraphSizes  # the sizes of a step's batch
    parameters: int  # of the full model, a number
    theta: int  # bytes of Θ
    resources: Resources
    options: tuple[Option, ...]  # every m in every store

    @property
    def choice(self) -> Option | None:
        """The smallest m that fits with Θ in memory, else with Θ elsewhere; None where nothing fits."""
        fitting = [option for option in self.options if option.fits]
        return min(fitting, key=lambda option: (option.store != "memory", option.sub_gcns), default=None)

    @property
    def advice(self) -> str:
        """A sentence that says what to choose."""
        chosen, first = self.choice, self.options[0].store
        if chosen is None:
            least = min(self.options, key=lambda option: max(option.peaks.values()))
            return (
                f"nothing fits: the least is m = {least.sub_gcns} with the parameters in "
                f"{_PLACES[STORES[least.store].holds]}, and it lacks "
                f"{' and '.join(_LACKING[place] for place in least.lacking)}; make --hidden smaller, or "
                "train by --sampler clusters"
            )
        why = "no smaller m fits"
        if chosen.store != first:
            why = f"no m fits with the parameters in {_PLACES[STORES[first].holds]}"
        elif chosen.sub_gcns == min(option.sub_gcns for option in self.options):
            why = "it is the smallest m that was asked for"
        where = f"{_PLACES[STORES[chosen.store].holds]} (--store {chosen.store})"
        return f"choose m = {chosen.sub_gcns} with the parameters in {where}: {why}"

    def as_dict(self) -> dict[str, Any]:
        """Return what `gistgnn plan --json` prints."""
        options = [{**asdict(option), "fits": option.fits} for option in self.options]
        chosen = self.choice and {"sub_gcns": self.choice.sub_gcns, "store": self.choice.store}
        return {**asdict(self), "options": options, "choice": chosen, "advice": self.advice}


def make_plan(
    config: RunConfig,
    sizes: GraphSizes,
    resources: Resources,
    sub_gcns: Sequence[int] | None = None,
    stores: Sequence[str] = PLANNED,
    *,
    timed: bool = True,
) -> Plan:
    """Plan a run for several m and stores of Θ.

    Args:
        config: the run; its own m is ignored.
        sizes: of its graph.
        resources: what there is.
        sub_gcns: every m; None: 1, 2, 4, 8 and 16, as far as the widths allow.
        stores: of `PLANNED`.
        timed: measure the machine, for about a second.

    Raises:
        InputError: a setting or an m out of range, or too little memory for any evaluation layer by layer.
    """
    every = sub_gcns or possible_sub_gcns(config, sizes, _SUB_GCNS) or [1]
    runs = [(replace(config, sub_gcns=m), store) for store in stores for m in every]
    found = [rehearse(run, sizes, store, resources.base, resources.limits) for run, store in runs]
    rates = None
    if timed:
        rates = measure([work for run in found for work in (run.step, run.scoring)], torch.device(config.device))
    options = tuple(_option(*run, result, resources, rates) for run, result in zip(runs, found, strict=True))
    return Plan(sizes, found[0].batch, found[0].full, found[0].theta, resources, options)


def possible_sub_gcns(config: RunConfig, sizes: GraphSizes, candidates: Sequence[int]) -> list[int]:
    """Return those of some m into which the run's widths can be split."""
    widths = enumerate((sizes.features, *config.model.hidden))
    split, possible = [width for dim, width in widths if dim in config.partitioned_dims], []
    for m in candidates:
        with suppress(InputError):
            Partition(split, m, kind=config.partition)
            possible.append(m)
    return possible


def _option(config: RunConfig, store: str, found: Rehearsal, resources: Resources, rates: Rates | None) -> Option:
    device, limits, m = torch.device(config.device).type, resources.limits, config.sub_gcns
    peaks = {place: found.peak(place) for place in limits}
    moved = [2 * (size + moments) for size, moments in zip(found.slices, found.carried, strict=True)]
    return Option(
        sub_gcns=m,
        store=store,
        parameters=max(found.parameters),
        slice=max(found.slices),
        training=found.training,
        activations=found.step.top - found.step.after,
        evaluation=found.scoring.top - found.scoring.before,
        method=found.method,
        moved=max(moved),
        moved_by_all=sum(moved),
        data_parallel=2 * (m - 1) * found.theta * config.training.local_steps,
        peaks=peaks,
        phase=max(found.phases, key=lambda phase: found.phases[phase].get(device, 0)),
        lacking=tuple(place for place, limit in limits.items() if peaks[place] > limit),
        seconds=_seconds(config, found, sum(moved), rates) if rates else None,
    )


def _seconds(config: RunConfig, found: Rehearsal, moved: int, rates: Rates) -> dict[str, float]:
    """Estimate the time of a step (fused: of all sub-GCNs), a round, an epoch and an evaluation."""
    training, m = config.training, config.sub_gcns
    steps = training.steps(found.steps_per_epoch, m)
    step, in_round = rates.seconds(found.step), min(training.local_steps, steps)
    every = step if found.fused else m * step
    exchange = 2 * moved / rates.copied  # read and written
    epoch = (steps * every + steps / in_round * exchange) / training.epochs
    round_ = in_round * every + exchange
    return {"step": step, "round": round_, "epoch": epoch, "evaluation": rates.seconds(found.scoring)}
