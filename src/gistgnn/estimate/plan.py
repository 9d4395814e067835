"""Plans a run for several m and several stores of Θ."""

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import product
from typing import Any

from gistgnn.defaults import chosen_sub_gcns
from gistgnn.errors import InputError
from gistgnn.estimate.memory import Memory
from gistgnn.estimate.resources import DISK, Resources
from gistgnn.estimate.shapes import RunShape
from gistgnn.estimate.time import Speed, measure_speed
from gistgnn.fit.trials import NARROWEST
from gistgnn.graphs.named import GraphSizes
from gistgnn.runs.config import RunConfig
from gistgnn.sampling import describe
from gistgnn.theta.registry import STORES
from gistgnn.utils.formats import rough_duration, size

PLANNED = list(STORES)
PLACES = {"memory": "memory", "host": "the host's memory", "disk": "files"}
SUB_GCNS = (1, 2, 4, 8, 16)  # and 32, where a run does not fit
LACKING = {"cpu": "memory", "cuda": "GPU memory", DISK: "room on the disk"}
_CLEARLY = 1.1  # times as slow: less is within the error of the estimate
# Also a note of a run of GIST.
SELDOM_BEST = "the full model fits in memory, where GIST seldom scores best in a given time"


@dataclass(frozen=True, eq=False)
class Option:
    """A run with one m and one store.

    Args:
        memory: what it takes; `memory.run` has its sizes.
        seconds: of a step, a round, an epoch, an evaluation, and the total of the run. Defaults to
            no estimate.
    """

    memory: Memory
    seconds: dict[str, float] | None = None

    @property
    def sub_gcns(self) -> int:
        """The number of sub-GCNs, m."""
        return len(self.memory.run.subs)

    @property
    def store(self) -> str:
        """Where Θ lies."""
        return self.memory.store

    @property
    def fits(self) -> bool:
        """Every place has enough."""
        return self.memory.fits

    @property
    def peak(self) -> int:
        """The most bytes that the memory of the device or of the host holds."""
        return max(peak for place, peak in self.memory.peaks.items() if place != DISK)

    @property
    def machine(self) -> int:
        """The bytes that the ranks of one machine hold of its memory together."""
        return self.memory.resources.local * self.memory.peaks["cpu"]

    @property
    def trained(self) -> int:
        """The bytes of the first sub-GCN with gradients and the optimiser's state."""
        run = self.memory.run
        return run.subs[0].slice + 4 * (1 + run.moments) * run.subs[0].parameters

    @property
    def total(self) -> float:
        """The seconds of the whole run, or 0 where they are not estimated."""
        return self.seconds["total"] if self.seconds else 0.0

    def as_dict(self) -> dict[str, Any]:
        """Return the option as JSON holds it; sizes in bytes."""
        memory = self.memory
        run = memory.run
        schedule = run.schedule
        moved = run.moved
        return {
            "sub_gcns": self.sub_gcns,
            "store": self.store,
            "peaks": memory.peaks,
            "lacking": memory.lacking,
            "fits": self.fits,
            "stage": memory.stage,
            "machine": self.machine,
            "epochs": run.config.training.all_epochs,
            "rounds": schedule.rounds,
            "local_steps": schedule.local_steps,
            "evaluations": run.evaluations,
            "method": memory.scoring.method,
            "parameters": max(sub.parameters for sub in run.subs),
            "slice": run.largest_slice,
            "training": self.trained,
            "activations": memory.activations,
            "evaluation": memory.scoring.memory,
            "moved": max(moved),
            "moved_by_all": sum(moved),
            "data_parallel": 2 * (self.sub_gcns - 1) * run.theta * schedule.local_steps,
            "seconds": self.seconds,
        }


