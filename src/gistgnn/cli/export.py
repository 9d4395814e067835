"""`gistgnn export`: a run's model in files that need no gistgnn."""

import argparse
from pathlib import Path
from typing import Any

from gistgnn.cli.evaluate import add_model_arguments, open_best
from gistgnn.cli.options import add_command, add_shared, print_json
from gistgnn.cli.process import load_torch
from gistgnn.errors import printable
from gistgnn.runs.forms import FORMS


def add_parser(commands: Any) -> None:
    """Add the command's options."""
    parser = add_command(
        commands, "export", _run, "write a trained model for use without gistgnn",
        takes="DIR --to FORM",
        description="Write the best model of a run in files that need no gistgnn. It takes the "
                    "features and the edges of a graph of any size, and returns logits.",
        example="gistgnn export runs/cora --to pyg",
    )  # fmt: skip
    add = parser.add_argument
    add_model_arguments(parser)
    add(
        "--to",
        required=True,
        choices=[*FORMS],
        help="pyg: a folder with model.py, which builds the model of PyG's layers, and its "
        "weights; torch: a program of torch.export; onnx: a file of ONNX",
    )
    add(
        "--out",
        type=Path,
        metavar="PATH",
        help="the folder (pyg) or the file (.pt2, .onnx) (default: DIR_pyg, DIR.pt2, DIR.onnx)",
    )
    add("--overwrite", action="store_true", help="replace the files")
    add_shared(parser, "--json")


def _run(args: argparse.Namespace) -> int:
    load_torch()
    from gistgnn.runs.export import export

    _, record, model = open_best(args.directory, args.model)
    written = export(
        args.directory, record, model, FORMS[args.to], args.out, overwrite=args.overwrite
    )
    if args.json:
        return print_json(written)
    print(f"written: {', '.join(map(printable, written['files']))}")
    return 0
