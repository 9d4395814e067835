"""The settings of a training run, checked where they enter, and what follows from them: steps, rates, optimiser.

Torch is imported inside the functions that need it, so that the command line reads names and defaults here quickly.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from gistgnn.errors import InputError
from gistgnn.phases import Phase, as_phases
from gistgnn.utils.checks import check_count, check_number

if TYPE_CHECKING:
    import torch
    from torch import Tensor
    from torch.optim import Optimizer

OPTIMIZERS = {"adam": "Adam", "adamw": "AdamW", "sgd": "SGD"}
"""Optimisers by their names here, and their names in `torch.optim`."""

PRECISIONS = ("float32", "bf16")

SHORTEST_ROUND, LONGEST_ROUND = 5, 20
"""The limits of ζ where it is chosen: shorter rounds learn worse; 20 is the paper's on Cora, CiteSeer and PubMed."""

ROUNDS_PER_SUB_GCN = 4
"""Rounds for each of m sub-GCNs, if ζ is not given: in 4m rounds (1 - 1/m)^(4m) < 2 % of the weights train never."""

BUDGET_LR = 0.005
"""The learning rate of a run with a budget, unless it is given: it suits parts of any width (benchmarks/RESULTS.md)."""

CHOICES: dict[str, tuple[str, ...]] = {
    "training": ("split", "each"),
    "optimizer": tuple(OPTIMIZERS),
    "schedule": ("constant", "step", "cosine"),
    "optimizer_state": ("reset", "carry"),
    "cross_weights": ("random", "zero"),
    "precision": PRECISIONS,
}
"""The values that a setting of `Training` may have, by the setting's name."""


