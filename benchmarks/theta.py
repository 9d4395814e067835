"""The speed of taking slices out of Θ and putting them back, compared with the machine's memory and disk."""

import argparse
import json
import math
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from benchmarks.tables import describe_machine, number, on, table
from gistgnn import GIST
from gistgnn.nn import GraphSAGE
from gistgnn.partition import Blocks
from gistgnn.theta import Store
from gistgnn.theta.theta import Theta
from gistgnn.theta.trained import Trained
from gistgnn.utils.process_memory import keep_freed_memory

LINE = 64  # bytes of a cache line
ENTRY = 4  # bytes of a float32
TARGET = 0.5
RATES = ("copy", "disk_write", "disk_read")


def main() -> None:
    """Measure every store and width, print the table, and write JSON."""
    options = parse()
    torch.set_num_threads(options.threads)
    keep_freed_memory()  # as GIST.fit does
    machine = describe_machine(options.threads, "cpu")
    print(f"# Θ: take and put\n\n{on(machine)}\n", flush=True)
    rows = []
    for width in options.hidden:
        for kind in options.stores:
            with tempfile.TemporaryDirectory(dir=options.folder) as folder:
                rows.append(measure(kind, width, Path(folder), options))
                print(rows[-1], file=sys.stderr, flush=True)
    print_table(rows, options)
    if options.json:
        options.json.write_text(json.dumps({"machine": machine, "arguments": sys.argv[1:], "rows": rows}, indent=1))


