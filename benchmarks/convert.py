"""Seconds, peak memory and GB/s of `gistgnn convert`, and of reading the folder that it makes.

    python -m benchmarks.convert synthetic:papers100m@0.01 --memory 1 --folder /tmp/papers

The rate of the disk is that of writing and reading one file of 2 GB in pieces of 16 MiB, with fsync, and without the
system's cache.
"""

import argparse
import json
import os
import shutil
import time
from pathlib import Path

from benchmarks.command import drop_from_cache, json_of, output_of

PIECE, PIECES = 2**24, 128


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source")
    parser.add_argument("--memory", default="4", metavar="GIB")
    parser.add_argument("--folder", type=Path, required=True, help="is removed before and after")
    args = parser.parse_args()
    shutil.rmtree(args.folder, ignore_errors=True)
    writing, reading = disk_rates(args.folder.with_name("rate.bin"))
    start = time.perf_counter()
    made = json_of("convert", args.source, args.folder, "--memory", args.memory)
    seconds = time.perf_counter() - start
    drop_from_cache(args.folder)
    start = time.perf_counter()
    output_of("datasets", args.folder, "--verify")
    verified = time.perf_counter() - start
    shutil.rmtree(args.folder)
    result = {
        **made,
        "wall_seconds": seconds,
        "written_gb_per_second": made["bytes"] / seconds / 1e9,
        "verify_seconds": verified,
        "verify_gb_per_second": made["bytes"] / verified / 1e9,
        "disk_writes_gb_per_second": writing,
        "disk_reads_gb_per_second": reading,
    }
    print(json.dumps(result, indent=2))


def disk_rates(path: Path) -> tuple[float, float]:
    """GB/s of writing and of reading a file."""
    data = os.urandom(PIECE)
    start = time.perf_counter()
    with path.open("wb", buffering=0) as file:
        for _ in range(PIECES):
            file.write(data)
        os.fsync(file.fileno())
    writing = time.perf_counter() - start
    drop_from_cache(path)
    start = time.perf_counter()
    with path.open("rb", buffering=0) as file:
        while file.readinto(memoryview(bytearray(PIECE))):
            pass
    reading = time.perf_counter() - start
    path.unlink()
    return PIECE * PIECES / writing / 1e9, PIECE * PIECES / reading / 1e9


if __name__ == "__main__":
    main()
