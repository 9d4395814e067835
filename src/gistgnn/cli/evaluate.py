"""`gistgnn evaluate` and `gistgnn predict`: run the best model of a run on a graph."""

import argparse
import logging
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gistgnn.cli import options
from gistgnn.cli.messages import fields_as_options
from gistgnn.cli.process import load_torch
from gistgnn.errors import InputError, printable

log = logging.getLogger(__name__)

if TYPE_CHECKING:
    from torch import Tensor, nn

    from gistgnn.evaluation import Evaluation, Inference
    from gistgnn.graphs import Graph
    from gistgnn.runs.config import RunConfig
    from gistgnn.sampling import Batch
    from gistgnn.storage.record import Record


_COMMON = ("--dataset", "--data-root", "--device")  # the options of both that --help shows


def add_parser(commands: Any) -> None:
    """Add the options of both commands."""
    evaluate = options.add_command(
        commands,
        "evaluate",
        _evaluate,
        "score a trained model on a graph",
        takes="DIR",
        description="Score the best model of a run on its graph, or on another one.",
        example="gistgnn evaluate runs/cora",
        common=["--json", *_COMMON],
    )
    add_model_arguments(evaluate)
    _add_graph_options(evaluate)
    options.add_evaluation_options(evaluate, default=None)
    options.add_shared(evaluate, "--json")
    predict = options.add_command(
        commands,
        "predict",
        _predict,
        "classify every node of a graph",
        takes="DIR",
        description="Classify every node of the run's graph, or of another one.",
        example="gistgnn predict runs/cora --output cora.csv",
        common=["--output", *_COMMON],
    )
    add_model_arguments(predict)
    _add_graph_options(predict)
    options.add_evaluation_options(predict, default=None, sample=False)
    text = (
        "a .csv (node, class, probability; or every label's probability) or a .npz "
        "(classes, probabilities)"
    )
    predict.add_argument("--output", type=Path, required=True, metavar="FILE", help=text)


def add_model_arguments(parser: options.Parser) -> None:
    """Add the arguments that say which model a command opens; see `open_best`."""
    parser.add_argument(
        "directory",
        type=Path,
        metavar="DIR",
        help="of a run; if it was interrupted, its best model so far",
    )
    parser.add_argument(
        "--model",
        metavar="FILE.py:FUNCTION",
        help="the function that builds the model, if it is your own",
    )


def _add_graph_options(parser: options.Parser) -> None:
    options.add_data_options(parser, default=None)
    options.add_shared(parser, "--device")


def open_best(directory: Path, function: str | None) -> "tuple[RunConfig, Record, nn.Module]":
    """Return a run's configuration, record and best model.

    Prints what a user has to know of the run.

    Args:
        directory: of the run.
        function: the name of the function that builds the model, if it is the user's own.

    Raises:
        InputError: there is no such run, or the function does not build its model.
    """
    from gistgnn.runs.run_folder import note_on, open_run, read_record
    from gistgnn.training.names import find_named

    model = read_record(directory).config["model"]
    if function and not (model.get("own") or ":" in model["name"]):
        raise InputError(f"--model is {function}, but the run has a model of gistgnn: leave it out")
    if function and ":" not in function:
        raise InputError(
            f"--model is {function}, expected package.module:function or path/to/file.py:function"
        )
    config, record, best = open_run(directory, find_named("model", function))
    if note := note_on(record):
        log.warning("%s", note)
    return config, record, best


def _load(args: argparse.Namespace) -> "tuple[RunConfig, Record, nn.Module, Evaluation, str]":
    """Return a run's configuration, record, model, evaluation and data root.

    The model is on the device.
    """
    from gistgnn.graphs import find
    from gistgnn.runs.run_folder import choose_device, read_record

    if read_record(args.directory).graph.regression:
        raise InputError(
            "the run predicts numbers, which the command line does not: use load_run in Python"
        )
    config, record, best = open_best(args.directory, args.model)
    dataset = record.config["dataset"]
    if record.config["model"].get("own") and args.dataset is None and not find(dataset):
        raise InputError(f"the run was trained on a graph of your own, '{dataset}': add --dataset")
    data_root = args.data_root or record.data_root or "data"
    if args.data_root is None and not Path(data_root).exists():  # the run is of another machine
        data_root = options.data_root()
    args.device = choose_device(args.device)
    return config, record, best.to(args.device), _evaluation_of(args, config.evaluation), data_root


def _evaluation_of(args: argparse.Namespace, of_run: "Evaluation") -> "Evaluation":
    """Return the evaluation that the options describe.

    With the method of the run, its other values are the run's where no option gives them.
    """
    from gistgnn.evaluation import Evaluation

    method = args.evaluation
    memory = args.evaluation_memory
    parts = args.parts
    sample = getattr(args, "parts_sample", None)  # `gistgnn predict` has no such option
    if method in (None, of_run.method):
        method = of_run.method
        memory = memory or of_run.memory
        if parts is None:  # A sample is of so many parts.
            sample = sample or of_run.sample
        parts = parts or of_run.parts
    with fields_as_options(options.NAMES_OF_EVALUATION):
        return Evaluation(method, memory, parts, sample)