def measure(kind: str, width: int, folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Measure rounds without training: the time of all takes and puts, and the least possible time."""

    def build(widths: Any) -> nn.Module:
        return GraphSAGE(options.features, widths, options.classes, norm="layer")

    store = Store(kind, folder / "theta" if kind == "disk" else None)
    gist = GIST(build, (width,) * options.layers, options.sub_gcns, store=store)
    rounds = [gist.partition.blocks(t) for t in range(options.repeat + 1)]
    subs = [build([len(own) for own in blocks]) for blocks in rounds[0]]
    takes, puts = zip(*(one_round(gist.theta, t, blocks, subs) for t, blocks in enumerate(rounds)), strict=True)
    held, moved = zip(*(bytes_of(gist.theta, own, lines=kind != "disk") for own in rounds[0]), strict=True)
    whole = sum(shape.numel() for shape in gist.theta.shapes.values()) * ENTRY
    if kind == "disk":
        write, read = disk_rates(folder, whole)
        floor_take = sum(moved) / read
        floor_put = (sum(held) + whole) * (1 / write + 1 / read)  # the round and Θ are both written and read
        rates = {"disk_write": write, "disk_read": read}
    else:
        rate = copy_rate(max(whole, 2**28))
        floor_take, floor_put = (sum(moved) + sum(held)) / rate, (2 * sum(moved) + sum(held)) / rate
        rates = {"copy": rate}
    take, put = statistics.median(takes[1:]), statistics.median(puts[1:])  # the first round warms up
    return {
        "store": kind,
        "width": width,
        "theta_bytes": whole,
        "slice_bytes": sum(held),
        "moved_bytes": sum(moved),
        "take_seconds": take,
        "put_seconds": put,
        "take_of_the_rate": floor_take / take,
        "put_of_the_rate": floor_put / put,
        "together": (floor_take + floor_put) / (take + put),
        **rates,
    }


def one_round(theta: Theta, number: int, blocks: Sequence[Blocks], subs: Sequence[nn.Module]) -> tuple[float, float]:
    """Return the seconds of taking all slices, and of putting them back."""
    take = put = 0.0
    theta.begin(number, blocks)
    for i, sub in enumerate(subs):
        start = time.perf_counter()
        theta.load(i, sub)
        taken = time.perf_counter()
        theta.keep(i, Trained.of(sub))
        take, put = take + taken - start, put + time.perf_counter() - taken
    start = time.perf_counter()
    theta.commit(0.0)
    return take, put + time.perf_counter() - start


def bytes_of(theta: Theta, blocks: Blocks, *, lines: bool) -> tuple[int, int]:
    """Return the bytes of a slice, and of the whole cache lines or whole rows of a file that contain it."""
    held = moved = 0
    for name, shape in theta.shapes.items():
        cut = theta.slices.cut(name, blocks)
        sizes = [size if p is None else len(p) for size, p in zip(shape, cut, strict=True)]
        held += math.prod(sizes) * ENTRY
        row = math.prod(shape[1:]) * ENTRY
        if lines and len(cut) == 2 and cut[1] is not None:
            row = len((cut[1] * ENTRY // LINE).unique()) * LINE
        moved += sizes[0] * row if sizes else ENTRY
    return held, moved


def copy_rate(size: int) -> float:
    """Return the bytes per second that a copy in memory reads and writes."""
    source = torch.zeros(size // 4)
    target = torch.empty_like(source)
    times = [timed(lambda: target.copy_(source)) for _ in range(5)]
    return 2 * source.nbytes / statistics.median(times)


def disk_rates(folder: Path, size: int) -> tuple[float, float]:
    """Return the bytes per second of writing to the disk with a sync, and of reading, in pieces of 32 MiB."""
    piece, path = bytearray(2**25), folder / "sequential"
    pieces = max(size // len(piece), 1)

    def write() -> None:
        with path.open("r+b" if path.exists() else "wb", buffering=0) as file:
            for _ in range(pieces):
                file.write(piece)
            os.fsync(file.fileno())

    def read() -> None:
        with path.open("rb", buffering=0) as file:
            while file.readinto(piece):
                pass

    writes = [timed(write) for _ in range(4)][1:]  # the first one creates the file
    reads = [timed(read) for _ in range(3)]
    path.unlink()
    total = pieces * len(piece)
    return total / statistics.median(writes), total / statistics.median(reads)


def timed(work: Callable[[], Any]) -> float:
    """Return the seconds of a call."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def print_table(rows: list[dict[str, Any]], options: argparse.Namespace) -> None:
    """Print times and the share of the machine's rate."""
    print(
        f"GraphSAGE, {options.layers} hidden layers, {options.features} features, {options.classes} classes, "
        f"m = {options.sub_gcns}; a round without training, median of {options.repeat}.\n"
    )
    head = ["store", "d", "Θ, MB", "slices, MB", "what holds them, MB", "take, ms", "put, ms"]
    head += ["take, of the rate", "put, of the rate", "together", "the rate, GB/s"]
    print(table(head, [cells(row) for row in rows]))
    print("\n## Targets\n")
    for row in rows:
        met = "pass" if row["together"] >= TARGET else "MISS"
        print(f"- {met}: {row['store']}, d = {row['width']}: {row['together']:.2f} of the rate (≥ {TARGET})")


def cells(row: dict[str, Any]) -> list[str]:
    """Return a row of the table."""
    mega = [number(row[key] / 1e6) for key in ("theta_bytes", "slice_bytes", "moved_bytes")]
    times = [number(row[key] * 1e3) for key in ("take_seconds", "put_seconds")]
    shares = [f"{row[key]:.2f}" for key in ("take_of_the_rate", "put_of_the_rate", "together")]
    rates = [f"{name.replace('_', ' ')} {number(row[name] / 1e9)}" for name in RATES if name in row]
    return [row["store"], str(row["width"]), *mega, *times, *shares, ", ".join(rates)]


def parse() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--hidden", type=int, nargs="+", default=[1024, 4096, 8192], help="widths d, measured one by one")
    add("--layers", type=int, default=2, help="hidden layers")
    add("--features", type=int, default=100)
    add("--classes", type=int, default=47)
    add("--sub-gcns", type=int, default=8)
    add("--stores", nargs="+", default=["memory", "disk"], choices=("memory", "host", "disk"))
    add("--folder", type=Path, default=Path(tempfile.gettempdir()), help="folder for files")
    add("--repeat", type=int, default=5)
    add("--threads", type=int, default=os.cpu_count())
    add("--json", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    main()
