"""Everything that needs a GPU, in one command: `make bench-gpu`.

    python -m benchmarks.gpu                                      # with an NVIDIA GPU
    python -m benchmarks.gpu --small --device cpu --out /tmp/GPU.md   # tiny sizes, to try the code
    python -m benchmarks.gpu --parts steps epochs --no-compiled   # some parts alone

The parts are in the order of their importance: steps beside the matrix products alone and beside
PyG's; whole runs in the shape of the paper's large graphs, and the widest model with Θ on the host;
scores at equal time; and the tests marked `cuda`. Each part is a process of its own, which ends
when its time is over. The files benchmarks/GPU.md and GPU.json are written after every measurement.
Nothing is installed or downloaded.
"""

import argparse
import json
import platform
import subprocess
import sys
import time
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from benchmarks.gpu import epochs, scores, steps
from gistgnn.storage.whole_files import replacing
from gistgnn.utils.machine import processor

ROOT = Path(__file__).parents[2]
HEADINGS = {
    "steps": "Steps",
    "epochs": "Whole runs",
    "scores": "Scores at equal time",
    "tests": "Tests",
}
# A part's limit; eight minutes in all.
SECONDS = {"steps": 170, "epochs": 120, "scores": 80, "tests": 110}
PAGES = {
    "steps": steps.page,
    "epochs": epochs.page,
    "scores": scores.page,
    "tests": lambda lines: "\n".join(f"- {line}" for line in lines),
}
MEASURES = {"steps": steps.measure, "epochs": epochs.measure, "scores": scores.measure}


def main(words: Sequence[str] | None = None) -> None:
    """Run all parts, or one of them in this process."""
    options = parse(words)
    if not (torch.cuda.is_available() or options.small):
        raise SystemExit(
            "torch finds no GPU here: run this where there is one, or try the code by --small"
        )
    if options.part:
        run_part(options)
        return
    write(options.out, {"machine": machine(options.device)})
    for part in options.parts:
        begun = time.perf_counter()
        words_of_all = sys.argv[1:] if words is None else words
        line = [sys.executable, "-m", "benchmarks.gpu", *words_of_all, "--part", part]
        try:
            subprocess.run(line, cwd=ROOT, check=False, timeout=options.seconds[part])
        except subprocess.TimeoutExpired:
            print(f"{part}: stopped after {options.seconds[part]} s", file=sys.stderr)
        print(f"{part}: {time.perf_counter() - begun:.0f} s", file=sys.stderr, flush=True)
    print(options.out.read_text(encoding="utf-8"))


def run_part(options: argparse.Namespace) -> None:
    """Measure one part, and write what is known after every measurement."""

    def keep(measured: Any) -> None:
        record = json.loads(json_file(options.out).read_text(encoding="utf-8"))
        write(options.out, record | {options.part: measured})

    if options.part == "tests":
        keep(tests(options))
    else:
        MEASURES[options.part](options, keep)


def write(out: Path, record: dict[str, Any]) -> None:
    """Write the page and the record beside it."""
    parts = [f"# On a GPU\n\n{record['machine']}"]
    for part, heading in HEADINGS.items():
        if part in record:
            parts.append(f"## {heading}\n\n{PAGES[part](record[part])}")
    with replacing(out) as file:
        file.write_text("\n\n".join(parts) + "\n", encoding="utf-8")
    with replacing(json_file(out)) as file:
        file.write_text(json.dumps(record, indent=1), encoding="utf-8")


def json_file(out: Path) -> Path:
    """Return the file of the record that belongs to a page."""
    return out.with_suffix(".json")


def machine(device: str) -> str:
    """Return a line with the devices, the driver and the versions."""
    query = ["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"]
    try:
        gpu = subprocess.run(query, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        gpu = "no nvidia-smi"
    versions = f"torch {torch.__version__}, Python {platform.python_version()}"
    return f"{gpu}; device {device}; {processor()}; {versions}"


def tests(options: argparse.Namespace) -> list[str]:
    """Run the tests marked `cuda`; return the failures and pytest's last line.

    They run six at a time if pytest-xdist is installed.
    """
    selection = ["-m", "cuda"]
    if options.small:
        selection = ["-m", "not long", "-k", "stays_on_the_gpu and trains"]
    words = [sys.executable, "-m", "pytest", "-v", "--tb=short", "-p", "no:cacheprovider"]
    words += [*selection, "tests/cuda"]
    if not options.small and find_spec("xdist"):
        words += ["-n", "6"]
    process = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    lines = process.stdout.splitlines()
    failures = [line for line in lines if line.startswith(("FAILED", "ERROR", "E   "))]
    if not lines:
        return process.stderr.splitlines()[-5:]
    return [*failures[-30:], lines[-1].strip("= ")]


def parse(words: Sequence[str] | None) -> argparse.Namespace:
    """Return the options."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.gpu", description=__doc__.split("\n")[0]
    )
    add = parser.add_argument
    page = Path(__file__).parents[1] / "GPU.md"
    of_small = "tiny sizes, to try the code; give --out another file"
    of_compiled = "leave out PyG by torch.compile"
    of_graphs = "of benchmarks.width.hops, for scores at equal time; default: a teacher's graph"
    add("--device", default="cuda")
    add("--out", type=Path, default=page, metavar="FILE")
    add("--small", action="store_true", help=of_small)
    add("--parts", nargs="+", choices=HEADINGS, default=list(HEADINGS))
    add("--no-compiled", action="store_false", dest="compiled", help=of_compiled)
    add("--graphs", nargs="+", default=[], metavar="FILE", help=of_graphs)
    add("--part", choices=HEADINGS, help=argparse.SUPPRESS)
    options = parser.parse_args(words)
    options.seconds = dict.fromkeys(SECONDS, 900) if options.small else SECONDS
    return options


if __name__ == "__main__":
    main()
