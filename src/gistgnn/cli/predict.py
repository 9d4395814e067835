"""`gistgnn predict`: write classes and probabilities for every node of a graph."""

import argparse
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gistgnn.cli.options import add_data_options, add_device_option, add_evaluation_options, evaluation_of
from gistgnn.errors import InputError

if TYPE_CHECKING:
    import numpy as np


def add_parser(commands: Any) -> None:
    """Add the command's options."""
    parser = commands.add_parser("predict", help="classify every node of a graph", allow_abbrev=False)
    parser.set_defaults(run=run)
    parser.add_argument("directory", type=Path, metavar="DIR", help="of a finished run")
    add_data_options(parser, default=None)
    add_device_option(parser)
    add_evaluation_options(parser, default=None, sample=False)
    parser.add_argument(
        "--output",
        type=Path,
        required=True,
        metavar="FILE",
        help="a .csv (node, class, probability; with several labels per node, every label's probability) or a .npz "
        "(classes and probabilities)",
    )


def run(args: argparse.Namespace) -> int:
    """Run the command."""
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
