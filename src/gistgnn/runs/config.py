"""A run's configuration: one of our models on one data set, and how it is trained.

Torch and what needs it are imported inside the functions, so that the command line reads the defaults here quickly.
"""

import json
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gistgnn.errors import InputError
from gistgnn.settings import Training
from gistgnn.training.names import find

if TYPE_CHECKING:
    from torch import nn

    from gistgnn.distributed import World
    from gistgnn.evaluation import Evaluation
    from gistgnn.fit.result import Result
    from gistgnn.gist import GIST
    from gistgnn.graphs import Graph, Standardisation
    from gistgnn.sampling import Sampling

THETA = "theta"  # the folder, inside the run folder, of a Θ on disk


def _default_evaluation() -> "Evaluation":
    from gistgnn.evaluation import Evaluation

    return Evaluation()


@dataclass(frozen=True)
class ModelConfig:
    """One of the models of `gistgnn.nn`, or one of the user's own.

    Args:
        name: one of `gistgnn.nn.MODELS`; or `package.module:function` or `path/to/file.py:function`, a function that
            is called with (in_features, hidden, classes) and returns a module. Of the values below, only `hidden` and
            `args` are used then.
        hidden: d_1, d_2, ...: features of each hidden layer (of each head, for GAT and GATv2).
        dropout: on hidden features.
        norm: "none", "layer" or "batch".
        heads: attention heads of GAT and GATv2.
        args: keywords for a function of the user's own.
    """

    name: str = "gcn"
    hidden: tuple[int, ...] = (256, 256)
    dropout: float = 0.5
    norm: str = "none"
    heads: int = 4
    args: dict[str, Any] = field(default_factory=dict)

    @property
    def own(self) -> bool:
        """Whether it is the user's own."""
        return ":" in self.name

    @property
    def layers(self) -> int:
        """Graph layers, the output layer included."""
        return len(self.hidden) + 1

    def build(self, in_features: int, hidden: tuple[int, ...], classes: int) -> "nn.Module":
        """Return the model at the given sizes."""
        if self.own:
            model: nn.Module = find("model", self.name)(in_features, hidden, classes, **self.args)
            return model
        from gistgnn.nn import MODELS, WITH_HEADS

        options: dict[str, Any] = {"dropout": self.dropout, "norm": self.norm}
        if self.name in WITH_HEADS:
            options["heads"] = self.heads
        return MODELS[self.name](in_features, hidden, classes, **options)

    def as_dict(self) -> dict[str, Any]:
        """Return what result.json holds of the model."""
        fields = asdict(self)
        if self.own:
            return {key: fields[key] for key in ("name", "hidden", "args")}
        del fields["args"]
        return fields


