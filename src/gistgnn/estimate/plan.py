"""Plans a run for several m, or for its phases, and several stores of Θ; refuses one that cannot fit."""

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from itertools import product
from typing import Any

import torch

from gistgnn.defaults import chosen_sub_gcns
from gistgnn.errors import InputError, reason
from gistgnn.estimate.memory import DISK, Memory, Resources
from gistgnn.estimate.shapes import RunShape
from gistgnn.estimate.time import Speed
from gistgnn.fit.budget import NARROWEST
from gistgnn.graphs.named import GraphSizes
from gistgnn.runs.config import RunConfig
from gistgnn.sampling import ClusterSampling, chosen_sampling, describe
from gistgnn.theta.registry import SHARES, STORES
from gistgnn.utils.formats import rough_duration, size
from gistgnn.utils.process_memory import peak_memory_bytes

PLANNED = list(STORES)
_SUB_GCNS = (1, 2, 4, 8, 16)  # and 32, where a run does not fit
PLACES = {"memory": "memory", "host": "the host's memory", "disk": "files"}
_LACKING = {"cpu": "memory", "cuda": "GPU memory", DISK: "room on the disk"}
_CLEARLY = 1.1  # times as slow: less is within the error of the estimate
_SCORED = "scored best on our graphs"


@dataclass(frozen=True, kw_only=True)
class Option:
    """What a run or one of its phases takes with one m and one store; sizes in bytes."""

    sub_gcns: int
    store: str
    peaks: dict[str, int]  # the most that each place ("cpu", "cuda", "disk") holds
    lacking: tuple[str, ...]  # the places that have too little
    fits: bool  # every place has enough
    rounds: int
    evaluations: int
    parameters: int  # of the largest sub-GCN, a number
    slice: int  # the largest sub-GCN's parameters and buffers
    training: int  # the same with gradients and the optimiser's state
    activations: int  # what a step takes beyond what stays (of all sub-GCNs at once, where they are fused)
    evaluation: int  # what an evaluation takes beyond what stays
    method: str  # how the model is evaluated: "whole", "layers" or "parts"
    moved: int  # from and to Θ in a round, by the sub-GCN that moves most
    moved_by_all: int  # the same, by all sub-GCNs
    data_parallel: int  # what m processes that train all of Θ send in as many steps: 2 (m - 1) |Θ| for a step
    phase: str  # the stage, such as "training", in which the device holds most
    number: int  # of the phase, from 1
    copies: int
    epochs: float
    phased: bool  # it is a phase of a run
    local_steps: int  # ζ
    seconds: dict[str, float] | None  # of a step, a round, an epoch, an evaluation, and of all of them
    machine: int  # what the ranks of one machine hold of its memory together

    @property
    def memory(self) -> int:
        """The most that the memory of the device or of the host holds."""
        return max(taken for place, taken in self.peaks.items() if place != DISK)

    @property
    def total(self) -> float:
        """The seconds of all of it; 0: not estimated."""
        return self.seconds["total"] if self.seconds else 0.0

    @property
    def name(self) -> str:
        """What messages call it."""
        m = f"m = {self.sub_gcns}"
        return f"phase {self.number} ({m}{', copies' if self.copies else ''})" if self.phased else m


@dataclass(frozen=True)
class Plan:
    """A run for several m, or with its phases, and for several stores."""

    graph: GraphSizes
    batch: GraphSizes  # the sizes of a step's batch
    parameters: int  # of the full model, a number
    theta: int  # bytes of Θ in the first store
    resources: Resources
    options: list[Option]  # every m, or every phase, in every store
    totals: list[Option]  # every m, with all its phases, in every store
    phased: bool  # the run has phases, each with its m
    sampler: dict[str, Any] | None  # of the run, with its settings; None: every step sees the whole graph
    narrow: Option | None  # ordinary training of a model of widths `NARROWEST`, to try before a wider one
    suited: int  # the m that scored best with such widths, which a run has by default

    @property
    def choice(self) -> Option | None:
        """What fits, with Θ in memory if possible, and has an m nearest to the `suited` one; None if nothing fits."""
        fitting = [total for total in self.totals if total.fits]
        fitting = [total for total in fitting if total.store == "memory"] or fitting
        return min(fitting, key=lambda total: abs(math.log2(total.sub_gcns / self.suited)), default=None)

    @property
    def advice(self) -> str:
        chosen, batches = self.choice, ", and with a small --clusters-per-batch" if self.graph.stored else ""
        if chosen is None:
            least = min(self.totals, key=lambda total: max(total.peaks.values()))
            own = [each for each in self.options if each.store == least.store and not each.fits]
            short = next(each for each in own if self.phased or each.sub_gcns == least.sub_gcns)
            lacks = " and ".join(_LACKING[place] for place in short.lacking) + "; "
            lacks += "give it more sub-GCNs, or " if self.phased else ""
            said = f"with the parameters in {PLACES[least.store]}, {short.name} lacks {lacks}make --hidden smaller"
            return f"nothing fits: {said}, or train by --sampler clusters{batches}"
        where = f"{PLACES[chosen.store]} (--store {chosen.store})"
        if self.phased:
            return f"every phase fits with the parameters in {where}"
        why = f"it {_SCORED}"
        if chosen.sub_gcns != self.suited:
            why = f"of the m that fit, it is nearest to m = {self.suited}, which {_SCORED}"
        if chosen.store != self.totals[0].store:
            why = f"no m fits with the parameters in {PLACES[self.totals[0].store]}"
        others = [each for each in self.totals if each.fits and each.store == chosen.store]
        fastest = min(others, key=lambda total: total.total)
        if chosen.total > _CLEARLY * fastest.total:
            why += f"; m = {fastest.sub_gcns} takes {rough_duration(fastest.total)}, and tends to score lower"
        taken = f"about {rough_duration(chosen.total)} and " if chosen.total else ""
        return f"choose m = {chosen.sub_gcns} with the parameters in {where}, {taken}{size(chosen.memory)}: {why}"

    def as_dict(self) -> dict[str, Any]:
        named = ("store",) if self.phased else ("sub_gcns", "store")
        chosen = self.choice and {name: getattr(self.choice, name) for name in named}
        return {**asdict(self), "choice": chosen, "advice": self.advice}


