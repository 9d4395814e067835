"""Seconds, peak memory and GB/s of `gistgnn convert`, and of reading the folder that it makes.

    python benchmarks/convert.py synthetic:papers100m@0.01 --memory 1 --folder /tmp/papers

The rate of the disk is that of writing and reading one file of 2 GB in pieces of 16 MiB, with fsync, and without the
system's cache.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

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
    made = json.loads(run("convert", args.source, args.folder, "--memory", args.memory, "--json"))
    seconds = time.perf_counter() - start
    drop_from_cache(args.folder)
    start = time.perf_counter()
    run("datasets", args.folder, "--verify")
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


def run(*words: object) -> str:
    return subprocess.run(
        [sys.executable, "-m", "gistgnn", *map(str, words)], check=True, stdout=subprocess.PIPE, text=True
    ).stdout


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


def drop_from_cache(place: Path) -> None:
    """Ask the system to forget what it holds of a file, or of the files of a folder."""
    for path in place.iterdir() if place.is_dir() else [place]:
        handle = os.open(path, os.O_RDONLY)
        os.fsync(handle)
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(handle)


if __name__ == "__main__":
    main()
