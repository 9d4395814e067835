"""A run of one of our models on one data set, and the directory that it leaves behind.

DIR holds result.json (settings, scores, history), model.safetensors (the model at its best validation score, or its
shards and their index, see `gistgnn.model_files`), curves.png, report.html; features.safetensors, where features are
standardised; and, while the run is not finished, checkpoints/ and, where Θ is in files, theta/.
"""

import json
import re
import shutil
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from gistgnn.baselines import METHODS, UNSPLIT, independent
from gistgnn.checkpoint import Checkpoints
from gistgnn.distributed import Ranks
from gistgnn.errors import InputError, reason
from gistgnn.files import replacing
from gistgnn.gist import GIST
from gistgnn.graphs import Graph, Standardisation
from gistgnn.inference import Evaluation
from gistgnn.inference.available import available_bytes
from gistgnn.model_files import find_model, write_model
from gistgnn.nn import MODELS
from gistgnn.report import REPORT, write_report
from gistgnn.result import Result
from gistgnn.sampling import Sampling, describe, described
from gistgnn.stored import LARGE, stored_model
from gistgnn.theta import Store, build_on_meta

RESULT, CURVES = "result.json", "curves.png"
FEATURES = "features.safetensors"  # how they are standardised
CHECKPOINTS, THETA = "checkpoints", "theta"  # folders of a run that goes on, the second of a Θ in files


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
        return {**asdict(self), "sampler": describe(self.sampler)}

    @property
    def goes_on_from(self) -> dict[str, Any]:
        """What a run that is resumed has in common with what it goes on from: any runner may go on."""
        return {key: value for key, value in self.identity.items() if key != "runner"}

    @property
    def partitioned_dims(self) -> set[int]:
        """The dimensions d_l that are split into blocks."""
        return set(range(1, len(self.model.hidden) + 1) if self.partitioned is None else self.partitioned)

    def trainer(self, features: int, classes: int, out: Path | None = None, ranks: Ranks | None = None) -> GIST:
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
        if self.method in UNSPLIT:
            independent(self.sampler, self.method)  # refuses the whole graph before anything is trained
        layers = len(self.model.hidden)
        partitioned = self.partitioned_dims
        if unknown := sorted(partitioned - set(range(layers + 1))):
            raise InputError(f"d_{unknown[0]} cannot be partitioned: the model has d_0 (inputs) to d_{layers}")
        first = 0 if 0 in partitioned else 1  # the axes are d_first, d_first+1, ...

        def build(widths: tuple[int, ...]) -> nn.Module:
            return self.model.build(*((features, widths) if first else (widths[0], widths[1:])), classes)

        folder = out / THETA if out and self.store == "mapped" else None
        split: dict[str, Any] = (
            {}
            if self.method in UNSPLIT
            else {
                "input_axis": None if first else 0,
                "whole": [dim - first for dim in range(first, layers + 1) if dim not in partitioned],
                "partition": self.partition,
            }
        )
        return METHODS[self.method](
            build,
            self.model.hidden if first else (features, *self.model.hidden),
            self.sub_gcns,
            **split,
            seed=self.seed,
            device=self.device,
            store=Store(self.store, folder, self.store_precision),
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
            what = self.trainer(features, classes).what()
            return build_on_meta(what.build, what.widths, shared=what.shared)
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


def result_json(config: RunConfig, graph: Graph, result: Result, data_root: str) -> dict[str, Any]:
    """Return what result.json holds."""
    sizes = {
        "name": graph.name,
        "nodes": graph.num_nodes,
        "edges": graph.num_edges,
        "features": graph.num_features,
        "classes": graph.num_classes,
        "multi_label": graph.multi_label,
    }
    return {"config": config.as_dict(), "data_root": data_root, "graph": sizes, **result.as_dict()}


def write_run(out: Path, record: dict[str, Any], model: nn.Module, scale: Standardisation | None = None) -> None:
    """Write a finished run into its directory, result.json last: where it stands, the rest stands too."""
    from gistgnn.plots import plot_curves  # matplotlib is slow to import
    from gistgnn.report.run import run_page

    write_model(out, model.state_dict())
    if scale:
        scale.save(out / FEATURES)
    else:
        (out / FEATURES).unlink(missing_ok=True)  # of a run that this one replaces
    with replacing(out / CURVES) as path:
        plot_curves(record, path)
    write_report(out / REPORT, run_page(record))
    with replacing(out / RESULT) as path:
        path.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    Checkpoints(out / CHECKPOINTS).remove()
    shutil.rmtree(out / THETA, ignore_errors=True)


def read_record(out: Path) -> dict[str, Any]:
    """Read a run's result.json.

    Raises:
        InputError: it is not there, or not a result of gistgnn.
    """
    try:
        record = json.loads((out / RESULT).read_text())
        config_of(record)
    except FileNotFoundError as error:
        raise InputError(f"{out} holds no {RESULT}: give the directory of a finished `gistgnn train` run") from error
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{out / RESULT} cannot be read ({error}): train the run again") from error
    return record


def config_of(record: dict[str, Any]) -> RunConfig:
    """The configuration in a result.json that `read_record` has read, older ones included."""
    fields = dict(record["config"])
    model = dict(fields.pop("model"))
    model["hidden"] = tuple(model["hidden"])
    return RunConfig(
        model=ModelConfig(**model),
        sampler=described(fields.pop("sampler", None)),
        evaluation=Evaluation(**fields.pop("evaluation", {})),
        **fields,
    )


def load_run(out: Path) -> tuple[RunConfig, dict[str, Any], nn.Module]:
    """Return a finished run's configuration, result.json and trained model, in evaluation mode.

    Of a model that would take more than a quarter of the memory that is available, the large weights stay in their
    files (see `gistgnn.stored.stored_model`).

    Raises:
        InputError: a file is missing, unreadable, or does not fit the others.
    """
    record = read_record(out)
    config = config_of(record)
    try:
        sizes = record["graph"]
        model = config.meta_model(sizes["features"], sizes["classes"])
    except (KeyError, TypeError) as error:
        raise InputError(f"{out / RESULT} does not describe a model ({reason(error)}): train the run again") from error
    taken = sum(tensor.nbytes for tensor in model.state_dict().values())
    wide = taken > available_bytes(torch.device("cpu")) // 4
    return config, record, stored_model(model, find_model(out), above=LARGE if wide else None)


def scale_features(out: Path, config: RunConfig, x: Tensor) -> Tensor:
    """Scale the features of a graph, [N, F], as those that a finished run was trained on.

    Raises:
        InputError: they are of another number, or the file that says how cannot be read.
    """
    return Standardisation.load(out / FEATURES).features(x) if config.standardise else x


def choose_device(name: str) -> str:
    """Return the device that a name stands for: "auto" is the GPU where there is one.

    Raises:
        InputError: a device that torch does not know, or CUDA where there is none.
    """
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if not re.fullmatch(r"cpu|cuda(:\d+)?", name):
        raise InputError(f"device is '{name}', expected auto, cpu, cuda or cuda:N")
    if name != "cpu" and (torch.device(name).index or 0) >= torch.cuda.device_count():
        raise InputError(f"device is '{name}', but torch finds {torch.cuda.device_count()} GPUs here: use --device cpu")
    return name
