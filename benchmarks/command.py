"""Runs of gistgnn as a process of their own, and what they print as JSON."""

import json
import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from gistgnn.storage.whole_files import replacing


def output_of(*words: object) -> str:
    """Run a command of gistgnn and return what it prints.

    Its warnings and progress are not shown. If it fails, this process ends with its errors.
    """
    line = [sys.executable, "-m", "gistgnn", *map(str, words)]
    process = subprocess.run(line, capture_output=True, text=True, check=False)
    if process.returncode:
        raise SystemExit(
            f"gistgnn {' '.join(line[3:])}: status {process.returncode}\n{process.stderr}"
        )
    return process.stdout


def json_of(*words: object) -> dict[str, Any]:
    """Run a command of gistgnn and return the JSON that it prints."""
    printed: dict[str, Any] = json.loads(output_of(*words, "--json"))
    return printed


def trained(*words: object) -> dict[str, Any]:
    """Run `gistgnn train` in a temporary folder and return its result.json."""
    with TemporaryDirectory() as folder:
        return json_of("train", *words, "--out", f"{folder}/run")


def trained_once(words: list[str], runs: Path) -> dict[str, Any]:
    """Run `gistgnn train`, unless the file ``runs`` has the result already.

    Args:
        words: the options of the command.
        runs: a JSON file; it has a result.json for each command, by its options.
    """
    key = " ".join(words)
    results: dict[str, Any] = json.loads(runs.read_text(encoding="utf-8")) if runs.exists() else {}
    if key not in results:
        print(f"gistgnn train {key}", file=sys.stderr, flush=True)
        results[key] = trained(*words)
        runs.parent.mkdir(parents=True, exist_ok=True)
        with replacing(runs) as file:
            file.write_text(json.dumps(results), encoding="utf-8")
    result: dict[str, Any] = results[key]
    return result


def drop_from_cache(path: Path) -> None:
    """Ask the system to drop a file, or the files of a folder, from its cache."""
    for file in path.iterdir() if path.is_dir() else [path]:
        handle = os.open(file, os.O_RDONLY)
        os.fsync(handle)
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(handle)
