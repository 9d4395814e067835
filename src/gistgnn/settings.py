"""The settings of a training run, checked where they enter.

Torch is imported late, as the command line needs this module.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal

from msgspec import Meta

from gistgnn.errors import InputError
from gistgnn.training import names
from gistgnn.training.names import CLASS_LOSSES, CLASS_METRICS, NAMES, is_users_own, named_as
from gistgnn.utils.checks import (
    LONGEST,
    MOST,
    AtLeastOne,
    Fraction,
    check_number,
    check_settings,
    set_field,
)

if TYPE_CHECKING:
    import torch
    from torch import Tensor
    from torch.optim import Optimizer

    from gistgnn.training.loss import Loss
    from gistgnn.training.metric import Metric
    from gistgnn.training.names import LossName, MetricName, OptimizerName, ScheduleName
    from gistgnn.training.optimizer import Factor, MakeOptimizer, MakeScheduler

    OptimizerSetting = OptimizerName | MakeOptimizer
    ScheduleSetting = ScheduleName | Factor | MakeScheduler
    LossSetting = LossName | Loss | None
    WeightsSetting = Literal["balanced"] | Sequence[float] | None
    MetricSetting = MetricName | Metric | Callable[[Tensor, Tensor], Any] | None
else:  # `gistgnn.training.names` checks what a user may bring.
    OptimizerSetting = ScheduleSetting = LossSetting = WeightsSetting = MetricSetting = Any

# Settings that older records do not have: they are in no record, and in no fingerprint, where they
# have their defaults. A new setting is added here, so that older runs can be resumed.
NEWER = ("budget", "loss", "class_weights", "label_smoothing", "metric")
PRECISIONS = ("float32", "bf16")
HIGHEST = 1e6  # Every learning rate is below this.
LR = 0.01  # The learning rate of ordinary training.
BASE_WIDTH = 128  # The width at which `LR` was tuned.
WIDTH_SCALINGS = ("mup", "none")  # How learning rates follow the widths.
# A chosen ζ lies between these. Shorter rounds learn worse; 20 is the paper's ζ on Cora.
SHORTEST_ROUND = 5
LONGEST_ROUND = 20
# A chosen ζ leaves 4m rounds. After them (1 - 1/m)^(4m) < 2 % of the weights are untrained.
ROUNDS_PER_SUB_GCN = 4


def as_epochs(epochs: Any) -> int | float:
    """Return a number of epochs above 0, a whole one as an int.

    Raises:
        InputError: it is not such a number.
    """
    number = check_number("epochs", epochs, above=True, below=MOST + 1)
    return int(number) if number == int(number) else number


@dataclass(frozen=True)
class Training:
    """Settings of `GIST.fit`.

    These are also the keywords of `GIST.fit` and the options of `gistgnn train`, with the same
    defaults. Where `epochs` or `lr` is None, a run takes what suits its m and its widths, by
    `gistgnn.defaults.complete`.

    Args:
        epochs: E, passes over the training nodes, and fractions of them. Defaults to as many that
            each sub-GCN takes 100.
        local_steps: ζ, steps of every sub-GCN between two aggregations. Defaults to the longest
            round of 5 to 20 steps that leaves 4m rounds: a weight between two split layers is then
            trained in 4 of them on average.
        training: "split" gives every sub-GCN E/m epochs, so that all sub-GCNs together take as many
            steps as the baseline (section 2.2); "each" gives every sub-GCN all E epochs, m times
            the work.
        optimizer: "adam", "adamw" or "sgd"; or a class of `torch.optim`, or a function that is
            called as `optimizer(parameters, lr=lr)`, and with weight_decay and momentum if they are
            not 0.
        lr: learning rate at the start, at the base width of `GIST`, from which the rates of other
            widths follow. Defaults to 0.01. With `GIST(width_scaling="none")` it defaults to up to
            m times as much for sub-GCNs narrower than 256 features, at most 0.1.
        weight_decay: L2 penalty (Adam, SGD) or decoupled decay (AdamW).
        momentum: momentum of SGD; the other optimisers have none.
        schedule: "constant"; "step" divides the rate by 10 at 50 % and 75 % of the run; "cosine"
            lets it fall to zero; a function of the run's progress, from 0 to 1, that returns what
            lr is multiplied by; or a class of `torch.optim.lr_scheduler`, or a function with the
            argument `optimizer` that returns one.
        optimizer_state: "reset" starts a new optimiser in every round, as the authors' code does
            (the paper does not say); "carry" lets the moments travel with the parameters. With m =
            1 they are always kept: the baseline is ordinary training.
        precision: "float32"; "bf16": dense products in bfloat16, by torch's autocast. Parameters,
            moments, sparse products and the loss stay in float32. Processors without bfloat16
            arithmetic are slower with it.
        clip_norm: largest norm of a sub-GCN's gradient. Defaults to no limit.
        patience: stop after this many evaluations without a better validation score. Defaults to
            no limit.
        evaluate_every: rounds between evaluations; "auto": evaluation takes up to a tenth of the
            time of training; it is 1 with `patience`, which counts evaluations.
        budget: seconds that the run may take, in place of epochs: a narrow model is chosen by short
            trials, trained, and made as wide as the full one (see `gistgnn.fit.budget`). Defaults
            to no limit.
        loss: a name, or a function of (logits, targets); see `gistgnn.training.loss.Criterion`.
            Defaults to cross-entropy, to binary cross-entropy if nodes have several labels, and to
            "mse" for a regression.
        class_weights: "balanced", or a number for each class, which multiplies the loss of its
            nodes (or labels). "balanced" gives all classes the same weight in sum.
        label_smoothing: of the cross-entropy, as in torch.
        metric: the validation score that selects the best model: a name, a function of (logits,
            targets), a metric of torchmetrics, or a `Metric`. Defaults to accuracy, to micro F1 if
            nodes have several labels, and to "r2" for a regression.
    """

    epochs: Annotated[
        Annotated[float, Meta(gt=0, lt=MOST + 1)] | None, Meta(extra={"metavar": "E"})
    ] = None
    local_steps: Annotated[
        AtLeastOne | None, Meta(description="ζ, steps in a round", extra={"metavar": "N"})
    ] = None
    training: Annotated[
        Literal["split", "each"],
        Meta(description="E/m epochs for each sub-GCN, or E, which is m times the work"),
    ] = "split"
    optimizer: Annotated[OptimizerSetting, Meta(extra={"choices": NAMES["optimizer"]})] = "adam"
    lr: Annotated[
        Annotated[float, Meta(gt=0, lt=HIGHEST)] | None, Meta(description="learning rate")
    ] = None
    weight_decay: Annotated[float, Meta(ge=0, lt=1e6, extra={"metavar": "W"})] = 0.0
    momentum: Annotated[Fraction, Meta(description="of sgd")] = 0.0
    schedule: Annotated[
        ScheduleSetting,
        Meta(
            description="step divides the rate by 10 at 50 % and 75 % of the run",
            extra={"choices": NAMES["schedule"]},
        ),
    ] = "cosine"
    optimizer_state: Annotated[
        Literal["reset", "carry"],
        Meta(
            description="a new optimiser in every round, or moments that travel with the parameters"
        ),
    ] = "carry"
    precision: Annotated[
        Literal["float32", "bf16"], Meta(description="of dense products; parameters are float32")
    ] = "float32"
    clip_norm: Annotated[
        Annotated[float, Meta(gt=0, lt=1e30)] | None,
        Meta(description="largest norm of a gradient", extra={"metavar": "C"}),
    ] = None
    patience: Annotated[
        AtLeastOne | None,
        Meta(description="stop after K evaluations without a better score", extra={"metavar": "K"}),
    ] = None
    evaluate_every: Annotated[
        AtLeastOne | Literal["auto"],
        Meta(
            description="rounds between evaluations, or auto: evaluations take up to a tenth of "
            "the time",
            extra={"metavar": "K"},
        ),
    ] = "auto"
    budget: float | None = None
    loss: Annotated[
        LossSetting,
        Meta(
            description=f"{', '.join(CLASS_LOSSES)}, or package.module:function of (logits, "
            "targets)",
            extra={"metavar": "NAME"},
        ),
    ] = None
    class_weights: Annotated[
        WeightsSetting,
        Meta(description="balanced, or a number for each class", extra={"metavar": "W"}),
    ] = None
    label_smoothing: Annotated[
        Fraction, Meta(description="of the cross-entropy", extra={"metavar": "S"})
    ] = 0.0
    metric: Annotated[
        MetricSetting,
        Meta(
            description=f"score that selects the best model: {', '.join(CLASS_METRICS)}, or "
            "package.module:function",
            extra={"metavar": "NAME"},
        ),
    ] = None

    def __post_init__(self) -> None:
        if self.budget is not None:
            self._check_budget()
        check_settings(self)
        if self.epochs is not None:
            set_field(self, "epochs", as_epochs(self.epochs))
        if self.momentum and self.optimizer in ("adam", "adamw"):
            raise InputError(
                f"momentum is {self.momentum}, but the optimizer is {self.optimizer}: use sgd"
            )
        for name in NAMES:
            if (value := getattr(self, name)) is not None or name in ("optimizer", "schedule"):
                names.check_choice(name, value)
        if self.class_weights is not None:
            set_field(self, "class_weights", names.as_weights(self.class_weights))
        of_loss = [name for name in ("class_weights", "label_smoothing") if getattr(self, name)]
        if of_loss and is_users_own(self.loss):
            raise InputError(
                f"{of_loss[0]} is given beside the loss {named_as(self.loss)}: set it in that loss"
            )
        if callable(self.schedule):
            from gistgnn.training.optimizer import factor, scheduler_of

            if scheduler_of(self.schedule) is None:  # A scheduler is tried later.
                for progress in (0.0, 0.5):
                    factor(self.schedule, progress)

    def _check_budget(self) -> None:
        set_field(self, "budget", check_number("budget", self.budget, above=True, below=LONGEST))
        if self.epochs is not None:
            raise InputError("epochs is given beside a budget, which chooses it: leave one out")
        for name in ("local_steps", "evaluate_every"):
            if getattr(self, name) != getattr(Training, name):
                raise InputError(
                    f"{name} is given beside a budget, which chooses it: leave one out"
                )
        if self.schedule != "cosine":
            raise InputError(
                f"schedule is {named_as(self.schedule)!r}, but a budget trains by cosine cycles: "
                "leave it"
            )

    @property
    def first_lr(self) -> float:
        """The learning rate at the start: `lr`, or that of ordinary training if it is not given."""
        return LR if self.lr is None else self.lr

    @property
    def all_epochs(self) -> float:
        """E of the whole run, of settings that are complete (`gistgnn.defaults.complete`)."""
        assert self.epochs is not None, "a run completes its settings"
        return self.epochs

    @property
    def keeps_moments(self) -> bool:
        """Whether moments stay with Θ between rounds."""
        return self.optimizer_state == "carry"

    def as_dict(self) -> dict[str, Any]:
        """Return the settings as JSON holds them; newer ones are left out at their defaults."""
        entries = {}
        # A `Criterion` has the settings of which it was made.
        entries_of_loss = getattr(self.loss, "record", {})
        for field in fields(self):
            value = entries_of_loss.get(field.name, getattr(self, field.name))
            if field.name in NAMES:
                value = named_as(value)
            if field.name not in NEWER or value != field.default:
                entries[field.name] = value
        return entries

    def steps(self, steps_per_epoch: int, sub_gcns: int) -> int:
        """Return how many steps each sub-GCN takes in the whole run."""
        steps = self.all_epochs * steps_per_epoch
        return max(1, round(steps / sub_gcns if self.training == "split" else steps))

    def steps_in_round(self, steps: int, sub_gcns: int) -> int:
        """Return ζ, chosen if it is not given, where each of m sub-GCNs takes some steps."""
        if self.local_steps is not None:
            return self.local_steps
        if sub_gcns == 1:
            return LONGEST_ROUND
        rounds = ROUNDS_PER_SUB_GCN * sub_gcns
        return min(max(steps // rounds, SHORTEST_ROUND), LONGEST_ROUND)

    def rate_at(self, step: int, steps: int) -> float:
        """Return the learning rate of a step, counted from 0, of some steps."""
        import torch

        from gistgnn.training.optimizer import factor, recorded

        make = self._torch_scheduler
        if make is None:
            return self.first_lr * factor(self.schedule, step / steps)
        optimizer = self.make_optimizer([torch.nn.Parameter(torch.zeros(2, 2))])
        rates: list[float] = recorded(make, optimizer, steps).columns[0]["lr"]
        return rates[min(step, steps - 1)]

    def begin_step(self, optimizer: "Optimizer", step: int, steps: int) -> None:
        """Give an optimiser the learning rate of a step, counted from 0, of some steps.

        A scheduler of torch may set more, such as momentum.
        """
        from gistgnn.training.optimizer import RATE_FACTOR, recorded, set_rate

        make = self._torch_scheduler
        if make is not None:
            recorded(make, optimizer, steps).set(optimizer, step)
            return
        rate = self.rate_at(step, steps)
        for group in optimizer.param_groups:
            set_rate(group, rate * group.get(RATE_FACTOR, 1.0))

    @property
    def schedule_changes_rate_alone(self) -> bool:
        """Whether the schedule sets the learning rate alone, as a scheduler of torch may not."""
        return self._torch_scheduler is None

    @property
    def _torch_scheduler(self) -> "MakeScheduler | None":
        """The function that makes the user's scheduler of torch, if the schedule is one."""
        from gistgnn.training.optimizer import scheduler_of

        return None if self.schedule in NAMES["schedule"] else scheduler_of(self.schedule)

    def imported(self) -> "Training":
        """Return these settings with the optimiser and the schedule imported.

        They may be texts such as `module:name`. A run imports them once, before anything else, and
        tries to import the loss and the metric as well.

        Raises:
            InputError: one cannot be imported.
        """
        for name in ("loss", "metric"):
            names.find_named(name, getattr(self, name))
        optimizer = names.find_named("optimizer", self.optimizer)
        schedule = names.find_named("schedule", self.schedule)
        return replace(self, optimizer=optimizer, schedule=schedule)

    def make_optimizer(
        self, parameters: "Iterable[Tensor]", rate_factors: "Sequence[float] | None" = None
    ) -> "Optimizer":
        """Return a new optimiser of the parameters.

        Args:
            parameters: what it trains.
            rate_factors: the factors of the learning rate, one for each parameter, in order.
                Defaults to 1 for all.
        """
        from gistgnn.training.optimizer import CLASSES, eager, scale_rates

        parameters = list(parameters)
        make: Any = names.find_named("optimizer", self.optimizer)
        # A user's optimiser may lack an argument that is 0 here.
        arguments = {"weight_decay": self.weight_decay, "momentum": self.momentum}
        arguments = {name: value for name, value in arguments.items() if value}
        if isinstance(make, str):
            # `fused` makes a step one pass over the parameters, on the CPU as well. A weight decay
            # of 0 is passed on, too: it is not AdamW's own default.
            make = partial(eager(CLASSES[make]), weight_decay=self.weight_decay, fused=True)
        optimizer = make(parameters, lr=self.first_lr, **arguments)
        if rate_factors is not None:
            scale_rates(optimizer, dict(zip(parameters, rate_factors, strict=True)))
        return optimizer

    def autocast(self, device: "torch.device") -> "torch.autocast":
        """Return the context in which a step's forward pass and loss run."""
        import torch

        return torch.autocast(device.type, torch.bfloat16, enabled=self.precision == "bf16")
