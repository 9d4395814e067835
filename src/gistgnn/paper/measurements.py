"""Measurements of an experiment that are not runs: each is made once, kept in a file of its own, and not made again."""

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress

from gistgnn.io.whole_files import replacing


class Measurements:
    """Measurements in a directory, found again by what they are of.

    Args:
        directory: one JSON file for each; made when the first is kept.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def all(self, wanted: Mapping[str, tuple[Mapping[str, Any], Callable[[], Any]]], label: str) -> dict[str, Any]:
        """Make those that are not there yet, one after another, and return all by their names.

        Args:
            wanted: by name, what each is of (its arguments) and what makes it; numbers, lists and dicts of them.
            label: of the progress bar.

        An interruption keeps what is finished.
        """
        found = {}
        with Progress(console=Console(stderr=True)) as bar:
            task = bar.add_task(label, total=len(wanted))
            for name, (of, measure) in wanted.items():
                found[name] = self._one(name.split(" ")[0], dict(of), measure)
                bar.advance(task)
        return found

    def _one(self, kind: str, of: dict[str, Any], measure: Callable[[], Any]) -> Any:
        key = json.dumps([kind, of], sort_keys=True)
        path = self.directory / f"{kind}-{hashlib.sha256(key.encode()).hexdigest()[:16]}.json"
        try:
            kept = json.loads(path.read_text(encoding="utf-8"))
            if kept["of"] == json.loads(key):
                return kept["found"]
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            pass  # not there, or cut short: made again
        found = json.loads(json.dumps(measure()))  # as it will be read
        with replacing(path) as new:
            new.write_text(json.dumps({"of": json.loads(key), "found": found}), encoding="utf-8")
        return found
