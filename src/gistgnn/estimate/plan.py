"""Plans a run for several m and several stores of Θ, and refuses a run that cannot fit."""

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import product
from typing import Any

import torch

from gistgnn.defaults import chosen_sub_gcns
from gistgnn.errors import InputError, reason
from gistgnn.estimate.memory import DISK, STAGES, Memory, Resources
from gistgnn.estimate.shapes import RunShape
from gistgnn.estimate.time import Speed
from gistgnn.fit.trials import NARROWEST
from gistgnn.graphs.named import GraphSizes
from gistgnn.runs.config import RunConfig
from gistgnn.sampling import ClusterSampling, chosen_sampling, describe
from gistgnn.theta.registry import SHARES, STORES
from gistgnn.utils.formats import rough_duration, size
from gistgnn.utils.process_memory import peak_memory_bytes

PLANNED = list(STORES)
PLACES = {"memory": "memory", "host": "the host's memory", "disk": "files"}
_SUB_GCNS = (1, 2, 4, 8, 16)  # and 32, where a run does not fit
_LACKING = {"cpu": "memory", "cuda": "GPU memory", DISK: "room on the disk"}
_CLEARLY = 1.1  # times as slow: less is within the error of the estimate
_SCORED = "scored best on our graphs"


@dataclass(frozen=True, kw_only=True)
class Option:
    """What a run takes with one m and one store; sizes in bytes."""

    sub_gcns: int
    store: str
    peaks: dict[str, int]  # the most that each place ("cpu", "cuda", "disk") holds
    lacking: tuple[str, ...]  # the places that have too little
    fits: bool  # every place has enough
    stage: str  # what the run does when the device holds most, of `STAGES`
    machine: int  # what the ranks of one machine hold of its memory together
    epochs: float
    rounds: int
    local_steps: int  # ζ
    evaluations: int
    method: str  # how the model is evaluated: "whole", "layers" or "parts"
    parameters: int  # of the largest sub-GCN, a number
    slice: int  # the largest sub-GCN's parameters and buffers
    training: int  # the same with gradients and the optimiser's state
    activations: int  # what a step takes beyond what stays (of all sub-GCNs at once, where they are fused)
    evaluation: int  # what an evaluation takes beyond what stays
    moved: int  # from and to Θ in a round, by the sub-GCN that moves most
    moved_by_all: int  # the same, by all sub-GCNs
    data_parallel: int  # what m processes that train all of Θ send in as many steps: 2 (m - 1) |Θ| for a step
    seconds: dict[str, float] | None  # of a step, a round, an epoch, an evaluation, and the total of a run

    @property
    def memory(self) -> int:
        """The most that the memory of the device or of the host holds."""
        return max(taken for place, taken in self.peaks.items() if place != DISK)

    @property
    def total(self) -> float:
        """The seconds of all of it; 0: not estimated."""
        return self.seconds["total"] if self.seconds else 0.0


@dataclass(frozen=True)
class Plan:
    """A run for several m and several stores."""

    graph: GraphSizes
    batch: GraphSizes  # the sizes of a step's batch
    parameters: int  # of the full model, a number
    theta: int  # bytes of Θ in the first store
    resources: Resources
    options: list[Option]  # every m in every store
    sampler: dict[str, Any] | None  # of the run, with its settings; None: every step sees the whole graph
    narrow: Option | None  # ordinary training of a model of widths `NARROWEST`, to try before a wider one
    suited: int  # the m that scored best with such widths, which a run has by default

    @property
    def choice(self) -> Option | None:
        """What to choose of what fits; None: nothing does.

        Θ is in memory if possible, and m is the nearest to the one that suits the widths.
        """
        fitting = [option for option in self.options if option.fits]
        in_memory = [option for option in fitting if option.store == "memory"]
        return min(in_memory or fitting, key=self._distance, default=None)

    def _distance(self, option: Option) -> float:
        """Return how far an option's m is from the one that scored best."""
        return abs(math.log2(option.sub_gcns / self.suited))

    @property
    def advice(self) -> str:
        """Which m and store to choose, and why; or what is lacking."""
        return self._nothing_fits() if self.choice is None else self._reason(self.choice)

    def _nothing_fits(self) -> str:
        least = min(self.options, key=lambda option: max(option.peaks.values()))
        lacking = " and ".join(_LACKING[place] for place in least.lacking)
        batches = ", and with a small --clusters-per-batch" if self.graph.stored else ""
        where = PLACES[least.store]
        said = f"nothing fits: with the parameters in {where}, m = {least.sub_gcns} lacks {lacking}"
        return f"{said}; make --hidden smaller, or train by --sampler clusters{batches}"

    def _reason(self, chosen: Option) -> str:
        why = f"it {_SCORED}"
        if chosen.sub_gcns != self.suited:
            why = f"of the m that fit, it is nearest to m = {self.suited}, which {_SCORED}"
        first = self.options[0].store
        if chosen.store != first:
            why = f"no m fits with the parameters in {PLACES[first]}"
        others = [option for option in self.options if option.fits and option.store == chosen.store]
        fastest = min(others, key=lambda option: option.total)
        if chosen.total > _CLEARLY * fastest.total:
            time = rough_duration(fastest.total)
            why += f"; m = {fastest.sub_gcns} takes {time}, and tends to score lower"
        takes = size(chosen.memory)
        if chosen.total:
            takes = f"about {rough_duration(chosen.total)} and {takes}"
        where = f"{PLACES[chosen.store]} (--store {chosen.store})"
        return f"choose m = {chosen.sub_gcns} with the parameters in {where}, {takes}: {why}"

    def as_dict(self) -> dict[str, Any]:
        """Return the plan as JSON holds it."""
        chosen = self.choice
        choice = None if chosen is None else {"sub_gcns": chosen.sub_gcns, "store": chosen.store}
        return {**asdict(self), "choice": choice, "advice": self.advice}


