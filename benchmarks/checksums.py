"""What checksums cost: rounds with and without them, in turn, with Θ in memory and on disk.

python -m benchmarks.checksums
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch

from benchmarks.case import Case
from benchmarks.ranks import one_round
from benchmarks.tables import describe_machine, on, quartiles, spread, table
from gistgnn import GIST
from gistgnn.checkpoint.storage import write_parts
from gistgnn.io import tensors
from gistgnn.io.digests import UNKNOWN
from gistgnn.schedule import Stretch
from gistgnn.settings import Training
from gistgnn.theta import Store
from gistgnn.theta.disk import journal, tensor_folder
from gistgnn.theta.disk.tensor_file import EditableFile
from gistgnn.utils.process_memory import keep_freed_memory

TARGET = 0.01  # of a round


def main() -> None:
    """Measure both stores, and print the table."""
    options = parse()
    torch.set_num_threads(options.threads)
    keep_freed_memory()  # as GIST.fit does
    print(f"# Checksums\n\n{on(describe_machine(options.threads, 'cpu'))}\n", flush=True)
    d, zeta = options.hidden, options.local_steps
    case = Case("graphsage", (d, d), 100, 47, 1, 1600, 47600, 10, 100, "float32", "cpu", options.threads, zeta, True)
    print(f"GraphSAGE, d = {d}, m = {options.sub_gcns}, ζ = {zeta}, moments carried; {options.repeat} rounds of each\n")
    rows = []
    for kind in ("memory", "disk"):
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            rows.append(measured(kind, case, options, Path(folder)))
            print(rows[-1], file=sys.stderr, flush=True)
    head = ["store", "round, s", "beside its steps, s", "without checksums, s", "the difference, ms"]
    head += ["of the round", f"with ζ = {options.long}"]
    print(table(head, rows))


def measured(kind: str, case: Case, options: argparse.Namespace, folder: Path) -> list[str]:
    """Return a row of the table: medians and quartiles of a round, and of what is not a step."""
    zeta = options.local_steps
    training = Training(1000, local_steps=zeta, lr=1e-3, optimizer_state="carry")
    gists = {
        name: GIST(case.build, case.hidden, options.sub_gcns, store=store_of(kind, folder / name))
        for name in ("with", "without")
    }
    for gist in gists.values():
        gist.theta  # noqa: B018 (makes the files)
    samples: dict[str, list[tuple[float, float]]] = {name: [] for name in gists}
    for number in range(options.repeat + 1):
        for name, gist in list(gists.items())[:: 1 if number % 2 else -1]:
            stretch = Stretch(number * zeta, zeta, 10**6)
            with ExitStack() as stack:
                if name == "without":
                    stack.enter_context(no_checksums())
                whole, beside = one_round(gist, case.sampler(), training, stretch)
                saved = checkpoint(gist, folder / name)
            if number:  # the first one warms up
                samples[name].append((whole + saved, beside + saved))
    whole, beside = (list(column) for column in zip(*samples["with"], strict=True))
    without = [sample[1] for sample in samples["without"]]
    more = [1e3 * (one - other) for one, other in zip(beside, without, strict=True)]
    share = [ms / 1e3 / seconds for ms, seconds in zip(more, whole, strict=True)]
    steps = quartiles([all_ - own for all_, own in samples["with"]])["median"]
    long = quartiles(more)["median"] / 1e3 / (quartiles(beside)["median"] + steps * options.long / zeta)
    verdict = f"{100 * long:.3f} % ({'pass' if long < TARGET else 'MISS'}: < {TARGET:.0%})"
    times = [spread(quartiles(each)) for each in (whole, beside, without, more)]
    return [kind, *times, f"{100 * quartiles(share)['median']:.2f} %", verdict]


def store_of(kind: str, folder: Path) -> Store:
    """Return a store with files in a folder, or in memory."""
    return Store("disk", folder / "theta") if kind == "disk" else Store()


def checkpoint(gist: GIST, folder: Path) -> float:
    """Write a checkpoint of Θ in memory, and return the seconds; a run does so in the background of the next round."""
    begun = time.perf_counter()
    if parts := gist.theta.checkpoint():
        write_parts(folder / "checkpoint", parts, 0, "benchmark")
    return time.perf_counter() - begun


class Unhashed:
    """In place of a hash: takes no time."""

    def __init__(self, data: Any = b"") -> None:
        pass

    def update(self, data: Any) -> None:
        """Do nothing."""

    def hexdigest(self) -> str:
        """Return zeros."""
        return UNKNOWN


@contextmanager
def no_checksums() -> Iterator[None]:
    """Compute, compare and write no checksums."""
    read = EditableFile._fill_checked

    def fill(self: EditableFile, *args: Any, **_: Any) -> None:
        read(self, *args, checked=False)

    with (
        patch.object(tensors, "xxhash", SimpleNamespace(xxh3_128=Unhashed)),
        patch.object(EditableFile, "_fill_checked", fill),
        patch.object(EditableFile, "_set_checksums", lambda *_: None),
        patch.object(tensor_folder, "save_checksums", lambda *_: UNKNOWN),
        patch.object(journal, "save_checksums", lambda *_: UNKNOWN),
    ):
        yield


def parse() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.checksums",
        description=__doc__.split("\n")[0],
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add = parser.add_argument
    add("--hidden", type=int, default=4096, metavar="D", help="width of both layers of GraphSAGE")
    add("--sub-gcns", type=int, default=8, metavar="M")
    add("--local-steps", type=int, default=20, metavar="ZETA")
    add("--long", type=int, default=500, metavar="ZETA", help="also say the share of a round with so many steps")
    add("--repeat", type=int, default=7, help="rounds of each, after one for warming up")
    add("--threads", type=int, default=1)
    add("--folder", type=Path, default=Path(tempfile.gettempdir()), help="folder for files")
    return parser.parse_args()


if __name__ == "__main__":
    main()