def make_plan(
    config: RunConfig,
    sizes: GraphSizes,
    resources: Resources,
    sub_gcns: Sequence[int] | None = None,
    stores: Sequence[str] = PLANNED,
    epochs: Callable[[int], float] | None = None,
    *,
    timed: bool = True,
) -> Plan:
    """Plan a run for several m and stores of Θ, or its phases, which have their own m, for several stores."""
    # The m of `config` is ignored. `sub_gcns` None: 1, 2, 4, 8 and 16, as far as widths and ranks allow. `epochs` gives
    # the epochs of each m; None: all have those of `config`. `timed` trains a few rounds of every m.
    runs, phased, ranks = list[RunShape](), bool(config.training.phases), resources.ranks
    default = sorted(m for m in {*_SUB_GCNS, ranks} if m >= ranks)
    for m in [config.sub_gcns] if phased else sub_gcns or default:
        try:
            training = replace(config.training, epochs=epochs(m)) if epochs else config.training
            run = replace(config, sub_gcns=m, training=training)
            runs.append(RunShape(run, sizes, runs[0] if runs else None))
        except InputError:
            if sub_gcns or not runs:
                raise
    speed, options, totals = Speed() if timed else None, list[Option](), list[Option]()
    for store, shape in product(stores, runs):
        own = [_option(Memory(shape, phase, store, resources), speed) for phase in shape.phases]
        options += own
        totals.append(_total(own))
    narrow = None
    if not phased and max(config.model.hidden) > NARROWEST:
        hidden = tuple(min(width, NARROWEST) for width in config.model.hidden)
        small = RunShape(replace(config, model=replace(config.model, hidden=hidden), sub_gcns=1), sizes)
        narrow = _option(Memory(small, small.phases[0], stores[0], resources), speed)
    first, half = runs[0], stores[0] == "disk" and config.store_precision == "bf16"
    batch, theta = first.expected.sizes(first.seen), first.theta // 2 if half else first.theta
    sampler = describe(first.config.sampler)
    split = [width for dim, width in enumerate(config.model.hidden, 1) if dim in config.partitioned_dims]
    suited = chosen_sub_gcns(max(split, default=1))
    return Plan(sizes, batch, first.full, theta, resources, options, totals, phased, sampler, narrow, suited)


def _option(memory: Memory, speed: Speed | None) -> Option:
    """Return what a phase takes; without a speed the seconds are left out."""
    run, phase, first = memory.run, memory.phase, memory.phase.first
    held = [size + moments for size, moments in zip(phase.slices, phase.carried, strict=True)]
    moved = [first.copies * held[0] + sum(held)] if first.copies else [2 * each for each in held]  # all are written
    return Option(
        sub_gcns=len(held), store=memory.store, peaks=memory.peaks, lacking=memory.lacking, fits=not memory.lacking,
        rounds=len(phase.rounds), evaluations=phase.evaluations, parameters=max(phase.parameters),
        slice=max(phase.slices), training=phase.slices[0] + 4 * (1 + phase.moments) * phase.parameters[0],
        activations=memory.activations, evaluation=memory.evaluation, method=memory.method,
        moved=max(moved), moved_by_all=sum(moved),
        data_parallel=2 * (first.workers - 1) * run.theta * first.local_steps,
        phase=memory.stage, number=phase.number, copies=first.copies, epochs=phase.epochs,
        phased=bool(run.config.training.phases), local_steps=first.local_steps,
        seconds=speed.seconds(memory, sum(moved)) if speed else None,
        machine=memory.resources.local * memory.peaks["cpu"],
    )  # fmt: skip