@dataclass(frozen=True)
class RunConfig:
    """Everything that decides a run's result.

    Args:
        dataset: a known name, or the path of a graph file.
        model: the model.
        sub_gcns: m; for other methods than "gist", the number of workers or members.
        method: how the model is trained: "gist", or one of `gistgnn.baselines`.
        partitioned: the dimensions d_l that are split into blocks, 0 for the input features; None: all hidden ones.
        partition: "balanced" or "categorical".
        seed: initial parameters, blocks and dropout follow from it.
        device: where the sub-GCNs train.
        training: the settings of training.
        sampler: how batches are made; None: every step sees the whole graph.
        runner: how the sub-GCNs of a round train, "auto", "in-turn" or "fused" (see `GIST.fit`).
        inductive: train on the subgraph of the training nodes alone.
        standardise: scale features to mean 0 and deviation 1 over the training nodes; None: unless they are words (see
            `gistgnn.graphs.Standardisation.suits`).
        evaluation: how models are run on the whole graph.
        store: where Θ lies between rounds, "memory", "host", "disk" or "sharded".
        store_precision: type of the numbers in the files of "disk", "float32" or "bf16".
    """

    dataset: str
    model: ModelConfig = field(default=ModelConfig())
    sub_gcns: int = 1
    method: str = "gist"
    partitioned: tuple[int, ...] | None = None
    partition: str = "balanced"
    seed: int = 0
    device: str = "cpu"
    training: Training = field(default=Training(epochs=400, schedule="cosine", optimizer_state="carry"))
    sampler: "Sampling | None" = None
    runner: str = "auto"
    inductive: bool = False
    standardise: bool | None = False
    evaluation: "Evaluation" = field(default_factory=_default_evaluation)
    store: str = "memory"
    store_precision: str = "float32"

    def as_dict(self) -> dict[str, Any]:
        """Return what result.json holds of the configuration."""
        from gistgnn.sampling import describe

        return {
            **asdict(self),
            "model": self.model.as_dict(),
            "training": self._effective_training.as_dict(),
            "sampler": describe(self.sampler),
        }

    @property
    def identity(self) -> dict[str, Any]:
        """What distinguishes this run from others, as JSON; where Θ lies and how it is evaluated exactly do not."""
        fields: dict[str, Any] = json.loads(json.dumps(self.as_dict()))
        del fields["evaluation"], fields["store"]
        if self.method == "gist":  # older records of GIST name no method
            del fields["method"]
        return {**fields, "evaluation": how} if (how := self.evaluation.approximation) else fields

    @property
    def resume_identity(self) -> dict[str, Any]:
        """What a resumed run must have in common with the interrupted one: all but the runner."""
        return {key: value for key, value in self.identity.items() if key != "runner"}

    @property
    def partitioned_dims(self) -> set[int]:
        """The dimensions d_l that are split into blocks."""
        return set(range(1, len(self.model.hidden) + 1) if self.partitioned is None else self.partitioned)

    @property
    def planned(self) -> "RunConfig":
        """The run of GIST that takes as much memory as this one; with a budget, the least that may be chosen."""
        if self.training.budget:
            from gistgnn.fit.budget import even_parts, with_cycles

            m = even_parts([width for dim, width in enumerate(self.model.hidden, 1) if dim in self.partitioned_dims])[
                -1
            ]
            return replace(self, sub_gcns=m, training=with_cycles(self.training, m, [1], 1))
        if self.method == "data-parallel":
            return replace(self, sub_gcns=1, method="gist")
        if self.method == "local-sgd":
            return replace(self, partitioned=(), method="gist")
        return replace(self, training=self._effective_training, method="gist")

    @property
    def _effective_training(self) -> Training:
        """The settings in use: the members of an ensemble always keep their moments."""
        return replace(self.training, optimizer_state="carry") if self.method == "ensemble" else self.training

    def trainer(self, features: int, classes: int, out: Path | None = None, ranks: "World | None" = None) -> "GIST":
        """Return the object that trains this run: a `GIST`, or one of `gistgnn.baselines`.

        Args:
            features: number of features of a node.
            classes: number of classes of the graph.
            out: the run folder; a Θ on disk lies in it.
            ranks: the processes that train together; None: this one alone.
        """
        from gistgnn.baselines.registry import METHODS
        from gistgnn.fit.prepare import independent
        from gistgnn.theta.registry import Store

        if self.method not in METHODS:
            raise InputError(f"method is '{self.method}', expected one of {', '.join(METHODS)}")
        method = METHODS[self.method]
        if not method.splits:
            independent(self.sampler, self.method)  # refuses the whole graph before anything is trained
        layers, partitioned = len(self.model.hidden), self.partitioned_dims
        if unknown := sorted(partitioned - set(range(layers + 1))):
            raise InputError(f"d_{unknown[0]} cannot be partitioned: the model has d_0 (inputs) to d_{layers}")
        first = 0 if 0 in partitioned else 1  # the axes are d_first, d_first+1, ...

        def build(widths: tuple[int, ...]) -> "nn.Module":
            return self.model.build(*((features, widths) if first else (widths[0], widths[1:])), classes)

        options: dict[str, Any] = {}
        if method.splits:
            whole = [dim - first for dim in range(first, layers + 1) if dim not in partitioned]
            options = {"input_axis": None if first else 0, "whole": whole, "partition": self.partition}
        trainer: GIST = method.load()(
            build,
            self.model.hidden if first else (features, *self.model.hidden),
            self.sub_gcns,
            **options,
            seed=self.seed,
            device=self.device,
            store=Store.in_run(self.store, out / THETA if out else None, self.store_precision),
            ranks=ranks,
            axis_names=[f"d_{dim}" for dim in range(first, layers + 1)],
        )
        return trainer

    def meta_model(self, features: int, classes: int) -> "nn.Module":
        """Return the model that the run ends with, at these sizes, on the meta device."""
        import torch

        from gistgnn.layout.axes import construct

        if self.method == "ensemble":
            return self.trainer(features, classes)._spec.on_meta()
        with torch.device("meta"):
            return construct(
                lambda widths: self.model.build(features, widths, classes), self.model.hidden, shared=False
            )

    def scale(self, graph: "Graph") -> "Standardisation | None":
        """Return how the features of the graph have to be scaled before training; None: not at all."""
        from gistgnn.graphs import Standardisation

        wanted = Standardisation.suits(graph.x) if self.standardise is None else self.standardise
        return Standardisation.of(graph) if wanted else None

    def fit(self, gist: "GIST", graph: "Graph", **hooks: Any) -> "Result":
        """Train with these settings; `hooks` are the arguments of `GIST.fit` that do not change the result."""
        same_names = {name: getattr(self, name) for name in ("sampler", "runner", "inductive", "evaluation")}
        return gist.fit(graph, self.training, **same_names, **hooks)