def make_plan(
    config: RunConfig,
    sizes: GraphSizes,
    resources: Resources,
    sub_gcns: Sequence[int] | None = None,
    stores: Sequence[str] = PLANNED,
    config_of: Callable[[int], RunConfig] | None = None,
    *,
    timed: bool = True,
) -> Plan:
    """Plan a run for several m and several stores of Θ.

    Args:
        config: the run, whose m is ignored.
        sizes: of the graph.
        resources: what the run may take.
        sub_gcns: every m. Defaults to 1, 2, 4, 8 and 16, as far as widths and ranks allow.
        stores: where Θ lies.
        config_of: returns the run with m sub-GCNs: its epochs and its norm may follow from m. Defaults to `config` with
            this m.
        timed: train a few rounds of every m, for the times.
    """
    if config_of is None:
        config_of = partial(_with_sub_gcns, config)
    runs = _shapes(config_of, sizes, resources.ranks, sub_gcns)
    speed = Speed() if timed else None
    options = []
    for store, run in product(stores, runs):
        options.append(_option(Memory(run, store, resources), speed))
    narrow = None
    if max(config.model.hidden) > NARROWEST:
        hidden = tuple(min(width, NARROWEST) for width in config.model.hidden)
        alone = replace(config, model=replace(config.model, hidden=hidden), sub_gcns=1)
        narrow = _option(Memory(RunShape(alone, sizes), stores[0], resources), speed)
    first = runs[0]
    is_halved = stores[0] == DISK and config.store_precision == "bf16"
    split = config.partitioned_dims
    widths = [width for dim, width in enumerate(config.model.hidden, 1) if dim in split]
    return Plan(
        graph=sizes,
        batch=first.expected.sizes(first.seen),
        parameters=first.full,
        theta=first.theta // 2 if is_halved else first.theta,
        resources=resources,
        options=options,
        sampler=describe(first.config.sampler),
        narrow=narrow,
        suited=chosen_sub_gcns(max(widths, default=1)),
    )


def _with_sub_gcns(config: RunConfig, m: int) -> RunConfig:
    return replace(config, sub_gcns=m)


def _shapes(
    config_of: Callable[[int], RunConfig],
    sizes: GraphSizes,
    ranks: int,
    sub_gcns: Sequence[int] | None,
) -> list[RunShape]:
    """Return the run for every m; of the usual ones for those that are possible."""
    usual = sorted(m for m in {*_SUB_GCNS, ranks} if m >= ranks)
    runs: list[RunShape] = []
    for m in sub_gcns or usual:
        try:
            runs.append(RunShape(config_of(m), sizes, runs[0] if runs else None))
        except InputError:
            if sub_gcns or not runs:
                raise
    return runs


def _option(memory: Memory, speed: Speed | None) -> Option:
    """Return what a run takes; without a speed the seconds are left out."""
    run, subs, schedule = memory.run, memory.run.subs, memory.run.schedule
    m = len(subs)
    moved = [2 * (sub.slice + sub.carried) for sub in subs]  # read and written
    return Option(
        sub_gcns=m,
        store=memory.store,
        peaks=memory.peaks,
        lacking=memory.lacking,
        fits=not memory.lacking,
        stage=memory.stage,
        machine=memory.resources.local * memory.peaks["cpu"],
        epochs=run.config.training.all_epochs,
        rounds=schedule.rounds,
        local_steps=schedule.local_steps,
        evaluations=run.evaluations,
        method=memory.scoring.method,
        parameters=max(sub.parameters for sub in subs),
        slice=max(sub.slice for sub in subs),
        training=subs[0].slice + 4 * (1 + run.moments) * subs[0].parameters,
        activations=memory.activations,
        evaluation=memory.scoring.memory,
        moved=max(moved),
        moved_by_all=sum(moved),
        data_parallel=2 * (m - 1) * run.theta * schedule.local_steps,
        seconds=speed.seconds(memory, sum(moved)) if speed else None,
    )


def _option_of(config: RunConfig, sizes: GraphSizes, resources: Resources) -> Option:
    """Return what a run takes, without times."""
    return _option(Memory(RunShape(config, sizes), config.store, resources), speed=None)


