"""What a run takes with one m and one store of Θ."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gistgnn.planning.rates import Rates
from gistgnn.planning.rehearsal import Rehearsal


@dataclass(frozen=True)
class Option:
    """What a run, or a phase of it, takes with one m and one store; sizes in bytes."""

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
    phase: str  # the stage, such as "training", in which the device holds most
    lacking: tuple[str, ...]  # the places that have too little
    epoch_reads: int  # bytes that all sub-GCNs read from the files of the graph in an epoch; 0: it is in memory
    evaluation_reads: int  # likewise, an evaluation
    seconds: dict[str, float] | None = None  # of a step, a round, an epoch, an evaluation, and of all of them

    @property
    def fits(self) -> bool:
        """Whether every place has enough."""
        return not self.lacking


def option_of(store: str, found: Rehearsal, limits: Mapping[str, int], rates: Rates | None) -> Option:
    """Return what a rehearsed run, or a phase of it, takes.

    Args:
        store: where Θ lies.
        found: the rehearsal.
        limits: bytes that each place has.
        rates: of the machine; None: no times.
    """
    first, device = found.first, "cuda" if "cuda" in limits else "cpu"
    peaks = {place: found.peak(place) for place in limits}
    held = [size + moments for size, moments in zip(found.slices, found.carried, strict=True)]
    moved = [held[0] + sum(held)] if first.copies else [2 * each for each in held]  # one is read, all are written
    return Option(
        sub_gcns=len(held),
        store=store,
        parameters=max(found.parameters),
        slice=max(found.slices),
        training=found.training,
        activations=found.step.top - found.step.after,
        evaluation=found.scoring.top - found.scoring.before,
        method=found.method,
        moved=max(moved),
        moved_by_all=sum(moved),
        data_parallel=2 * (first.workers - 1) * found.theta * first.local_steps,
        peaks=peaks,
        phase=max(found.stages, key=lambda stage: found.stages[stage].get(device, 0)),
        lacking=tuple(place for place, limit in limits.items() if peaks[place] > limit),
        epoch_reads=round(found.first.stretch.total * found.step.ahead * _passes(found) / found.epochs),
        evaluation_reads=found.scoring.read,
        seconds=_seconds(found, sum(moved), rates) if rates else None,
    )


def _seconds(found: Rehearsal, moved: int, rates: Rates) -> dict[str, float]:
    """Estimate the time of a step (fused: of all sub-GCNs), a round, an epoch and an evaluation."""
    step, steps, in_round = rates.seconds(found.step), found.first.stretch.total, found.first.stretch.count
    every = step * _passes(found)
    step = step if found.fused else every / found.first.workers
    exchange = 2 * moved / rates.copied  # read and written
    epoch = (steps * every + steps / in_round * exchange) / found.epochs
    round_ = in_round * every + exchange
    evaluation = rates.seconds(found.scoring)
    total = found.epochs * epoch + evaluations_of(found) * evaluation
    return {"step": step, "round": round_, "epoch": epoch, "evaluation": evaluation, "total": total}


def _passes(found: Rehearsal) -> int:
    """Return how often a batch is made for a step of all sub-GCNs."""
    return 1 if found.together else found.first.workers


def evaluations_of(found: Rehearsal) -> int:
    """Return how many evaluations a phase has: it ends with one."""
    every, rounds = found.first.evaluate_every, found.rounds
    return rounds.stop // every - rounds.start // every + bool(rounds.stop % every)
