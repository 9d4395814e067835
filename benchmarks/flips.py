"""Flips single bits in the files of a run, and counts how many of them are refused.

python -m benchmarks.flips --hidden 1024 --bytes 1000
"""

import argparse
import json
import random
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.tables import table
from gistgnn import GIST, Saving, load_run
from gistgnn.errors import InputError
from gistgnn.fit.callbacks import InterruptWhen
from gistgnn.graphs import load
from gistgnn.nn import GCN
from gistgnn.storage.checkpoints import Checkpoint, Checkpoints


def main() -> None:
    """Make a run that was stopped, flip bits in its model and its checkpoint, and print a table."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.flips", description=__doc__.split("\n")[0]
    )
    parser.add_argument(
        "--hidden", type=int, default=1024, metavar="D", help="width of both layers (default: 1024)"
    )
    parser.add_argument(
        "--bytes", type=int, default=1000, help="flipped in each file (default: 1000)"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the random bits (default: 0)")
    options = parser.parse_args()
    graph = load("digits")

    def build(widths: Any) -> GCN:
        return GCN(graph.num_features, widths, graph.num_classes)

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        gist = GIST(build, (options.hidden, options.hidden), 4)
        saving = Saving(folder / "checkpoints", every=1)
        counts = iter(range(3))
        stop = [InterruptWhen(lambda: next(counts) == 1)]
        result = gist.fit(
            graph, epochs=200, local_steps=5, callbacks=stop, saving=saving, progress=False
        )
        saved = folder / "run"
        result.save(saved)
        checkpoint = Checkpoints(saving.path).newest()
        assert checkpoint
        run = json.loads((checkpoint / "state.json").read_text(encoding="utf-8"))["run"]
        readers: dict[Path, Callable[[], object]] = {
            saved / "model.safetensors": lambda: load_run(saved, build)
        }
        for path in sorted(checkpoint.iterdir()):
            readers[path] = lambda: Checkpoint(checkpoint, run)
        rows = [row(path, read, options) for path, read in readers.items()]
    print(table(["file", "bytes", "flipped", "refused"], rows))


def row(path: Path, read: Callable[[], object], options: argparse.Namespace) -> list[str]:
    """Flip a bit of some bytes of a file, one after another, and read it each time."""
    size = path.stat().st_size
    rng = random.Random(options.seed)
    read()
    offsets = range(size) if size <= options.bytes else rng.sample(range(size), options.bytes)
    refused = 0
    for offset in offsets:
        with flipped(path, offset, 1 << rng.randrange(8)):
            try:
                read()
            except InputError:
                refused += 1
            else:
                print(f"{path.name}: byte {offset} was read", file=sys.stderr)
    return [path.name, f"{size:,}", f"{len(offsets):,}", f"{refused:,}"]


@contextmanager
def flipped(path: Path, offset: int, bit: int) -> Iterator[None]:
    """Flip a bit of one byte in the file, and afterwards write the byte as it was."""
    with path.open("r+b", buffering=0) as file:
        file.seek(offset)
        byte = file.read(1)[0]
        file.seek(offset)
        file.write(bytes([byte ^ bit]))
        yield
        file.seek(offset)
        file.write(bytes([byte]))


if __name__ == "__main__":
    main()
