"""Trains small models in many ways, to show that a change of the code changes no result.

    python -m benchmarks.same_models before.json                       # before the change
    python -m benchmarks.same_models after.json --compare before.json  # after it

It writes digests, which cover every value of a trained model and the history of its scores. Run
both on one machine.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import xxhash
from safetensors.torch import load_file

SMALL = "--dataset synthetic:reddit@0.01 --hidden 64 64 --epochs 8"
CLUSTERS = "--sampler clusters --clusters 40 --clusters-per-batch 5"
DIGITS = "--hidden 64 64 --epochs 30"
LARGER = "--model graphsage --sub-gcns 2 --hidden 64 64 --dropout 0.5 --epochs 8"
# Options of `gistgnn train` by the name of the run; "ranks" in front of them asks for two ranks.
RUNS = {
    "GCN": f"--sub-gcns 2 {DIGITS}",
    "GCN, m = 1": f"--sub-gcns 1 {DIGITS}",
    "GraphSAGE, fused": f"--model graphsage --sub-gcns 4 --runner fused {DIGITS}",
    "GAT": f"--model gat --sub-gcns 2 {DIGITS}",
    "GATv2, fused": f"--model gatv2 --sub-gcns 2 --runner fused {DIGITS}",
    "GIN, in turn": f"--model gin --sub-gcns 2 --runner in-turn {DIGITS}",
    "PyG's GCN": "--model {folder}/pyg_model.py:gcn --sub-gcns 2 --hidden 64 --epochs 30",
    "PyG's GAT": "--model {folder}/pyg_model.py:gat --sub-gcns 2 --hidden 64 --epochs 30",
    "clusters": f"--model graphsage --sub-gcns 4 {CLUSTERS} {SMALL}",
    "clusters, inductive, no ĀX": (
        f"--sub-gcns 2 --inductive --set precompute=false {CLUSTERS} {SMALL}"
    ),
    "clusters by stream": f"--sub-gcns 2 --set cluster_method=stream {CLUSTERS} {SMALL}",
    "LADIES": f"--sub-gcns 2 --sampler ladies --batch-size 128 --set nodes_per_layer=128 {SMALL}",
    "FastGCN": f"--sub-gcns 2 --sampler fastgcn --batch-size 128 --set nodes_per_layer=128 {SMALL}",
    "neighbours": (
        f"--model graphsage --sub-gcns 2 --sampler neighbor --batch-size 128 --fanout 5 {SMALL}"
    ),
    "GraphSAINT, nodes": f"--sub-gcns 2 --sampler saint-node --batch-size 300 {SMALL}",
    "GraphSAINT, walks": (
        f"--model graphsage --sub-gcns 2 --sampler saint-rw --batch-size 100 {SMALL}"
    ),
    "host": f"--sub-gcns 4 --store host {DIGITS}",
    "disk": f"--sub-gcns 4 --store disk --set optimizer_state=carry {DIGITS}",
    "disk, bf16": f"--sub-gcns 4 --store disk --set store_precision=bf16 {DIGITS}",
    "two ranks": f"ranks --sub-gcns 4 {DIGITS}",
    "two ranks, sharded": f"ranks --sub-gcns 4 --store sharded {DIGITS}",
    "data parallel, two ranks": f"ranks --method data-parallel --sub-gcns 2 {CLUSTERS} {SMALL}",
    "local SGD": f"--method local-sgd --sub-gcns 2 {CLUSTERS} {SMALL}",
    "ensemble": f"--method ensemble --sub-gcns 2 {CLUSTERS} {SMALL}",
    "parts": f"--method parts --sub-gcns 2 {CLUSTERS} {SMALL}",
    "parts, two ranks": f"ranks --method parts --sub-gcns 4 {DIGITS}",
    "layers, few columns": f"--sub-gcns 2 --evaluation layers --evaluation-memory 0.02 {SMALL}",
    "evaluation in parts": f"--sub-gcns 2 --evaluation parts --set parts=4 {SMALL}",
    "bf16": f"--model graphsage --sub-gcns 2 --set precision=bf16 {DIGITS}",
    "folder": f"--dataset {{folder}}/graph {CLUSTERS} {LARGER}",
    "folder of clusters": (
        f"--dataset {{folder}}/clusters --sampler clusters --clusters-per-batch 5 {LARGER}"
    ),
}
MODEL = """
from torch_geometric.nn import GAT, GCN

def gcn(in_features, hidden, classes):
    return GCN(in_features, hidden[0], len(hidden) + 1, classes)

def gat(in_features, hidden, classes):
    return GAT(in_features, hidden[0], 2, classes, heads=2)
"""


def main() -> None:
    """Train, write the digests, and compare them."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.same_models", description=__doc__)
    parser.add_argument("digests", type=Path, help="the file to write")
    parser.add_argument("--compare", type=Path, metavar="FILE", help="digests of another commit")
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "pyg_model.py").write_text(MODEL)
        command(["convert", "synthetic:papers100m@0.0005", str(folder / "graph")])
        clusters = ["--clusters", "40", "--method", "metis", "--out", str(folder / "clusters")]
        command(["partition", "--dataset", str(folder / "graph"), *clusters])
        digests = {
            run: digest_of(run, words.format(folder=folder).split(), folder)
            for run, words in RUNS.items()
        }
    options.digests.write_text(json.dumps(digests, indent=1, ensure_ascii=False))
    if options.compare:
        before = json.loads(options.compare.read_text())
        different = [run for run in digests if digests[run] != before.get(run)]
        same = f"{len(digests) - len(different)} of {len(digests)} models are the same"
        print(f"{same}; different: {different or 'none'}")
        sys.exit(bool(different))


def digest_of(run: str, words: list[str], folder: Path) -> dict[str, str]:
    """Train one model and return the digests of its values and of its history."""
    out = folder / "run"
    ranks = words[0] == "ranks"
    words = words[1:] if ranks else words
    # Values for what has a default, so that a change of defaults does not count as a change.
    fixed = [] if "pyg_model.py" in " ".join(words) else ["--dropout", "0.5"]
    fixed += [] if "--model" in words else ["--norm", "none"]
    fixed += [] if "--sampler" in words else ["--sampler", "full"]
    fixed += ["--set", "width_scaling=none"]
    saved = ["--seed", "3", "--overwrite", "--out", str(out)]
    command(["train", *fixed, *words, *saved], ranks)
    result: dict[str, Any] = json.loads((out / "result.json").read_text())
    values = xxhash.xxh64()
    for name, tensor in sorted(load_file(out / "model.safetensors").items()):
        values.update(name.encode() + tensor.numpy().tobytes())
    scores = [[row["validation"], row["test"], row["round"]] for row in result["history"]]
    print(f"{run}: {values.hexdigest()}", flush=True)
    return {
        "model": values.hexdigest(),
        "history": xxhash.xxh64(json.dumps(scores).encode()).hexdigest(),
    }


def command(words: list[str], ranks: bool = False) -> None:
    """Run gistgnn, on two ranks if asked; stop with its output if it fails."""
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    line = [sys.executable, *(torchrun if ranks else []), "-m", "gistgnn", *words]
    process = subprocess.run(line, capture_output=True, text=True)
    if process.returncode:
        raise SystemExit(f"gistgnn {' '.join(words)}\n{process.stdout}{process.stderr}")


if __name__ == "__main__":
    main()
