"""What runs with different m and stores of Θ would take, and which of them fit."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import psutil
import torch

from gistgnn.planning.ledger import DISK
from gistgnn.planning.rates import Rates, measure
from gistgnn.planning.rehearsal import Found, rehearse
from gistgnn.planning.shapes import Shapes, possible
from gistgnn.planning.sizes import GraphSizes
from gistgnn.runs.config import THETA, RunConfig
from gistgnn.utils.process_memory import available_bytes

SUB_GCNS = (1, 2, 4, 8, 16)
_PLACES = {"memory": "memory", "host": "the host's memory", "disk": "files"}
_LACKING = {"cpu": "memory", "cuda": "GPU memory", DISK: "room on the disk"}
_TOUCHED = 40 * 2**20  # bytes of torch's code that the first steps bring into memory


@dataclass(frozen=True)
class Resources:
    """What a run may take, in bytes.

    Attributes:
        host: memory of the process, what it holds already included.
        gpu: memory of the GPU where the run is on one, or None.
        disk: room where the run's files go, what the Θ of a run that goes on holds already included.
        base: what the process holds already.
    """

    host: int
    gpu: int | None
    disk: int
    base: int

    @classmethod
    def here(cls, device: str, out: Path | None = None, memory: int | None = None) -> Resources:
        """What this process can have now.

        Args:
            device: of the run.
            out: the run's directory, which need not exist; None: this one.
            memory: bytes that take the place of what is available where the model runs.
        """
        where = torch.device(device)
        torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))])  # torch loads much of its code at the first one
        base = psutil.Process().memory_info().rss + _TOUCHED
        host, gpu = available_bytes(torch.device("cpu")) + base, None
        if where.type == "cuda":
            gpu = memory or available_bytes(where)
        else:
            host = memory or host
        place = (out or Path()).absolute()
        held = sum(file.stat().st_size for file in (place / THETA).rglob("*") if file.is_file())  # is gone on with
        place = next(folder for folder in (place, *place.parents) if folder.exists())
        return cls(host, gpu, shutil.disk_usage(place).free + held, base)

    @property
    def limits(self) -> dict[str, int]:
        """By place."""
        return {"cpu": self.host, DISK: self.disk} | ({} if self.gpu is None else {"cuda": self.gpu})


@dataclass(frozen=True)
class Seconds:
    """About the time of parts of a run, in seconds.

    Attributes:
        step: of one sub-GCN (of all at once, fused).
        round: ζ steps of every sub-GCN, their slices taken and put.
        epoch: the run's training, divided by its epochs.
        evaluation: of the whole graph.
    """

    step: float
    round: float
    epoch: float
    evaluation: float


@dataclass(frozen=True)
class Option:
    """A run with one m and one store, in bytes where nothing else is said.

    Attributes:
        sub_gcns: m.
        store: where Θ lies, "memory" or "disk".
        parameters: of the largest sub-GCN, a number.
        slice: the largest sub-GCN's parameters and buffers.
        training: the same with gradients and the optimiser's state.
        activations: what a step takes beyond that (of all sub-GCNs at once, fused).
        evaluation: what an evaluation takes beyond what is there.
        method: how it is evaluated.
        moved: from and to Θ in a round, by the sub-GCN that moves most.
        moved_by_all: by all sub-GCNs.
        data_parallel: what m processes that train all of Θ together send in as many steps: 2 (m - 1) Θ for a step.
        peaks: the most that is held in each place ("cpu", "cuda", "disk").
        phase: in which of the run's phases that is, where the model runs.
        lacking: the places that have too little.
        seconds: about the time it takes, or None.
    """

    sub_gcns: int
    store: str
    parameters: int
    slice: int
    training: int
    activations: int
    evaluation: int
    method: str
    moved: int
    moved_by_all: int
    data_parallel: int
    peaks: dict[str, int]
    phase: str
    lacking: tuple[str, ...]
    seconds: Seconds | None = None

    @property
    def fits(self) -> bool:
        """Whether there is enough of everything."""
        return not self.lacking


@dataclass(frozen=True)
class Plan:
    """Runs with several m and stores of Θ.

    Attributes:
        graph: its sizes.
        batch: those of a step's batch.
        parameters: of the full model.
        theta: bytes of Θ.
        resources: what there is.
        options: for every store, every m.
    """

    graph: GraphSizes
    batch: GraphSizes
    parameters: int
    theta: int
    resources: Resources
    options: tuple[Option, ...]

    @property
    def choice(self) -> Option | None:
        """The smallest m that fits with Θ in memory, else with Θ in files; None where nothing fits."""
        fitting = [option for option in self.options if option.fits]
        return min(fitting, key=lambda option: (option.store != "memory", option.sub_gcns), default=None)

    @property
    def advice(self) -> str:
        """What to choose, in words."""
        chosen = self.choice
        if chosen is None:
            least = min(self.options, key=lambda option: max(option.peaks.values()))
            return (
                f"nothing fits: the least is m = {least.sub_gcns} with the parameters in "
                f"{_PLACES[least.store]}, and it lacks {' and '.join(_LACKING[place] for place in least.lacking)}; "
                "make --hidden smaller, or train by --sampler clusters"
            )
        text = f"choose m = {chosen.sub_gcns} with the parameters in {_PLACES[chosen.store]} (--store {chosen.store})"
        smallest = min(option.sub_gcns for option in self.options)
        why = "it is the smallest m that was asked for" if chosen.sub_gcns == smallest else "no smaller m fits"
        if chosen.store != self.options[0].store:
            why = f"no m fits with the parameters in {_PLACES[self.options[0].store]}"
        return f"{text}: {why}"

    def as_dict(self) -> dict[str, Any]:
        """What `gistgnn plan --json` prints."""
        options = [{**asdict(option), "fits": option.fits} for option in self.options]
        chosen = self.choice and {"sub_gcns": self.choice.sub_gcns, "store": self.choice.store}
        return {**asdict(self), "options": options, "choice": chosen, "advice": self.advice}


def make_plan(
    config: RunConfig,
    sizes: GraphSizes,
    resources: Resources,
    sub_gcns: Sequence[int] | None = None,
    stores: Sequence[str] = ("memory", "host", "disk"),
    *,
    timed: bool = True,
) -> Plan:
    """Say what a run would take for several m and stores of Θ.

    Args:
        config: the run; its own m is not looked at.
        sizes: of its graph.
        resources: what there is.
        sub_gcns: every m; None: those of `SUB_GCNS` that the widths allow.
        stores: of `STORES`.
        timed: measure the machine, for about a second.

    Raises:
        InputError: a setting or an m out of range, or memory that is too little for any evaluation layer by layer.
    """
    every = sub_gcns or possible(config, sizes, SUB_GCNS)
    if not every:
        Shapes(replace(config, sub_gcns=1), sizes)  # says why
    runs = [(replace(config, sub_gcns=m), store) for store in stores for m in every]
    found = [rehearse(each, sizes, store, resources.base, resources.limits) for each, store in runs]
    rates = None
    if timed:
        rates = measure([work for each in found for work in (each.step, each.scoring)], torch.device(config.device))
    options = tuple(
        _option(each, store, result, resources, rates) for (each, store), result in zip(runs, found, strict=True)
    )
    seen = sizes.training() if config.inductive else sizes
    expected = seen.expected(config.sampler, config.model.layers)
    return Plan(sizes, seen.batch(expected), found[0].full, found[0].theta, resources, options)


def said(size: int) -> str:
    """Bytes in words."""
    unit, name = next(((2**k, name) for k, name in ((30, "GiB"), (20, "MiB")) if size >= 2**k), (2**10, "KiB"))
    return f"{size / unit:.3g} {name}" if size else "0"


def _option(config: RunConfig, store: str, found: Found, resources: Resources, rates: Rates | None) -> Option:
    place, limits = torch.device(config.device).type, resources.limits
    peaks = {name: found.peak(name) for name in limits}
    training, m = config.training, config.sub_gcns
    moved = [2 * size + 2 * moments for size, moments in zip(found.slices, found.carried, strict=True)]
    return Option(
        sub_gcns=m,
        store=store,
        parameters=max(found.parameters),
        slice=max(found.slices),
        training=found.training,
        activations=found.activations,
        evaluation=found.evaluation,
        method=found.method,
        moved=max(moved),
        moved_by_all=sum(moved),
        data_parallel=2 * (m - 1) * found.theta * training.local_steps,
        peaks=peaks,
        phase=max(found.phases, key=lambda phase: found.phases[phase].get(place, 0)),
        lacking=tuple(name for name, limit in limits.items() if peaks[name] > limit),
        seconds=_seconds(config, found, sum(moved), rates) if rates else None,
    )


def _seconds(config: RunConfig, found: Found, moved: int, rates: Rates) -> Seconds:
    training, m = config.training, config.sub_gcns
    steps = training.steps(found.steps_per_epoch, m)
    step, in_round = rates.seconds(found.step), min(training.local_steps, steps)
    every = step if found.fused else m * step
    exchange = 2 * moved / rates.copied  # read and written
    return Seconds(
        step=step,
        round=in_round * every + exchange,
        epoch=(steps * every + steps / in_round * exchange) / training.epochs,
        evaluation=rates.seconds(found.scoring),
    )
