"""A run's configuration: one of our models on one data set, and how it is trained.

Torch and what needs it are imported inside the functions, so that the command line reads the
defaults here quickly.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta

from gistgnn.baselines.registry import METHODS, UNSPLIT
from gistgnn.defaults import DROPOUT, complete
from gistgnn.errors import InputError, users_code
from gistgnn.nn import MODELS, WITH_HEADS
from gistgnn.runners.registry import RUNNERS
from gistgnn.settings import BASE_WIDTH, PRECISIONS, WIDTH_SCALINGS, Training
from gistgnn.theta.registry import SHARDED, SHARES, STORES
from gistgnn.training.names import find_named
from gistgnn.utils.checks import (
    MOST,
    AtLeastOne,
    Fraction,
    Seed,
    Width,
    check_choice,
    check_settings,
)

if TYPE_CHECKING:
    from torch import nn

    from gistgnn.distributed import World
    from gistgnn.evaluation import Evaluation
    from gistgnn.fit.identity import Fingerprint
    from gistgnn.fit.result import Result
    from gistgnn.gist import GIST
    from gistgnn.graphs import Graph
    from gistgnn.sampling import Sampling

THETA = "theta"  # the folder, inside the run folder, of a Θ on disk


def call_own(
    name: str,
    function: Callable[..., Any],
    features: int,
    hidden: tuple[int, ...],
    classes: int,
    args: dict[str, Any],
) -> "nn.Module":
    """Return the model of a function of the user's own, as the command line calls it."""
    keywords = "".join(f", {name}={value!r}" for name, value in args.items())
    called = f"called as {name.rpartition(':')[2]}({features}, {hidden}, {classes}{keywords})"
    expected = (
        "it has to build a model from (in_features, hidden, classes), where hidden is a "
        "tuple of any widths"
    )
    with users_code(f"the model {name}, {called}, fails", expected):
        model: nn.Module = function(features, hidden, classes, **args)
    return model


@dataclass(frozen=True)
class ModelConfig:
    """One of the models of `gistgnn.nn`, or a function of the user's own.

    The function needs `hidden` and `args` alone.
    """

    name: Annotated[
        str,
        Meta(
            description="or package.module:function or path/to/file.py:function, called with "
            "(in_features, hidden, classes)",
            extra={"metavar": f"{{{','.join(MODELS)}}}"},
        ),
    ] = "gcn"
    hidden: Annotated[
        tuple[Width, ...],
        Meta(
            description="width of each hidden layer (of each head, for gat and gatv2)",
            extra={"metavar": "D"},
        ),
    ] = (256, 256)
    dropout: Annotated[Fraction, Meta(description="on hidden features")] = DROPOUT
    norm: Annotated[
        str,
        Meta(
            description="whole: one mean over all nodes and features",
            extra={"choices": ("none", "layer", "batch", "whole")},
        ),
    ] = "none"
    heads: Annotated[int, Meta(ge=1, le=10_000, description="attention heads of gat and gatv2")] = 4
    activation: Annotated[
        str, Meta(description="after hidden layers", extra={"choices": ("relu", "elu")})
    ] = "relu"
    attention_dropout: Annotated[
        Fraction | None,
        Meta(
            description="on the attention of gat and gatv2; default: as --dropout",
            extra={"metavar": "P"},
        ),
    ] = None
    args: Annotated[
        dict[str, Any],
        Meta(
            description="keywords for a function of --model, such as alpha=0.1 name=x; values are "
            "JSON, or else text",
            extra={"metavar": "K=V"},
        ),
    ] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_settings(self)

    @property
    def own(self) -> bool:
        return ":" in self.name

    @property
    def layers(self) -> int:
        """Graph layers, the output layer included."""
        return len(self.hidden) + 1

    def build(self, in_features: int, hidden: tuple[int, ...], classes: int) -> "nn.Module":
        if self.own:
            return call_own(
                self.name, find_named("model", self.name), in_features, hidden, classes, self.args
            )
        options: dict[str, Any] = {
            "dropout": self.dropout,
            "norm": self.norm,
            "activation": self.activation,
        }
        if self.name in WITH_HEADS:
            options |= {"heads": self.heads, "attention_dropout": self.attention_dropout}
        return MODELS[self.name](in_features, hidden, classes, **options)

    def as_dict(self) -> dict[str, Any]:
        fields = asdict(self)
        if self.own:
            return {key: fields[key] for key in ("name", "hidden", "args")}
        unused = {"args"} if self.name in WITH_HEADS else {"args", "heads"}
        newer = {"activation": "relu", "attention_dropout": None}  # records without them have these
        unused |= {key for key, value in newer.items() if fields[key] == value}
        return {key: value for key, value in fields.items() if key not in unused}


