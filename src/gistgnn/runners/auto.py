"""The runner "auto": fused where a short trial shows it faster on the run's own model and batches, else in turn."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from gistgnn.round import Round
from gistgnn.runners.fused import Fused, why_not_fused
from gistgnn.runners.in_turn import InTurn
from gistgnn.runners.runner import Losses, Runner
from gistgnn.sampling import Batch, Sampler, forward
from gistgnn.schedule import RoundPlan, Stretch
from gistgnn.settings import Training
from gistgnn.subtrain import loss_of
from gistgnn.utils.formats import duration
from gistgnn.utils.process_memory import available_bytes
from gistgnn.utils.random_streams import torch_stream

STEPS = 5  # of a measurement, at most
MEASUREMENTS = 4  # of each runner, at most
CLEARLY = 1.25  # times as slow in two measurements: no more are needed
PASS_SECONDS = 0.2  # a measurement has fewer steps if its steps would take longer
LEAST, MOST_SECONDS = 3, 0.6  # after so many measurements and seconds no further one begins
_SPARE = 2.0  # the trial of the fused runner needs so many times the memory that its step keeps


_HOW = {"in-turn": "in turn", "fused": "fused"}


@dataclass(frozen=True)
class Choice:
    """Which runner trains the rounds of one m.

    Args:
        sub_gcns: m.
        used: "in-turn" or "fused".
        reason: why, in a few words.
        seconds: of a step of all sub-GCNs of a process, by runner; empty if no steps were measured.
    """

    sub_gcns: int
    used: str
    reason: str
    seconds: Mapping[str, float] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"m = {self.sub_gcns}: the sub-GCNs train {_HOW[self.used]}: {self.reason}"

    def as_dict(self) -> dict[str, Any]:
        """Return the choice as result.json holds it."""
        return asdict(self)


class Auto:
    """Trains the rounds of every m by the runner that was chosen for it; rounds of another m in turn.

    The session chooses before the first round, by `choose_runner`, or reads what an interrupted run has chosen.
    """

    def __init__(self) -> None:
        self._fused: dict[int, Fused] = {}

    @property
    def fuses(self) -> bool:
        """Whether sub-GCNs are fused for some m."""
        return bool(self._fused)

    def use(self, choices: Sequence[Mapping[str, Any]]) -> None:
        """Train as chosen; `choices` are those of `Choice.as_dict`."""
        self._fused = {choice["sub_gcns"]: Fused() for choice in choices if choice["used"] == "fused"}

    def __call__(self, round_: Round, sampler: Sampler, training: Training, stretch: Stretch, seed: int) -> Losses:
        """Train the sub-GCNs of a round; see `Runner`."""
        runner: Runner = self._fused.get(len(round_)) or InTurn()
        return runner(round_, sampler, training, stretch, seed)


class TrialRound:
    """Sub-GCNs for a trial: what runners use of a `Round`, without Θ.

    Args:
        members: the numbers of the sub-GCNs.
        subs: the sub-GCNs, which belong to the trial.
    """

    number, lasting = 0, False

    def __init__(self, members: Sequence[int], subs: Sequence[nn.Module]) -> None:
        self.members, self.subs = list(members), [sub.train() for sub in subs]

    def __iter__(self) -> Iterator[nn.Module]:
        """Yield the sub-GCNs."""
        return iter(self.subs)

    def input_columns(self, i: int) -> None:
        """Say that every sub-GCN sees all input features."""

    def carry(self, i: int, optimizer: Optimizer) -> None:
        """Begin without moments."""


def choose_runner(trial: TrialRound, sampler: Sampler, sub_gcns: int, plan: RoundPlan, seed: int) -> Choice:
    """Measure a few steps of both runners, and choose the faster one.

    No parameter, moment or random number of the run changes: the sub-GCNs are those of the trial, and every batch and
    dropout mask follows from its place in the run. The fused runner is not tried where its step would take more than
    half of the memory that is free.

    Args:
        trial: the sub-GCNs that this process trains in a round.
        sampler: the batches, which all sub-GCNs share.
        sub_gcns: m.
        plan: the round.
        seed: of the run.
    """
    with closing(sampler.batches(plan.stretch.first, 1)) as batches:
        batch = next(batches)
    needed = _SPARE * len(trial.members) * _step_bytes(trial.subs[0], batch, plan.training, seed)
    if needed > available_bytes(batch.x.device):
        return Choice(sub_gcns, "in-turn", "fused, they might take more memory than is free")
    if why := why_not_fused(cast(Round, trial), sampler, plan.stretch, plan.training):
        return Choice(sub_gcns, "in-turn", why)
    seconds = _measure(trial, sampler, plan, seed)
    used = min(seconds, key=lambda name: seconds[name])
    reason = " and ".join(f"{duration(each)} {_HOW[name]}" for name, each in seconds.items())
    return Choice(sub_gcns, used, f"a step of all of them takes {reason}", seconds)


def _measure(trial: TrialRound, sampler: Sampler, plan: RoundPlan, seed: int) -> dict[str, float]:
    """Return the seconds of a step of all sub-GCNs, by runner: the least of some measurements of a few steps."""
    fused = Fused()
    fused.fuses = True  # `why_not_fused` has tried it
    round_ = cast(Round, trial)
    trained: dict[str, Runner] = {"in-turn": InTurn(), "fused": fused}

    def measured(name: str, steps: int) -> float:
        begun = time.perf_counter()
        trained[name](round_, sampler, plan.training, replace(plan.stretch, count=steps), seed)
        return (time.perf_counter() - begun) / steps

    begun = time.perf_counter()
    passes = [measured(name, 1) for name in trained]  # the first steps load code
    steps = min(max(int(PASS_SECONDS / min(passes)), 1), STEPS, plan.stretch.count)
    found: dict[str, list[float]] = {name: [] for name in trained}
    while len(found["fused"]) < MEASUREMENTS:
        for name, seconds in found.items():
            seconds.append(measured(name, steps))
        fast, slow = sorted(map(min, found.values()))
        count = len(found["fused"])
        late = time.perf_counter() - begun > MOST_SECONDS
        if (count >= LEAST and late) or (count > 1 and slow > CLEARLY * fast):
            break
    return {name: min(seconds) for name, seconds in found.items()}


def _step_bytes(sub: nn.Module, batch: Batch, training: Training, seed: int) -> int:
    """Return the bytes that a step of one sub-GCN keeps: for the backward pass, of gradients and of two moments."""
    kept: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        if tensor.layout is torch.strided:
            storage = tensor.untyped_storage()
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    device = batch.x.device
    with (
        torch_stream(seed, "trial", device=device),
        torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor),
        training.autocast(device),
    ):
        loss_of(forward(sub, batch), batch, training)
    shared = {tensor.untyped_storage().data_ptr() for tensor in (batch.x, batch.y) if tensor.layout is torch.strided}
    activations = sum(size for place, size in kept.items() if place not in shared)
    return activations + 4 * sum(p.nbytes for p in sub.parameters())