@dataclass(frozen=True)
class Training:
    """Settings of `GIST.fit`.

    Args:
        epochs: E, passes over the training nodes; with `phases`, the sum of theirs, which need not be given.
        local_steps: ζ, steps of every sub-GCN between two aggregations; None: between 5 and 20, and so few that there
            are 4m draws of the blocks: a weight between two split layers is trained in 4 of them on average.
        training: "split" gives every sub-GCN E/m epochs, so that all sub-GCNs together take as many steps as the
            baseline (section 2.2); "each" gives every sub-GCN all E epochs, m times the work.
        optimizer: "adam", "adamw" or "sgd".
        lr: learning rate at the start.
        weight_decay: L2 penalty (Adam, SGD) or decoupled decay (AdamW).
        momentum: momentum of SGD; the other optimisers have none.
        schedule: "constant"; "step" divides the rate by 10 at 50 % and 75 % of the run; "cosine" lets it fall to zero.
            Both follow the progress of the whole run, not of a round.
        optimizer_state: "reset" starts a new optimiser in every round, as the authors' code does (the paper does not
            say); "carry" lets the moments travel with the parameters. With m = 1 they are always kept: the baseline is
            ordinary training.
        precision: "float32"; "bf16": dense products in bfloat16, by torch's autocast. Parameters, moments, sparse
            products and the loss stay in float32.
        clip_norm: largest norm of a sub-GCN's gradient; None: no limit.
        patience: stop after this many evaluations without a better validation score; None: never.
        evaluate_every: rounds between evaluations.
        phases: the run as a list of phases with different m; (): one phase with the m of `GIST`.
        redraw_every: K, rounds between two draws of the blocks: 1 is the paper's (section 2.2); 0 keeps the first
            blocks.
        cross_weights: how weights between different blocks begin: "random", as in Algorithm 1, or "zero", which makes
            Θ m narrow models side by side.
        budget: seconds that the run may take, in place of epochs and phases: m, the phases, the schedule and ζ are
            chosen by measuring steps (see `gistgnn.session.budget`); None: no limit.

    Raises:
        InputError: a value is out of its range.
    """

    epochs: float = 0
    local_steps: int | None = None
    training: str = "split"
    optimizer: str = "adam"
    lr: float = 0.01
    weight_decay: float = 0.0
    momentum: float = 0.0
    schedule: str = "constant"
    optimizer_state: str = "reset"
    precision: str = "float32"
    clip_norm: float | None = None
    patience: int | None = None
    evaluate_every: int = 1
    phases: tuple[Phase, ...] = ()
    redraw_every: int = 1
    cross_weights: str = "random"
    budget: float | None = None

    def __post_init__(self) -> None:
        """Check every value."""
        object.__setattr__(self, "phases", as_phases(self.phases))
        if self.phases and not self.epochs:
            object.__setattr__(self, "epochs", sum(phase.epochs for phase in self.phases))
        check_count("redraw_every", self.redraw_every, least=0)
        if self.budget is not None:
            check_number("budget", self.budget, above=True)
            if self.epochs or self.phases:
                raise InputError("epochs or phases are given beside a budget, which chooses them: leave one out")
            for name in ("local_steps", "evaluate_every", "redraw_every", "cross_weights"):
                if getattr(self, name) != type(self).__dataclass_fields__[name].default:
                    raise InputError(f"{name} is given beside a budget, which chooses it: leave one out")
            if self.schedule == "step":
                raise InputError("schedule is 'step', but a budget trains by cosine cycles: leave one out")
        elif not self.phases:
            check_count("epochs", self.epochs)
        check_count("evaluate_every", self.evaluate_every)
        for name in ("local_steps", "patience"):
            if getattr(self, name) is not None:
                check_count(name, getattr(self, name))
        for name, choices in CHOICES.items():
            if getattr(self, name) not in choices:
                raise InputError(f"{name} is '{getattr(self, name)}', expected one of {', '.join(choices)}")
        check_number("lr", self.lr, above=True, below=1e6)
        check_number("weight_decay", self.weight_decay, below=1e6)
        check_number("momentum", self.momentum, below=1.0)
        if self.momentum and self.optimizer != "sgd":
            raise InputError(f"momentum is {self.momentum}, but the optimizer is {self.optimizer}: use sgd")
        if self.clip_norm is not None:
            check_number("clip_norm", self.clip_norm, above=True)
        self._check_phases()

    @property
    def averages(self) -> bool:
        """Whether the full model is the mean of its sub-GCNs; in the paper's method it is their sum."""
        return bool(self.phases) or self.cross_weights == "zero"

    @property
    def keeps_moments(self) -> bool:
        """Whether moments stay with Θ between rounds: they are carried, or blocks last for several rounds."""
        return self.optimizer_state == "carry" or self.redraw_every != 1

    def as_dict(self) -> dict[str, Any]:
        """Return the settings as JSON holds them, without those that older records do not name if they are unused."""
        default = {field.name: field.default for field in fields(self)}
        newer = ("phases", "redraw_every", "cross_weights", "budget")
        return {name: value for name, value in asdict(self).items() if name not in newer or value != default[name]}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Training":
        """Return the settings that `as_dict` has returned, perhaps through JSON."""
        return cls(**{**values, "phases": tuple(Phase(**phase) for phase in values.get("phases", ()))})

    def of_phase(self, phase: Phase) -> "Training":
        """Return the settings of one phase alone."""
        own = {name: getattr(phase, name) for name in ("lr", "schedule", "redraw_every")}
        if phase.copies:
            own["redraw_every"] = 0
        own = {name: value for name, value in own.items() if value is not None}
        return replace(self, phases=(), epochs=1, **own)

    def steps(self, steps_per_epoch: int, sub_gcns: int, epochs: float | None = None) -> int:
        """Return how many steps each sub-GCN takes in some epochs; None: in the whole run."""
        steps = (self.epochs if epochs is None else epochs) * steps_per_epoch
        return max(1, round(steps / sub_gcns if self.training == "split" else steps))

    def steps_in_round(self, steps: int, sub_gcns: int) -> int:
        """Return ζ, chosen if it is not given.

        Args:
            steps: how many steps each sub-GCN takes.
            sub_gcns: m.
        """
        if self.local_steps is not None:
            return self.local_steps
        if sub_gcns == 1 or not self.redraw_every:
            return LONGEST_ROUND
        rounds = ROUNDS_PER_SUB_GCN * sub_gcns * self.redraw_every
        return min(max(steps // rounds, SHORTEST_ROUND), LONGEST_ROUND)

    def rate(self, progress: float) -> float:
        """Return the learning rate at a share of the run, 0 <= progress < 1."""
        if self.schedule == "step":
            return self.lr * 0.1 ** ((progress >= 0.5) + (progress >= 0.75))
        if self.schedule == "cosine":
            return self.lr * 0.5 * (1 + math.cos(math.pi * progress))
        return self.lr

    def make_optimizer(self, parameters: "Iterable[Tensor]") -> "Optimizer":
        """Return a new optimiser of the parameters."""
        import torch

        from gistgnn.utils.optimizers import eager

        # fused: one pass over the parameters in a step, on the CPU as well
        options: dict[str, Any] = {"lr": self.lr, "weight_decay": self.weight_decay, "fused": True}
        if self.optimizer == "sgd":
            options["momentum"] = self.momentum
        return eager(getattr(torch.optim, OPTIMIZERS[self.optimizer]))(parameters, **options)

    def _check_phases(self) -> None:
        if not self.phases:
            return
        total = sum(phase.epochs for phase in self.phases)
        if self.epochs != total:
            raise InputError(f"epochs is {self.epochs}, but the phases have {total} together: leave epochs out")
        for phase in self.phases:
            self.of_phase(phase)  # checks its learning rate and schedule
            if phase.copies and self.cross_weights != "zero":
                raise InputError(f"cross_weights is '{self.cross_weights}', but a phase has copies: use zero")
        for before, phase in pairwise(self.phases):
            if phase.copies and (not before.copies or before.sub_gcns % phase.sub_gcns):
                raise InputError(
                    f"a phase of {phase.sub_gcns} copies comes after one of {before.sub_gcns} "
                    f"{'copies' if before.copies else 'sub-GCNs'}, which are no copies of one narrow model: begin the "
                    "run with copies, or with more copies of which their number is a divisor"
                )
        self._check_kept_blocks()

    def _check_kept_blocks(self) -> None:
        """Refuse phases of which the blocks are kept, but not nested."""
        kept: set[int] = set()  # m of the phases that have the same draw
        for phase in self.phases:
            kept = kept if self.of_phase(phase).redraw_every == 0 else set()
            for other in sorted(kept):
                few, many = sorted((other, phase.sub_gcns))
                if many % few:
                    raise InputError(
                        f"the phases have {other} and {phase.sub_gcns} sub-GCNs, but the blocks are kept: use numbers "
                        "of which one divides the other, or redraw_every=1"
                    )
            kept.add(phase.sub_gcns)

    def autocast(self, device: "torch.device") -> "torch.autocast":
        """Return the context in which a step's forward pass and loss run."""
        import torch

        return torch.autocast(device.type, torch.bfloat16, enabled=self.precision == "bf16")


def choose_training(training: Training | None, settings: dict[str, Any]) -> Training:
    """Return the settings that were given as a whole, or one by one.

    Args:
        training: all settings, or None.
        settings: single settings by name; those that are None have their default.

    Raises:
        InputError: both are given, or neither a Training nor `epochs` or `phases`.
    """
    given = {name: value for name, value in settings.items() if value is not None}
    if training is not None:
        if given:
            raise InputError(f"{next(iter(given))} is given beside a Training: set it in the Training")
        return training
    if "budget" in given:
        given = {"lr": BUDGET_LR, **given}
    elif not given.get("phases") and "epochs" not in given:
        raise InputError("epochs is missing: say how many epochs to train, such as epochs=400")
    return Training(**given)
