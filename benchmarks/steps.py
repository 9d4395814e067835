"""Steps and epochs of PyG's layers, our baseline, sub-GCNs in turn and fused, and the machine's floor, compared."""

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

from benchmarks.case import Case
from benchmarks.report import print_case, summarise
from benchmarks.rounds import measure
from benchmarks.tables import describe_machine, on
from benchmarks.targets import judge, line, title
from benchmarks.worker import Pace, Spec

WIDTHS = [[4096, 4096], [1024, 1024], [256, 256]]


def main() -> None:
    """Measure every case, print tables and targets, and write JSON."""
    options = parse()
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # waiting workers do not use the cores
    os.environ["OMP_NUM_THREADS"] = str(options.threads)
    machine = describe_machine(options.threads, options.device)
    print(f"# Steps\n\n{on(machine)}\n", flush=True)
    cases = []
    for precision in options.precision:
        for hidden in options.hidden or WIDTHS:
            cases.append(run_case(make_case(options, hidden, precision), options))
            print_case(cases[-1])
    targets = judge(cases)
    print("## Targets\n", *(f"- {line(target)}" for target in targets), sep="\n")
    if options.json:
        results = {"machine": machine, "arguments": sys.argv[1:], "cases": cases, "targets": targets}
        options.json.write_text(json.dumps(results, indent=1))


def run_case(case: Case, options: argparse.Namespace) -> dict[str, Any]:
    """Measure all contenders in turn, round by round."""
    specs, pace = contenders(options.sub_gcns), Pace(options.seconds)
    about, samples = measure(
        case, specs, pace, title=title(vars(case)), repeat=options.repeat, stretches=options.stretches
    )
    return summarise(case, specs, about, samples, options.epoch_steps)


def contenders(sub_gcns: list[int]) -> list[Spec]:
    """List the contenders, the machine first."""
    several = sorted(set(sub_gcns) - {1})
    return [
        Spec("machine", "machine", sub_gcns=(1, *several)),
        Spec("PyG, edge_index", "pyg", "edge_index"),
        Spec("PyG, CSR", "pyg", "csr"),
        Spec("m=1", "ours", "in-turn"),
        *(Spec(f"in turn m={m}", "ours", "in-turn", (m,)) for m in several),
        *(Spec(f"fused m={m}", "ours", "fused", (m,)) for m in several),
    ]


def make_case(options: argparse.Namespace, hidden: list[int], precision: str) -> Case:
    """Return the case of one width and precision."""
    return Case(
        model=options.model,
        hidden=tuple(hidden),
        features=options.features,
        classes=options.classes,
        heads=options.heads,
        nodes=options.nodes,
        edges=options.edges,
        per_batch=options.clusters_per_batch,
        clusters=options.clusters,
        precision=precision,
        device=options.device,
        threads=options.threads,
        local_steps=options.local_steps,
        precompute=options.precompute,
    )


def parse() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.steps", description=__doc__)
    add = parser.add_argument
    add("--model", choices=("graphsage", "gcn", "gat"), default="graphsage")
    add("--hidden", type=int, nargs="+", action="append", metavar="D", help="may be repeated")
    add("--features", type=int, default=602)
    add("--classes", type=int, default=41)
    add("--heads", type=int, default=4, help="attention heads of gat")
    add("--nodes", type=int, default=1600, help="nodes of a batch")
    add("--edges", type=int, default=48000, help="edges of a batch, both directions counted")
    add("--clusters", type=int, default=60, help="clusters of the graph")
    add("--clusters-per-batch", type=int, default=10)
    add("--sub-gcns", type=int, nargs="+", default=[2, 4, 8], metavar="M")
    add("--precision", nargs="+", choices=("float32", "tf32", "bf16"), default=["float32"])
    add("--device", default="cpu")
    add("--threads", type=int, default=os.cpu_count())
    add("--repeat", type=int, default=7, help="rounds over all contenders")
    add("--stretches", type=int, default=3, help="rounds that also time a stretch of training")
    add("--seconds", type=float, default=0.4, help="least seconds of one measurement")
    add("--local-steps", type=int, default=500, help="ζ; the time for Θ is divided by it")
    add("--epoch-steps", type=int, default=1500, help="batches of an epoch (default: as in Amazon2M)")
    add("--precompute", action="store_true", help="our first layer uses the whole graph's ĀX, as in `GIST.fit`")
    add("--json", type=Path, metavar="FILE")
    return parser.parse_args()


if __name__ == "__main__":
    main()
