"""A run's configuration: one of our models on one data set, and how it is trained."""

import json
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from gistgnn.baselines.registry import METHODS
from gistgnn.baselines.workers import independent
from gistgnn.distributed import World
from gistgnn.errors import InputError
from gistgnn.evaluation import Evaluation
from gistgnn.gist import GIST
from gistgnn.graphs import Graph, Standardisation
from gistgnn.nn import MODELS
from gistgnn.sampling import Sampling, describe
from gistgnn.session.result import Result
from gistgnn.theta.store import Store

THETA = "theta"  # the folder, in the run's, of a Θ in files


@dataclass(frozen=True)
class ModelConfig:
    """One of the models of `gistgnn.nn`.

    Args:
        name: "gcn", "graphsage" or "gat".
        hidden: d_1, d_2, ...: features of each hidden layer (of each head, for GAT).
        dropout: on hidden features.
        norm: "none", "layer" or "batch".
        heads: attention heads of GAT.
    """

    name: str = "gcn"
    hidden: tuple[int, ...] = (256, 256)
    dropout: float = 0.5
    norm: str = "none"
    heads: int = 4

    @property
    def layers(self) -> int:
        """Graph layers, the output layer included."""
        return len(self.hidden) + 1

    def build(self, in_features: int, hidden: tuple[int, ...], classes: int) -> nn.Module:
        """Return the model at the given sizes."""
        options: dict[str, Any] = {"dropout": self.dropout, "norm": self.norm}
        if self.name == "gat":
            options["heads"] = self.heads
        return MODELS[self.name](in_features, hidden, classes, **options)


@dataclass(frozen=True)
class RunConfig:
    """Everything that decides a run's result.

    Args:
        dataset: a known name, or the path of a graph file.
        model: the model.
        sub_gcns: m; of other methods than "gist", how many workers or members there are.
        method: how it is trained: "gist", or one of `gistgnn.baselines`.
        partitioned: the dimensions d_l that are split into blocks, 0 for the input features; None: all hidden ones.
        partition: "balanced" or "categorical".
        seed: of initial parameters, blocks and dropout.
        device: where it runs.
        training: settings of `gistgnn.Training`.
        sampler: how batches are made; None: every step sees the whole graph.
        runner: where the sub-GCNs of a round train, "in-turn" or "fused".
        inductive: training sees the training nodes' subgraph alone.
        standardise: features are scaled to mean 0 and deviation 1 over the training nodes.
        evaluation: how models are run on the whole graph.
        store: where Θ is between rounds, "memory", "host", "mapped" or "sharded".
        store_precision: of the numbers in the files of "mapped", "float32" or "bf16".
    """

    dataset: str
    model: ModelConfig = field(default_factory=ModelConfig)
    sub_gcns: int = 1
    method: str = "gist"
    partitioned: tuple[int, ...] | None = None
    partition: str = "balanced"
    seed: int = 0
    device: str = "cpu"
    training: dict[str, Any] = field(default_factory=dict)
    sampler: Sampling | None = None
    runner: str = "in-turn"
    inductive: bool = False
    standardise: bool = False
    evaluation: Evaluation = field(default_factory=Evaluation)
    store: str = "memory"
    store_precision: str = "float32"

    @property
    def identity(self) -> dict[str, Any]:
        """What tells this run from another, as JSON gives it back: not where Θ is, nor how it is evaluated exactly."""
        fields: dict[str, Any] = json.loads(json.dumps(self.as_dict()))
        del fields["evaluation"], fields["store"]
        if self.method == "gist":  # as runs were described before there were others
            del fields["method"]
        return {**fields, "evaluation": how} if (how := self.evaluation.approximation) else fields

    def as_dict(self) -> dict[str, Any]:
        """What result.json holds of it."""
        fields = {**asdict(self), "sampler": describe(self.sampler)}
        if self.method == "ensemble":  # whose members keep their moments
            fields["training"] = {**self.training, "optimizer_state": "carry"}
        return fields

    @property
    def goes_on_from(self) -> dict[str, Any]:
        """What a run that is resumed has in common with what it goes on from: any runner may go on."""
        return {key: value for key, value in self.identity.items() if key != "runner"}

    @property
    def partitioned_dims(self) -> set[int]:
        """The dimensions d_l that are split into blocks."""
        return set(range(1, len(self.model.hidden) + 1) if self.partitioned is None else self.partitioned)

    def trainer(self, features: int, classes: int, out: Path | None = None, ranks: World | None = None) -> GIST:
        """Return what trains this run: `GIST`, or one of `gistgnn.baselines`.

        Args:
            features: of the graph's nodes.
            classes: of the graph.
            out: the run's directory, where a Θ in files lies.
            ranks: the processes that train together.

        Raises:
            InputError: a method that there is not, a partitioned dimension that the model does not have, or a value out
                of range.
        """
        if self.method not in METHODS:
            raise InputError(f"method is '{self.method}', expected one of {', '.join(METHODS)}")
        if not METHODS[self.method].splits:
            independent(self.sampler, self.method)  # refuses the whole graph before anything is trained
        layers = len(self.model.hidden)
        partitioned = self.partitioned_dims
        if unknown := sorted(partitioned - set(range(layers + 1))):
            raise InputError(f"d_{unknown[0]} cannot be partitioned: the model has d_0 (inputs) to d_{layers}")
        first = 0 if 0 in partitioned else 1  # the axes are d_first, d_first+1, ...

        def build(widths: tuple[int, ...]) -> nn.Module:
            return self.model.build(*((features, widths) if first else (widths[0], widths[1:])), classes)

        split: dict[str, Any] = (
            {}
            if not METHODS[self.method].splits
            else {
                "input_axis": None if first else 0,
                "whole": [dim - first for dim in range(first, layers + 1) if dim not in partitioned],
                "partition": self.partition,
            }
        )
        return METHODS[self.method].load()(
            build,
            self.model.hidden if first else (features, *self.model.hidden),
            self.sub_gcns,
            **split,
            seed=self.seed,
            device=self.device,
            store=Store.in_run(self.store, out / THETA if out else None, self.store_precision),
            ranks=ranks,
            axis_names=[f"d_{dim}" for dim in range(first, layers + 1)],
        )

    @property
    def planned(self) -> "RunConfig":
        """The run of GIST that takes as much memory."""
        if self.method == "data-parallel":
            return replace(self, sub_gcns=1, method="gist")
        if self.method == "local-sgd":
            return replace(self, partitioned=(), method="gist")
        carried = {**self.training, "optimizer_state": "carry"}
        return replace(self, training=carried, method="gist") if self.method == "ensemble" else self

    def meta_model(self, features: int, classes: int) -> nn.Module:
        """Return the model that the run ends with, at these sizes, on the meta device."""
        if self.method == "ensemble":
            return self.trainer(features, classes).spec.on_meta()
        with torch.device("meta"):
            return self.model.build(features, self.model.hidden, classes)

    def scale(self, graph: Graph) -> Standardisation | None:
        """Return how the graph's features are to be scaled before `gist` and `fit` see it, or None."""
        return Standardisation.of(graph) if self.standardise else None

    def fit(self, gist: GIST, graph: Graph, **hooks: Any) -> Result:
        """Train by these settings; `hooks` are the arguments of `GIST.fit` that do not change the result."""
        return gist.fit(
            graph,
            sampler=self.sampler,
            runner=self.runner,
            inductive=self.inductive,
            evaluation=self.evaluation,
            **hooks,
            **self.training,
        )
