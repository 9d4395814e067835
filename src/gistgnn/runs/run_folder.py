"""A run of one of our models on one data set, and the directory that it leaves behind.

DIR holds result.json (settings, scores, history), model.safetensors (the model at its best validation score, or its
shards and their index, see `gistgnn.io.models`), curves.png, report.html; features.safetensors, where features are
standardised; and, while the run is not finished, checkpoints/ and, where Θ is in files, theta/.
"""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from gistgnn.checkpoint import Checkpoints
from gistgnn.runs.config import THETA, ModelConfig, RunConfig
from gistgnn.errors import InputError, reason
from gistgnn.io.whole_files import replacing
from gistgnn.graphs import Graph, Standardisation
from gistgnn.evaluation import Evaluation
from gistgnn.utils.available import available_bytes
from gistgnn.io.models import find_model, write_model
from gistgnn.report import REPORT, write_report
from gistgnn.session.result import Result
from gistgnn.sampling import from_description
from gistgnn.io.stored_model import LARGE, stored_model

RESULT, CURVES = "result.json", "curves.png"
FEATURES = "features.safetensors"  # how they are standardised
CHECKPOINTS = "checkpoints"  # folder of a run that goes on


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
    from gistgnn.report.plots import plot_curves  # matplotlib is slow to import
    from gistgnn.report.run_page import run_page

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
        sampler=from_description(fields.pop("sampler", None)),
        evaluation=Evaluation(**fields.pop("evaluation", {})),
        **fields,
    )


def load_run(out: Path) -> tuple[RunConfig, dict[str, Any], nn.Module]:
    """Return a finished run's configuration, result.json and trained model, in evaluation mode.

    Of a model that would take more than a quarter of the memory that is available, the large weights stay in their
    files (see `gistgnn.io.stored_model`).

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
