"""Steps and epochs of PyG, DGL and ours: GCN, GraphSAGE and GAT at several widths, on several graphs."""

import argparse
import json
import os
import sys
from contextlib import closing
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from benchmarks.case import Case
from benchmarks.dgl_nets import why_not
from benchmarks.peers_report import BASELINE, TITLES, print_report, record
from benchmarks.rounds import measure
from benchmarks.tables import describe_machine, on
from benchmarks.worker import Pace, Spec, forked
from gistgnn.errors import InputError
from gistgnn.graphs import load
from gistgnn.storage.whole_files import replacing

SYNTHETIC = "synthetic"
CLUSTERS = {"digits": 20, "amazon-computers": 150, SYNTHETIC: 60}
PER_BATCH, HIDDEN_LAYERS, HEADS = 10, 2, 4
SLOW_WIDTH = 4096  # from which there are few rounds: PyG needs seconds for a step


@dataclass(frozen=True)
class Source:
    """A graph that batches come from: its features and classes, its batches' mean size, and an epoch's batches."""

    name: str
    features: int
    classes: int
    nodes: int
    edges: int
    epoch_steps: int


def main() -> None:
    """Measure every case that the file does not have, and print the table of all."""
    options = parse()
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # waiting workers do not use the cores
    os.environ["OMP_NUM_THREADS"] = str(options.threads)
    machine = describe_machine(options.threads, "cpu")
    why = why_not()
    left_out = {"DGL": f"it does not import: {why}"} if why else {}
    cases: list[dict[str, Any]] = []
    if options.json and options.json.exists():
        cases = json.loads(options.json.read_text(encoding="utf-8"))["cases"]
    done = {(case["graph"], case["model"], case["width"]) for case in cases}
    for name in options.graphs:
        wanted = [key for key in product([name], options.models, options.widths) if key not in done]
        try:
            source = describe(name, options) if wanted else None
        except InputError as error:
            left_out[name] = str(error)
            continue
        for _, model, width in wanted:
            cases.append(run_case(source, model, width, options, with_dgl=not why) | {"machine": machine})
            if options.json:
                write(options.json, {"arguments": sys.argv[1:], "left_out": left_out, "cases": cases})
    print("# Peers\n")
    for each in dict.fromkeys(on(case["machine"]) for case in cases):
        print(f"{each}\n")
    print_report(cases, left_out)


def describe(name: str, options: argparse.Namespace) -> Source:
    """Return the facts of a graph. Its batches' size is the mean of an epoch's."""
    features, classes = options.features, options.classes
    if name != SYNTHETIC:
        graph = load(name, options.data_root)
        features, classes = graph.num_features, graph.num_classes
    source = Source(name, features, classes, options.nodes, options.edges, 0)
    sampler = make_case(source, "gcn", 8, options).sampler()
    steps = sampler.steps_per_epoch
    with closing(sampler.batches(0, steps)) as batches:
        sizes = [(len(batch.x), batch.adj.num_edges) for batch in batches]
    nodes, edges = (round(sum(size) / steps) for size in zip(*sizes, strict=True))
    print(f"{name}: {nodes} nodes, {edges} edges in a batch, {steps} batches in an epoch", file=sys.stderr, flush=True)
    return Source(name, features, classes, nodes, edges, steps)


def make_case(source: Source, model: str, width: int, options: argparse.Namespace) -> Case:
    """Return the case of one graph, model and width. A layer of GAT is that wide with all its heads."""
    real = source.name != SYNTHETIC
    return Case(
        model=model,
        hidden=(width // HEADS if model == "gat" else width,) * HIDDEN_LAYERS,
        features=source.features,
        classes=source.classes,
        heads=HEADS,
        nodes=options.nodes,
        edges=options.edges,
        per_batch=PER_BATCH,
        clusters=CLUSTERS[source.name],
        precision="float32",
        device="cpu",
        threads=options.threads,
        local_steps=options.local_steps,
        precompute=False,  # so that all compute the same function
        dataset=source.name if real else "",
        data_root=str(options.data_root),
    )


def run_case(source: Source, model: str, width: int, options: argparse.Namespace, *, with_dgl: bool) -> dict[str, Any]:
    """Measure all contenders of a case in turn, round by round."""
    case = make_case(source, model, width, options)
    modules = ["benchmarks.pyg", *(["benchmarks.dgl_nets"] if with_dgl else [])]
    about, samples = measure(
        case,
        contenders(options.sub_gcns, with_dgl),
        Pace(options.seconds, hurry=True),
        title=f"{source.name} {TITLES[model]} {width}",
        repeat=options.slow_repeat if width >= SLOW_WIDTH else options.repeat,
        stretches=options.repeat,
        context=forked(*modules),
    )
    return record(case, about, samples, {**vars(source), "graph": source.name, "width": width})


def contenders(sub_gcns: list[int], with_dgl: bool) -> list[Spec]:
    """List the contenders."""
    return [
        Spec("PyG, edge_index", "pyg", "edge_index"),
        Spec("PyG, CSR", "pyg", "csr"),
        *([Spec("DGL", "dgl")] if with_dgl else []),
        Spec(BASELINE, "ours", "in-turn"),
        *(Spec(f"m={m}, auto", "ours", "auto", (m,)) for m in sub_gcns),
        *(Spec(f"m={m}, fused", "ours", "fused", (m,)) for m in sub_gcns),
    ]


def write(path: Path, results: dict[str, Any]) -> None:
    """Write the results, so that a run can go on where it was stopped."""
    with replacing(path) as temporary:
        temporary.write_text(json.dumps(results, indent=1), encoding="utf-8")


def parse() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description=__doc__)
    add = parser.add_argument
    add("--graphs", nargs="+", choices=list(CLUSTERS), default=list(CLUSTERS))
    add("--models", nargs="+", choices=list(TITLES), default=list(TITLES))
    add("--widths", type=int, nargs="+", default=[128, 256, 512, 1024, 4096], metavar="D")
    add("--sub-gcns", type=int, nargs="+", default=[8], metavar="M")
    add("--data-root", type=Path, default=Path("data"), help="folder of the data sets")
    add("--nodes", type=int, default=1600, help="nodes of a batch of the random graph")
    add("--edges", type=int, default=48000, help="edges of a batch of the random graph, both directions counted")
    add("--features", type=int, default=100, help="features of the random graph")
    add("--classes", type=int, default=47, help="classes of the random graph")
    add("--threads", type=int, default=os.cpu_count())
    add("--repeat", type=int, default=7, help="rounds over all contenders")
    add("--slow-repeat", type=int, default=3, help=f"rounds at widths from {SLOW_WIDTH}")
    add("--seconds", type=float, default=0.2, help="least seconds of one measurement")
    add("--local-steps", type=int, default=500, help="ζ; the time for Θ is divided by it")
    add("--json", type=Path, metavar="FILE", help="the cases that it has are not measured again")
    options = parser.parse_args()
    if bad := [d for d in options.widths if d < 1 or any(d % (HEADS * m) for m in options.sub_gcns)]:
        parser.error(f"--widths has {bad[0]}: expected multiples of {HEADS} heads times every m of --sub-gcns")
    return options


if __name__ == "__main__":
    main()