def chosen_store(config: RunConfig, sizes: GraphSizes, resources: Resources) -> str:
    """Return the first place in which Θ fits by the plan.

    It is "memory" where no place has room for it, or the plan knows too little.
    """
    if config.store_precision != "float32":
        return DISK
    if config.method not in ("gist", "parts", "local-sgd") or config.model.own:
        return PLANNED[0]  # other methods hold all of it in memory
    for store in PLANNED:
        if _option_of(replace(config.planned, store=store), sizes, resources).fits:
            return store
    return PLANNED[0]


def require_room(config: RunConfig, sizes: GraphSizes, resources: Resources, stores: Sequence[str] = PLANNED) -> None:
    """Refuse a run that cannot fit, and say what would.

    A run of a model of the user's own is not refused: what it holds in a step is not known.

    Args:
        config: the run.
        sizes: of the graph.
        resources: what the run may take.
        stores: the places for Θ that may be named.

    Raises:
        InputError: the run does not fit.
    """
    if config.model.own:
        return
    method, config = config.method, config.planned
    option = _option_of(config, sizes, resources)
    if option.fits:
        return
    short = option.lacking[0]
    run = f"m = {option.sub_gcns}" if method == "gist" else f"{method}, m = {option.sub_gcns},"
    needed, there = size(option.peaks[short]), size(resources.limits[short])
    if short == DISK:
        can_be_halved = STORES[config.store].holds == DISK and config.store_precision == "float32"
        ways = "choose another --out"
        if can_be_halved:
            ways += ", or add --set store_precision=bf16"
        raise InputError(f"{run} needs {needed} of the disk, {there} are free there: make room, {ways}")
    each = f" on each of {resources.ranks} ranks" if resources.ranks > 1 else ""
    where = f"{_LACKING[short]}{each} ({STAGES[option.stage]})"
    ways = _advice(config, sizes, resources, method, stores)
    limit = resources.host_limit if short == "cpu" else ""
    if not limit:
        ways += "; --memory GIB allows more"
    raise InputError(f"{run} needs {needed} of {where}, {there} are available{limit}: {ways}")


def out_of_memory(device: torch.device, error: Exception) -> InputError:
    """Return the error of a run that could not get memory."""
    held = f"it held up to {size(peak_memory_bytes(device))}"
    ways = "raise --sub-gcns, make --hidden smaller, or end other programs that take memory there"
    return InputError(f"out of {_LACKING[device.type]} ({reason(error)}): {held}; {ways}")


def _advice(config: RunConfig, sizes: GraphSizes, resources: Resources, method: str, stores: Sequence[str]) -> str:
    """Say what would fit.

    Args:
        config: a run of GIST that does not fit, and takes as much memory as the user's.
        sizes: of the graph.
        resources: what the run may take.
        method: of the user's run; of some methods m does not decide what fits.
        stores: the places for Θ that may be named.
    """
    splits = method in ("gist", "parts")
    if splits:
        for other in _alternatives(config, resources, stores):
            with suppress(InputError):  # more sub-GCNs than features, or fewer than ranks
                if _option_of(other, sizes, resources).fits:
                    return f"{_difference(config, other)} would fit"
    sampling = chosen_sampling(config.sampler, sizes.nodes)
    by_clusters = isinstance(sampling, ClusterSampling)
    ways = ["make --hidden smaller"]
    if sampling is None or (sizes.stored and not by_clusters):
        ways.append("train by --sampler clusters")
    if not sizes.stored:
        ways.append("train from the disk, on a folder of `gistgnn partition --out`")
    if sizes.stored and by_clusters:
        ways.append("make --clusters-per-batch smaller")
    if config.evaluation.method != "parts":
        ways.append("evaluate by --evaluation parts --set parts=P")
    none = "no m and no store would fit; " if splits else ""
    return f"{none}{', or '.join(ways)}"


def _alternatives(config: RunConfig, resources: Resources, stores: Sequence[str]) -> list[RunConfig]:
    """Return the same run with other m, other shares of Θ and slower stores, the nearest first."""
    possible = [store for store in stores if STORES[store].holds != "host" or config.device != "cpu"]
    if config.store in possible:
        possible = possible[possible.index(config.store) :]
    shares = [config.share]
    if resources.ranks > 1:
        shares = list(SHARES)[list(SHARES).index(config.share) :]
    counts = dict.fromkeys((config.sub_gcns, *_SUB_GCNS, 32))
    found = []
    for store, share, m in product(possible, shares, counts):
        found.append(replace(config, sub_gcns=m, store=store, share=share))
    return found


def _difference(config: RunConfig, other: RunConfig) -> str:
    """Return the options that make the other run of a run."""
    options = []
    if other.sub_gcns != config.sub_gcns:
        options.append(f"--sub-gcns {other.sub_gcns}")
    if other.store != config.store:
        options.append(f"--store {other.store}")
    if other.share != config.share:
        options.append(f"--share {other.share}")
    return " ".join(options)
