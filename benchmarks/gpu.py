"""Everything that needs a GPU, in one command: `make bench-gpu`. It prints Markdown, and writes it to GPU.md here.

    python -m benchmarks.gpu                                            # on a machine with an NVIDIA GPU
    python -m benchmarks.gpu --small --device cpu --out /tmp/GPU.md     # tiny sizes on the CPU, to try the code

It runs the tests marked `cuda`. It measures steps beside PyG's, an epoch in the shape of the paper's large graphs, and
the widest model with Θ on the host, with the planned peak beside the measured one. What fails is named, and the rest
goes on. Nothing is installed or downloaded.
"""

import argparse
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch

from benchmarks import steps
from benchmarks.command import json_of, trained
from benchmarks.tables import number, table
from gistgnn.errors import InputError
from gistgnn.graphs import load
from gistgnn.utils.machine import processor

ROOT = Path(__file__).parents[1]
GIB = 2**30
SAGE = ("--model", "graphsage", "--norm", "layer", "--dropout", "0.2", "--sampler", "clusters")
RANDOM = ("--cluster-method", "random")
REDDIT = ("--dataset", "synthetic:reddit@0.1", "--clusters", "150", "--hidden")
AMAZON = ("--dataset", "synthetic:amazon2m@0.02", "--clusters", "300", "--hidden")
ON_HOST = "--dataset synthetic:amazon2m@0.004 --clusters 60 --hidden 32768 32768 --store host --local-steps 6 "
ON_HOST += "--evaluation parts --parts 60"
# What is trained for an epoch, and at which m. ζ is that of the paper's tables 2 and 3.
SHAPES: dict[str, tuple[tuple[int, ...], tuple[str, ...]]] = {
    "Reddit's shape, 256": ((1, 8), (*SAGE, *REDDIT, "256", "256")),
    "Amazon2M's shape, 400": ((1, 8), (*SAGE, *AMAZON, "400", "400")),
    "Amazon2M's shape, 4096": ((1, 8), (*SAGE, *AMAZON, "4096", "4096")),
    "32,768, Θ on the host": ((8,), (*SAGE, *ON_HOST.split())),
}
SMALL = {"tiny": ((1, 2), ("--dataset", "digits", *SAGE, "--clusters", "20", "--hidden", "16", "16"))}


def main() -> None:
    """Run all of it, and write the page after each part."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=__doc__.split("\n")[0])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("GPU.md"), metavar="FILE")
    parser.add_argument("--small", action="store_true", help="tiny sizes, to try the code; give --out another file")
    options = parser.parse_args()
    if not (torch.cuda.is_available() or options.small):
        raise SystemExit("torch finds no GPU here: run this where there is one, or try the code by --small")
    parts = [f"# On a GPU\n\n{machine(options.device)}", f"## Tests\n\n{tests(options)}"]
    options.out.write_text("\n\n".join(parts) + "\n", encoding="utf-8")
    for heading, measure in (("Steps", measured_steps), ("Epochs", measured_epochs)):
        parts.append(f"## {heading}\n\n{measure(options)}")
        options.out.write_text("\n\n".join(parts) + "\n", encoding="utf-8")
    print(options.out.read_text(encoding="utf-8"))


def machine(device: str) -> str:
    """Return a line with the devices, the driver and the versions."""
    asked = ["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"]
    try:
        gpu = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        gpu = "no nvidia-smi"
    return f"{gpu}; device {device}; {processor()}; torch {torch.__version__}, Python {platform.python_version()}"


def tests(options: argparse.Namespace) -> str:
    """Run the tests marked `cuda`; return pytest's last lines, with the names of those that failed."""
    which = ["-k", "stays_on_the_gpu and graphsage"] if options.small else ["-m", "cuda"]
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *which, "tests/cuda"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    lines = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR")) or " in " in line]
    return "\n".join(f"- {line}" for line in lines[-30:])


def measured_steps(options: argparse.Namespace) -> str:
    """Return a table of steps for each model, width and precision."""
    if options.small:
        cases = [("graphsage", 16, "float32", ["--dataset", "digits", "--sub-gcns", "2", "--repeat", "1"])]
    else:
        every = [("graphsage", width, how) for width in (4096, 1024) for how in ("float32", "tf32", "bf16")]
        cases = [(*case, []) for case in (*every, ("gcn", 4096, "float32"), ("gat", 4096, "float32"))]
    texts = []
    for model, width, precision, more in cases:
        words = ["--model", model, "--widths", str(width), "--precision", precision, "--device", options.device]
        given = steps.parse([*words, *more])
        try:
            text = table(steps.HEAD, steps.rows(steps.measure(load(given.dataset), model, width, given)))
        except (InputError, torch.cuda.OutOfMemoryError) as failed:
            text = f"failed: {failed}"
        texts.append(f"### {model} {width}, {precision}\n\n{text}")
    return "\n\n".join(texts)


def measured_epochs(options: argparse.Namespace) -> str:
    """Return a table of runs of one epoch of each sub-GCN: seconds, and the peak beside the planned one."""
    rows = []
    for name, (every, words) in (SMALL if options.small else SHAPES).items():
        for m in every:
            more = [*RANDOM, "--sub-gcns", m, "--epochs", m, "--device", options.device, "--evaluate-every", 10**6]
            try:
                rows.append([name, str(m), *epoch(list(words), more, options.device)])
            except SystemExit as failed:
                rows.append([name, str(m), str(failed).splitlines()[-1], "—", "—", "—"])
    return table(["", "m", "an epoch, s", "peak, GiB", "planned, GiB", "planned / measured"], rows)


def epoch(words: list[str], more: list[Any], device: str) -> list[str]:
    """Plan and train; return the cells of a row."""
    store = [] if "--store" in words else ["--store", "memory"]
    plan = json_of("plan", *words, *more, *store, "--no-measure")
    planned = plan["options"][0]["peaks"][torch.device(device).type]
    result = trained(*words, *more)
    peak, m = result["peak_memory_bytes"], more[more.index("--sub-gcns") + 1]
    gibibytes = (f"{value / GIB:.2f}" for value in (peak, planned))
    return [number(result["train_seconds"] / m), *gibibytes, f"{planned / peak:.2f}"]


if __name__ == "__main__":
    main()