@dataclass(frozen=True)
class Plan:
    """A run for several m and several stores.

    Attributes:
        graph: the sizes of the graph.
        batch: the sizes of a step's batch.
        parameters: how many numbers the full model has.
        theta: bytes of Θ in the first store.
        resources: what the run may take.
        options: every m in every store.
        sampler: the settings of the sampler, or None where every step sees the whole graph.
        narrow: ordinary training of a model of widths `NARROWEST`, to try before a wider one; None
            where the model is not wider.
        suited: the m that a run has by default, which follows from the widths.
    """

    graph: GraphSizes
    batch: GraphSizes
    parameters: int
    theta: int
    resources: Resources
    options: list[Option]
    sampler: dict[str, Any] | None
    narrow: Option | None
    suited: int

    @property
    def choice(self) -> Option | None:
        """The option to choose of those that fit, or None where nothing fits.

        Θ is in memory if possible, and m is the nearest to the one that suits the widths.
        """
        fitting = [option for option in self.options if option.fits]
        in_memory = [option for option in fitting if option.store == "memory"]
        return min(in_memory or fitting, key=self._distance, default=None)

    def _distance(self, option: Option) -> float:
        """Return how far an option's m is from the default."""
        return abs(math.log2(option.sub_gcns / self.suited))

    @property
    def advice(self) -> str:
        """Which m and store to choose, and why; or what is lacking."""
        return self._nothing_fits() if self.choice is None else self._reason(self.choice)

    @property
    def instead(self) -> str | None:
        """What usually scores higher in the same time, where the full model fits in memory.

        It is None where the choice is not to split the model, where the full model does not fit,
        and where m = 1 is not planned.
        """
        full_model_fits = any(option.fits for option in self.options if _is_whole(option))
        if self.choice is None or self.choice.sub_gcns == 1 or not full_model_fits:
            return None
        return f"{SELDOM_BEST}: --budget TIME usually scores higher, or --method parts on workers"

    def _nothing_fits(self) -> str:
        least = min(self.options, key=lambda option: max(option.memory.peaks.values()))
        lacking = " and ".join(LACKING[place] for place in least.memory.lacking)
        batches = ", and with a small --clusters-per-batch" if self.graph.stored else ""
        where = PLACES[least.store]
        message = (
            f"nothing fits: with the parameters in {where}, m = {least.sub_gcns} lacks {lacking}"
        )
        return f"{message}; make --hidden smaller, or train by --sampler clusters{batches}"

    def _reason(self, chosen: Option) -> str:
        why = "it is the default for such widths"
        if chosen.sub_gcns != self.suited:
            why = f"of the m that fit, it is nearest to the default, m = {self.suited}"
        first = self.options[0].store
        if chosen.store != first:
            why = f"no m fits with the parameters in {PLACES[first]}"
        in_same_store = [
            option for option in self.options if option.fits and option.store == chosen.store
        ]
        fastest = min(in_same_store, key=lambda option: option.total)
        if chosen.total > _CLEARLY * fastest.total:
            time = rough_duration(fastest.total)
            why += f"; m = {fastest.sub_gcns} takes {time}, and tends to score lower"
        cost = size(chosen.peak)
        if chosen.total:
            cost = f"about {rough_duration(chosen.total)} and {cost}"
        where = f"{PLACES[chosen.store]} (--store {chosen.store})"
        return f"choose m = {chosen.sub_gcns} with the parameters in {where}, {cost}: {why}"

    def as_dict(self) -> dict[str, Any]:
        """Return the plan as JSON holds it."""
        chosen = self.choice
        return {
            "graph": self.graph.as_dict(),
            "batch": self.batch.as_dict(),
            "parameters": self.parameters,
            "theta": self.theta,
            "resources": asdict(self.resources),
            "options": [option.as_dict() for option in self.options],
            "sampler": self.sampler,
            "narrow": None if self.narrow is None else self.narrow.as_dict(),
            "suited": self.suited,
            "choice": None
            if chosen is None
            else {"sub_gcns": chosen.sub_gcns, "store": chosen.store},
            "advice": self.advice,
            "instead": self.instead,
        }


def make_plan(
    config: RunConfig | Callable[[int], RunConfig],
    sizes: GraphSizes,
    resources: Resources,
    sub_gcns: Sequence[int] | None = None,
    stores: Sequence[str] = PLANNED,
    *,
    timed: bool = True,
) -> Plan:
    """Plan a run for several m and several stores of Θ.

    Args:
        config: the run, whose m is ignored; or a function that returns the run with m sub-GCNs, as
            its epochs and its norm may follow from m.
        sizes: of the graph.
        resources: what the run may take.
        sub_gcns: every m. Defaults to 1, 2, 4, 8 and 16, as far as widths and ranks allow.
        stores: where Θ lies.
        timed: train a few rounds of every m, for the times.
    """
    config_of = partial(_with_sub_gcns, config) if isinstance(config, RunConfig) else config
    runs = _shapes(config_of, sizes, resources.ranks, sub_gcns)
    first = runs[0]
    # The speed depends on the model and on m, not on where Θ lies.
    speeds: dict[RunShape, Speed] | None = {} if timed else None
    options = [
        _option(Memory(run, store, resources), speeds) for store, run in product(stores, runs)
    ]
    narrow = None
    hidden = first.config.model.hidden
    if max(hidden) > NARROWEST:
        run = config_of(1)
        model = replace(run.model, hidden=tuple(min(width, NARROWEST) for width in hidden))
        narrow = _option(
            Memory(RunShape(replace(run, model=model), sizes), stores[0], resources), speeds
        )
    is_halved = stores[0] == DISK and first.config.store_precision == "bf16"
    split = first.config.partitioned_dims
    split_widths = [width for dim, width in enumerate(hidden, 1) if dim in split]
    return Plan(
        graph=sizes,
        batch=first.expected.sizes(first.seen),
        parameters=first.full,
        theta=first.theta // 2 if is_halved else first.theta,
        resources=resources,
        options=options,
        sampler=describe(first.config.sampler),
        narrow=narrow,
        suited=chosen_sub_gcns(max(split_widths, default=1)),
    )


def _option(memory: Memory, speeds: dict[RunShape, Speed] | None) -> Option:
    """Return a run with its seconds.

    ``speeds`` are those that are measured already, to which this run's is added. The run is not
    timed where that is None.
    """
    if speeds is None:
        return Option(memory)
    if memory.run not in speeds:
        speeds[memory.run] = measure_speed(memory)
    return Option(memory, speeds[memory.run].seconds(memory))


def _is_whole(option: Option) -> bool:
    """Tell whether an option trains the full model in memory."""
    return option.sub_gcns == 1 and option.store == "memory"


def _with_sub_gcns(config: RunConfig, m: int) -> RunConfig:
    return replace(config, sub_gcns=m)


def _shapes(
    config_of: Callable[[int], RunConfig],
    sizes: GraphSizes,
    ranks: int,
    sub_gcns: Sequence[int] | None,
) -> list[RunShape]:
    """Return the run for every m; without a list of them, for every usual m that is possible."""
    usual = sorted(m for m in {*SUB_GCNS, ranks} if m >= ranks)
    runs: list[RunShape] = []
    for m in sub_gcns or usual:
        try:
            runs.append(RunShape(config_of(m), sizes, runs[0] if runs else None))
        except InputError:
            if sub_gcns or not runs:
                raise
    return runs
