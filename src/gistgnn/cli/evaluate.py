"""`gistgnn evaluate`: score the model of a finished run."""

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from gistgnn.cli.options import add_data_options, add_device_option, add_evaluation_options, evaluation_of
from gistgnn.errors import InputError


def add_parser(commands: Any) -> None:
    """Add the command's options."""
    parser = commands.add_parser("evaluate", help="score a trained model on a graph", allow_abbrev=False)
    parser.set_defaults(run=run)
    parser.add_argument("directory", type=Path, metavar="DIR", help="of a finished run")
    add_data_options(parser, default=None)
    add_device_option(parser)
    add_evaluation_options(parser, default=None)
    parser.add_argument(
        "--json", action="store_true", help="print the scores as JSON, and nothing else on standard output"
    )


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    from gistgnn.cli.score_table import print_scores
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