def _evaluate(args: argparse.Namespace) -> int:
    load_torch()
    from gistgnn.evaluation.scores import evaluate
    from gistgnn.graphs import is_file, load, load_file
    from gistgnn.report.names import score_keys, score_name
    from gistgnn.sampling import whole_graph
    from gistgnn.utils.console import print_table

    config, record, model, evaluation, root = _load(args)
    dataset = args.dataset or config.dataset
    graph = load_file(dataset, partial=True) if is_file(dataset) else load(dataset, root)
    graph = graph.to(args.device)
    if graph.multi_label != record.graph.multi_label:
        labels = {False: "one label", True: "several labels"}
        raise InputError(
            f"the model was trained on {labels[record.graph.multi_label]} per node, {graph.name} "
            f"has {labels[graph.multi_label]}: give another graph"
        )
    graph = _numbered_as(record.graph.class_names, graph)
    graph = _with_classes(record.graph.classes, graph)
    scored = graph.train | graph.val | graph.test
    inference = _prepared(
        evaluation, model, whole_graph(graph), config.seed, graph.num_classes, scored
    )
    scores = evaluate(model, graph, evaluation=inference)
    if args.json:
        return options.print_json({**scores, "evaluation": inference.describe()})
    keys = score_keys(scores.values())
    cells = [[split, *(_score_text(table[key]) for key in keys)] for split, table in scores.items()]
    title = f"{args.directory} on {graph.name}{_by_parts(inference.describe())}"
    print_table(title, ["", *map(score_name, keys)], cells, left=[""])
    return 0


def _score_text(score: float | None) -> str:
    return "-" if score is None else f"{score:.4f}"


def _prepared(
    evaluation: "Evaluation",
    model: "nn.Module",
    batch: "Batch",
    seed: int,
    classes: int,
    scored: "Tensor | None" = None,
) -> "Inference":
    """Return the evaluation of a model on a graph; refuse a model that does not fit it."""
    # The model is tried on the whole graph only where it runs on that anyway.
    from gistgnn.evaluation.choosing import small_batch
    from gistgnn.sampling import check_fits

    def check(tried: "Batch") -> None:
        check_fits(model, tried, classes, batch.edge_data)

    by_pieces = evaluation.method in ("layers", "parts")
    if by_pieces:
        check(small_batch(batch))
    inference = evaluation.prepare(model, batch, seed, scored)
    if not by_pieces:
        check(batch if inference.describe()["method"] == "whole" else small_batch(batch))
    return inference


def _with_classes(classes: int, graph: "Graph") -> "Graph":
    """Return a graph with as many classes as a run's.

    It may lack some of them. A graph with others is refused.
    """
    if graph.num_classes == classes:
        return graph
    if graph.multi_label or graph.num_classes > classes:
        kind = "labels" if graph.multi_label else "classes"
        raise InputError(
            f"{graph.name} has {graph.num_classes} {kind}, the graph of the run has {classes}: "
            f"give a graph with the same {kind}"
        )
    return replace(graph, num_classes=classes)


def _numbered_as(names: list[str], graph: "Graph") -> "Graph":
    """Return a graph whose classes have the numbers that a run gives to their names."""
    import torch

    if unknown := [name for name in graph.class_names if name not in names]:
        expected = f"one of {', '.join(names)}" if names else "numbers, as in the graph of the run"
        raise InputError(f"{graph.name} has the class {unknown[0]!r}; expected {expected}")
    if not graph.class_names:
        if names:
            log.warning(
                "the classes of %s are numbers, and those of the run have names. They are taken in "
                "order: %s",
                graph.name,
                ", ".join(f"{number} for {name!r}" for number, name in enumerate(names[:5]))
                + (", ..." if len(names) > 5 else ""),
            )
        return graph
    # A node without a label has -1, which indexes the last entry: it stays -1.
    numbers = torch.tensor([*map(names.index, graph.class_names), -1], device=graph.y.device)
    return replace(graph, y=numbers[graph.y], num_classes=len(names), class_names=tuple(names))


def _by_parts(evaluation: Mapping[str, Any]) -> str:
    """Return how an evaluation, as in result.json, is approximate; empty: it is exact."""
    sample = f"{evaluation['sample']} of " if "sample" in evaluation else ""
    return "" if evaluation["exact"] else f" (approximate, by {sample}{evaluation['parts']} parts)"


def _predict(args: argparse.Namespace) -> int:
    load_torch()
    import torch

    from gistgnn.evaluation.scores import evaluation_mode
    from gistgnn.graphs import is_file, load, load_nodes
    from gistgnn.graphs.folder import node_ids, original_nodes
    from gistgnn.runs import prediction_files
    from gistgnn.sampling import Batch, whole_graph

    if args.output.suffix not in prediction_files.SUFFIXES:
        suffixes = " or ".join(prediction_files.SUFFIXES)
        raise InputError(f"output is {args.output}, expected a name that ends in {suffixes}")
    config, record, model, evaluation, root = _load(args)
    dataset = args.dataset or config.dataset
    device = args.device
    if is_file(dataset):  # it needs no labels and no splits
        x, edge_index, edge_data, nodes = load_nodes(dataset)
        none = torch.empty(0, dtype=torch.long)
        moved = {name: value.to(device) for name, value in edge_data.items()}
        batch = Batch(x.to(device), edge_index.to(device), y=none, loss_nodes=none, edge_data=moved)
        numbers = ids = None
    else:
        graph = load(dataset, root).to(device)
        batch = whole_graph(graph)
        numbers = original_nodes(graph)
        ids = node_ids(graph)
        nodes = graph.num_nodes
    of_all_nodes = replace(evaluation, sample=None)
    inference = _prepared(of_all_nodes, model, batch, config.seed, record.graph.classes)
    with evaluation_mode(model):
        outputs = inference.outputs(model)
        if numbers is not None:
            outputs = prediction_files.renumbered_outputs(outputs, numbers)
        if nodes < len(batch.x):
            outputs = prediction_files.first_outputs(outputs, nodes)
        prediction_files.write_predictions(
            args.output, outputs, nodes, record.graph, temperature=record.temperature, ids=ids
        )
    print(
        f"{nodes} nodes written to {printable(args.output)}{_by_parts(inference.describe())}",
        file=sys.stderr,
    )
    return 0