def _total(phases: Sequence[Option]) -> Option:
    """Return what all phases of a run take; what is not of all is of the first."""
    seconds = [each.seconds["total"] for each in phases if each.seconds]
    return replace(
        phases[0],
        peaks={place: max(each.peaks[place] for each in phases) for place in phases[0].peaks},
        lacking=tuple(place for place in phases[0].peaks if any(place in each.lacking for each in phases)),
        fits=all(each.fits for each in phases),
        rounds=sum(each.rounds for each in phases),
        evaluations=sum(each.evaluations for each in phases),
        seconds={"total": sum(seconds)} if seconds else None,
        machine=max(each.machine for each in phases),
    )


def _plan_of(config: RunConfig, sizes: GraphSizes, resources: Resources) -> Plan:
    return make_plan(config, sizes, resources, [config.sub_gcns], [config.store], timed=False)


def chosen_store(config: RunConfig, sizes: GraphSizes, resources: Resources) -> str:
    """The first place in which Θ fits by the plan; "memory" where none does, or where the plan knows too little."""
    if config.store_precision != "float32":
        return DISK
    known = config.method in ("gist", "local-sgd") and not config.model.own  # others hold all of it in memory
    planned = (replace(config.planned, store=store) for store in (PLANNED if known else ()))
    return next((each.store for each in planned if _plan_of(each, sizes, resources).totals[0].fits), PLANNED[0])


def require_room(config: RunConfig, sizes: GraphSizes, resources: Resources, stores: Sequence[str] = PLANNED) -> None:
    """Refuse a run that cannot fit: an InputError with the first phase that does not, and which of `stores` would."""
    # A run of a model of the user's own is not refused: what it holds in a step is not known.
    method, own, config = config.method, config.model.own, config.planned
    options = [] if own else _plan_of(config, sizes, resources).options
    if (option := next((each for each in options if each.lacking), None)) is None:
        return
    short = option.lacking[0]
    run = option.name if method == "gist" else f"{method}, {option.name},"
    needed, there = size(option.peaks[short]), size(resources.limits[short])
    each = f" on each of {resources.ranks} ranks" if resources.ranks > 1 else ""
    if short == DISK:
        half = STORES[config.store].holds == "disk" and config.store_precision == "float32"
        ways = f"choose another --out{', or add --store-precision bf16' if half else ''}"
        raise InputError(f"{run} needs {needed} of the disk, {there} are free there: make room, {ways}")
    where = f"{_LACKING[short]}{each} (in its {option.phase} {'stage' if option.phased else 'phase'})"
    ways = _advice(config, sizes, resources, method, stores)
    limit = resources.host_limit if short == "cpu" else ""
    more = "" if limit else "; --memory GIB allows more"
    raise InputError(f"{run} needs {needed} of {where}, {there} are available{limit}: {ways}{more}")


def out_of_memory(device: torch.device, error: Exception) -> InputError:
    """Return the error of a run that could not get memory."""
    held = f"it held up to {size(peak_memory_bytes(device))}"
    ways = "raise --sub-gcns, make --hidden smaller, or end other programs that take memory there"
    return InputError(f"out of {_LACKING[device.type]} ({reason(error)}): {held}; {ways}")


def _advice(config: RunConfig, sizes: GraphSizes, resources: Resources, method: str, stores: Sequence[str]) -> str:
    """Say what would fit; for other methods than GIST m does not decide it."""
    own, phased = config.sub_gcns, bool(config.training.phases)
    stores = [store for store in stores if STORES[store].holds != "host" or config.device != "cpu"]
    stores = stores[stores.index(config.store) if config.store in stores else 0 :] if method == "gist" else []
    shares = list(SHARES)[list(SHARES).index(config.share) :] if resources.ranks > 1 else [config.share]
    counts = dict.fromkeys((own, *(() if phased else (*_SUB_GCNS, 32))))
    for store, share, m in product(stores, shares, counts):
        with suppress(InputError):  # more sub-GCNs than features, or fewer than ranks
            if _plan_of(replace(config, sub_gcns=m, store=store, share=share), sizes, resources).totals[0].fits:
                changed = [f"--sub-gcns {m}"] * (not phased) + [f"--store {store}"] * (store != config.store)
                return f"{' '.join(changed + [f'--share {share}'] * (share != config.share))} would fit"
    sampling = chosen_sampling(config.sampler, sizes.nodes)
    by_clusters = isinstance(sampling, ClusterSampling)
    ways = ["give this phase more sub-GCNs"] * phased + ["make --hidden smaller"]
    ways += ["train by --sampler clusters"] * (sampling is None or (sizes.stored > 0 and not by_clusters))
    ways += ["train from the disk, on a folder of `gistgnn partition --out`"] * (not sizes.stored)
    ways += ["make --clusters-per-batch smaller"] * (sizes.stored > 0 and by_clusters)
    ways += ["evaluate by --evaluation parts --parts P"] * (config.evaluation.method != "parts")
    none = "no store would fit; " if phased else "no m and no store would fit; "
    return f"{none if method == 'gist' else ''}{', or '.join(ways)}"