@dataclass(frozen=True)
class RunConfig:
    """Everything that decides a run's result."""

    dataset: str  # a known name, or the path of a graph file
    model: ModelConfig = field(default=ModelConfig())
    sub_gcns: Annotated[
        AtLeastOne, Meta(description="m; 1 is the baseline", extra={"metavar": "M"})
    ] = 1
    method: Annotated[
        str,
        Meta(
            description="gist; parts: M narrow models that train by themselves, joined at the end; "
            "or what these are compared with, on M workers: data parallel (gradients averaged at "
            "every step), local SGD (full models averaged after N steps), an ensemble of M narrow "
            "models",
            extra={"choices": METHODS},
        ),
    ] = "gist"
    partitioned: Annotated[
        tuple[Annotated[int, Meta(ge=0, le=MOST)], ...] | None,
        Meta(
            description="the dimensions d_L that are split into blocks, 0 for the input features",
            extra={"metavar": "L"},
        ),
    ] = None
    partition: str = "balanced"  # or "categorical"
    width_scaling: Annotated[
        str,
        Meta(
            description="mup: every tensor has the learning rate and initial values of its width, "
            "so one rate suits all widths; none: all have the same",
            extra={"choices": WIDTH_SCALINGS},
        ),
    ] = "mup"
    base_width: Annotated[
        AtLeastOne,
        Meta(description="the width at which the learning rate was chosen", extra={"metavar": "N"}),
    ] = BASE_WIDTH
    init: Annotated[
        str | None,
        Meta(
            description="begin with the best model of this finished run, made wider if its widths "
            "are a fraction",
            extra={"metavar": "DIR"},
        ),
    ] = None
    seed: Seed = 0
    device: str = "cpu"
    training: Training = field(default=Training())  # complete in a configuration
    sampler: "Sampling | None" = None
    runner: Annotated[
        str,
        Meta(
            description="auto: the sub-GCNs take a step on each batch, one after another; in-turn: "
            "each takes all its steps of a round before the next, with the same result; fused: all "
            "in one pass over each batch",
            extra={"choices": RUNNERS},
        ),
    ] = "auto"
    inductive: Annotated[
        bool, Meta(description="train on the subgraph of the training nodes; scores are of all")
    ] = False
    # By default features are scaled unless they are words (`Standardisation.suits`).
    standardise: Annotated[
        bool | None,
        Meta(description="scale features to mean 0, deviation 1 over training nodes"),
    ] = None
    evaluation: "Evaluation" = field(
        default_factory=lambda: resolve_name("gistgnn.evaluation:Evaluation")()
    )
    store: Annotated[
        str,
        Meta(
            description="where Θ lies between rounds; "
            f"{'; '.join(f'{name}: {place.help}' for name, place in STORES.items())}",
            extra={"choices": (*STORES, SHARDED)},
        ),
    ] = "memory"
    share: Annotated[
        str,
        Meta(
            description="what a rank of torchrun holds of Θ: all of it, or 1/W of its rows; "
            "--store sharded is memory by rows",
            extra={"choices": SHARES},
        ),
    ] = "whole"
    store_precision: Annotated[
        str,
        Meta(description="type of the numbers in the files of disk", extra={"choices": PRECISIONS}),
    ] = "float32"

    def __post_init__(self) -> None:
        check_settings(self)
        if self.store == SHARDED:
            object.__setattr__(self, "store", "memory")
            object.__setattr__(self, "share", "rows")
        training = complete(self.training, self.sub_gcns, self._split_widths)
        object.__setattr__(self, "training", training)

    def as_dict(self) -> dict[str, Any]:
        from gistgnn.sampling import describe

        return {
            **asdict(self),
            "model": self.model.as_dict(),
            "training": self.training.as_dict(),
            "sampler": describe(self.sampler),
        }

    @property
    def partitioned_dims(self) -> set[int]:
        """The dimensions d_l that are split into blocks."""
        return set(
            range(1, len(self.model.hidden) + 1) if self.partitioned is None else self.partitioned
        )

    @property
    def _split_widths(self) -> list[int]:
        """The widths of the hidden layers that are split into blocks, for `complete`.

        It is empty where learning rates follow the widths by muP.
        """
        if self.method in UNSPLIT or self.sub_gcns == 1 or self.width_scaling == "mup":
            return []
        return [
            width for dim, width in enumerate(self.model.hidden, 1) if dim in self.partitioned_dims
        ]

    def trainer(
        self, features: int, classes: int, out: Path | None = None, ranks: "World | None" = None
    ) -> "GIST":
        """Return the `GIST` or the baseline that trains this run.

        A Θ on disk lies in the run folder `out`.
        """
        from gistgnn.fit.prepare import with_independent_batches
        from gistgnn.theta.registry import Store

        check_choice("method", self.method, METHODS)
        if self.method in UNSPLIT:
            # The whole graph is refused here, before anything is trained.
            with_independent_batches(self.sampler, self.method)
        layers = len(self.model.hidden)
        partitioned = self.partitioned_dims
        if unknown := sorted(partitioned - set(range(layers + 1))):
            raise InputError(
                f"d_{unknown[0]} cannot be partitioned: the model has d_0 (inputs) to d_{layers}"
            )
        # The axes of the model are d_first, d_first+1, ...: the inputs are one if they are split.
        first = 0 if 0 in partitioned else 1

        def build(widths: tuple[int, ...]) -> "nn.Module":
            if first == 0:
                return self.model.build(widths[0], widths[1:], classes)
            return self.model.build(features, widths, classes)

        options: dict[str, Any] = {}
        if self.method not in UNSPLIT:
            whole_axes = [dim - first for dim in range(first, layers + 1) if dim not in partitioned]
            options = {
                "input_axis": 0 if first == 0 else None,
                "whole": whole_axes,
                "partition": self.partition,
            }
        trainer: GIST = METHODS[self.method](
            build,
            (features, *self.model.hidden) if first == 0 else self.model.hidden,
            self.sub_gcns,
            **options,
            seed=self.seed,
            device=self.device,
            store=Store.in_run(
                self.store, out / THETA if out else None, self.store_precision, self.share
            ),
            ranks=ranks,
            axis_names=[f"d_{dim}" for dim in range(first, layers + 1)],
            width_scaling=self.width_scaling,
            base_width=self.base_width,
        )
        return trainer

    def fit(self, gist: "GIST", graph: "Graph", **hooks: Any) -> "Result":
        """Train with these settings.

        `hooks` are the arguments of `GIST.fit` that do not change the result.
        """
        return gist.fit(graph, self.training, **{**self._fit_arguments, **hooks})

    def fingerprint(self, gist: "GIST", graph: "Graph", **hooks: Any) -> "Fingerprint":
        """Return the fingerprint of this run; for the arguments see `fit`."""
        return gist.fingerprint(graph, self.training, **{**self._fit_arguments, **hooks})

    @property
    def _fit_arguments(self) -> dict[str, Any]:
        """The arguments of `GIST.fit` that decide the result, beside the settings of training."""
        return {
            name: getattr(self, name)
            for name in ("sampler", "runner", "inductive", "evaluation", "standardise")
        }
