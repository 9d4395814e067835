"""`gistgnn evaluate` and `gistgnn predict`: run the model of a finished run on a graph."""

import argparse
import json
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gistgnn.cli.options import add_data_options, add_device_option, add_evaluation_options, evaluation_of
from gistgnn.errors import InputError

if TYPE_CHECKING:
    import numpy as np


def add_parser(commands: Any) -> None:
    """Add the options of both commands."""
    help_texts = {"evaluate": "score a trained model on a graph", "predict": "classify every node of a graph"}
    for command, text in help_texts.items():
        parser = commands.add_parser(command, help=text, allow_abbrev=False)
        parser.set_defaults(run=_evaluate if command == "evaluate" else _predict)
        parser.add_argument("directory", type=Path, metavar="DIR", help="of a finished run")
        add_data_options(parser, default=None)
        add_device_option(parser)
        add_evaluation_options(parser, default=None, sample=command == "evaluate")
        if command == "evaluate":
            text = "print the scores as JSON, and nothing else on standard output"
            parser.add_argument("--json", action="store_true", help=text)
        else:
            parser.add_argument(
                "--output",
                type=Path,
                required=True,
                metavar="FILE",
                help="a .csv (node, class, probability; with several labels per node, every label's probability) or a "
                ".npz (classes and probabilities)",
            )


def _evaluate(args: argparse.Namespace) -> int:
    from gistgnn.evaluation.scores import evaluate
    from gistgnn.graphs import load
    from gistgnn.runs.run_folder import choose_device, load_run, scale_features
    from gistgnn.sampling import check_fits, whole_graph

    config, record, model = load_run(args.directory)
    evaluation = evaluation_of(args, config.evaluation)
    device = choose_device(args.device)
    graph = load(args.dataset or config.dataset, args.data_root or record["data_root"])
    graph = replace(graph, x=scale_features(args.directory, config, graph.x)).to(device)
    if graph.multi_label != record["graph"]["multi_label"]:
        kinds = ("one label", "several labels")
        raise InputError(
            f"the model was trained on {kinds[record['graph']['multi_label']]} per node, {graph.name} has "
            f"{kinds[graph.multi_label]}: choose a graph of the same kind"
        )
    batch = whole_graph(graph)
    check_fits(model.to(device), batch, graph.num_classes)
    inference = evaluation.prepare(model, batch, config.seed)
    scores = {split: score.as_dict() for split, score in evaluate(model, graph, evaluation=inference).items()}
    if args.json:
        print(json.dumps({**scores, "evaluation": inference.describe()}, indent=2))
    else:
        print_scores(f"{args.directory} on {graph.name}", scores, inference.describe())
    return 0


def print_scores(
    title: str, rows: Mapping[str, Mapping[str, float] | None], evaluation: Mapping[str, Any] | None = None
) -> None:
    """Print a table of the scores of every row by its name; None: the row is left out.

    A note is appended to the title if the evaluation, as in result.json, is approximate.
    """
    from rich.console import Console
    from rich.table import Table

    if evaluation and not evaluation["exact"]:
        sample = f"{evaluation['sample']} of " if "sample" in evaluation else ""
        title += f" (approximate, by {sample}{evaluation['parts']} parts)"
    table = Table(title=title)
    table.add_column("split")
    columns = {"accuracy": "accuracy", "f1_micro": "micro F1", "f1_macro": "macro F1", "f1_parts": "mean F1 of parts"}
    known = [key for key in columns if any(key in scores for scores in rows.values() if scores)]
    for key in known:
        table.add_column(columns[key], justify="right")
    for name, scores in rows.items():
        if scores:
            table.add_row(name, *(f"{scores[key]:.4f}" for key in known))
    Console().print(table)


def _predict(args: argparse.Namespace) -> int:
    import torch

    from gistgnn.evaluation.scores import predict, predicted_labels
    from gistgnn.graphs import load_nodes
    from gistgnn.io.whole_files import replacing
    from gistgnn.runs.run_folder import choose_device, load_run, scale_features
    from gistgnn.sampling import Batch, check_fits

    if args.output.suffix not in (".csv", ".npz"):
        raise InputError(f"output is {args.output}, expected a name that ends in .csv or .npz")
    config, record, model = load_run(args.directory)
    evaluation = replace(evaluation_of(args, config.evaluation), sample=None)  # predict every node
    device = choose_device(args.device)
    x, edge_index = load_nodes(args.dataset or config.dataset, args.data_root or record["data_root"])
    x = scale_features(args.directory, config, x)
    none = torch.empty(0, dtype=torch.long)
    batch = Batch(x.to(device), edge_index.to(device), y=none, loss_nodes=none)
    multi_label = record["graph"]["multi_label"]
    check_fits(model.to(device), batch, record["graph"]["classes"])
    inference = evaluation.prepare(model, batch, config.seed)
    logits = predict(model, batch, inference)
    probabilities = (logits.sigmoid() if multi_label else logits.softmax(dim=1)).cpu().numpy()
    with replacing(args.output) as path:
        _write(path, predicted_labels(logits, multi_label).cpu().numpy(), probabilities)
    method = inference.describe()
    approximate = "" if method["exact"] else f" (approximate, by {method['parts']} parts)"
    print(f"{len(probabilities)} nodes written to {args.output}{approximate}", file=sys.stderr)
    return 0


def _write(path: Path, labels: "np.ndarray", probabilities: "np.ndarray") -> None:
    import numpy as np

    if path.suffix == ".npz":
        np.savez(path, classes=labels, probabilities=probabilities)
        return
    nodes = np.arange(len(labels))
    if labels.ndim == 2:  # multi-label: one column of probabilities per label
        header = ",".join(["node", *(f"label_{k}" for k in range(labels.shape[1]))])
        rows, form = np.column_stack([nodes, probabilities]), "%d" + ",%.6f" * labels.shape[1]
    else:
        rows = np.column_stack([nodes, labels, probabilities[nodes, labels]])
        header, form = "node,class,probability", "%d,%d,%.6f"
    np.savetxt(path, rows, form, header=header, comments="")
