"""`gistgnn theory check`: whether the paper's analysis applies to a graph, and its predictions."""

import argparse
from dataclasses import asdict
from typing import Any

from gistgnn.cli.options import GRAPH_FILES, add_command, add_shared, print_json
from gistgnn.cli.process import load_torch
from gistgnn.cli.values import count
from gistgnn.errors import printable
from gistgnn.utils.formats import plural


def add_parser(commands: Any) -> None:
    """Add the command's options."""
    parser = commands.add_parser("theory", help="what the paper's analysis says of a graph")
    actions = parser.add_commands("ACTION")
    check = add_command(
        actions, "check", _run, "check the assumptions on a graph, and predict how training goes",
        takes="GRAPH",
        description="Check the assumptions of the paper's analysis on a graph, and predict how "
        "training goes.",
        example="gistgnn theory check karate",
    )  # fmt: skip
    add = check.add_argument
    add(
        "graph",
        metavar="GRAPH",
        help=f"a data set's name, a {' or '.join(GRAPH_FILES)}, or complete:N, ring:N, karate",
    )
    add(
        "--nodes",
        type=count,
        metavar="N",
        help="take only the N nodes nearest to the node of highest degree",
    )
    add(
        "--scale",
        action="store_true",
        help="multiply X so that its longest row is as long as the assumptions allow",
    )
    add("--sub-gcns", type=count, default=2, metavar="M", help="m (default: 2)")
    add("--local-steps", type=count, default=1, metavar="N", help="ζ (default: 1)")
    add("--width", type=count, default=4096, metavar="D", help="d_1 (default: 4096)")
    add("--step-size", type=float, metavar="ETA", help="η (default: 1/(λ_max + λ_0/2))")
    add("--gamma", type=float, default=0.5, help="γ of the theorem, between 0 and 1 (default: 0.5)")
    add_shared(check, "--data-root", "--json")


def _run(args: argparse.Namespace) -> int:
    load_torch()
    from gistgnn.theory import check, check_prediction, least_eigenvalue, load_problem, predict
    from gistgnn.utils.console import print_table, spinner

    graph = args.graph
    sizes = (args.sub_gcns, args.local_steps, args.width)
    chosen = {"step_size": args.step_size, "gamma": args.gamma}
    check_prediction(*sizes, **chosen)
    problem = load_problem(graph, args.data_root, nodes=args.nodes, scaled=args.scale)
    with spinner("computing eigenvalues", shown=not args.json):
        checks = check(problem, args.sub_gcns)
        predictable = least_eigenvalue(problem, args.sub_gcns) > 0
        prediction = predict(problem, *sizes, **chosen) if predictable else None
    edges = problem.edge_index.shape[1]
    if args.json:
        return print_json(
            {
                "graph": {"name": graph, "nodes": problem.n, "edges": edges, "features": problem.d},
                "assumptions": [asdict(assumption) for assumption in checks],
                "hold": all(assumption.holds for assumption in checks),
                "prediction": prediction,
            }
        )
    print(f"{printable(graph)}: {problem.n:,} nodes, {edges:,} edges, {problem.d:,} features\n")
    columns = ("assumption", "holds", "value", "why")
    rows = [
        (
            assumption.name,
            "yes" if assumption.holds else "no",
            f"{assumption.value:.3g}",
            assumption.detail,
        )
        for assumption in checks
    ]
    print_table("", columns, rows, left=columns)
    failing = sum(not assumption.holds for assumption in checks)
    print("\nall hold" if not failing else f"\n{failing} of {len(checks)} do not hold")
    if prediction is None:
        print("nothing is predicted: λ_0 is 0, so that no bound contracts")
        return 0
    print("\nprediction" + (", as if all assumptions held" if failing else ""))
    for label, value in _lines(prediction):
        print(f"  {label:<56} {value}")
    return 0


def _lines(p: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the numbers of a prediction as labels and values."""
    plateau = "–" if p["leading"] is None else f"{p['leading']:.3g}"
    return [
        ("λ_0, λ_max of G^∞", f"{p['lambda_0']:.4g}, {p['lambda_max']:.4g}"),
        ("η (the largest η of the proof)", f"{p['step_size']:.4g} ({p['proof_step']:.3g})"),
        ("E‖y − ŷ(0)‖²", f"{p['initial']:.4g}"),
        (
            "a local step shrinks it by 1 − ηλ_0/2",
            "–" if p["local_factor"] is None else _near_one(p["local_factor"]),
        ),
        (f"a round of ζ = {p['local_steps']}, by the theorem", _factor(p["round_factor"])),
        (
            "a round as d_1 → ∞, (1 − ηλ_0)^2ζ",
            "–" if p["limit_factor"] is None else _factor(p["limit_factor"]),
        ),
        (
            f"the theorem's error term at d_1 = {p['width']:,}, as printed",
            f"{p['neighbourhood']:.3g}",
        ),
        ("… with corrected constants", f"{p['corrected_neighbourhood']:.3g}"),
        (f"plateau for t well below {p['width']:,} rounds (heuristic)", plateau),
    ]


def _factor(factor: float) -> str:
    """Return by what a round multiplies the error, and when a tenth of it is left."""
    from gistgnn.theory import rounds_to

    rounds = rounds_to(0.1, factor)
    when = "never" if rounds is None else f"in {plural(rounds, 'round')}"
    return f"{_near_one(factor)}, a tenth of the error {when}"


def _near_one(factor: float) -> str:
    """Format a factor; one that rounds to 1 by its difference from 1."""
    return f"{factor:.4g}" if factor < 0.999 else f"1 − {1 - factor:.3g}"
