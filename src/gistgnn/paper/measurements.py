"""Measurements that are not training runs: each is made once and kept in a file of its own."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from gistgnn.compare import finished


class Measurements:
    """A directory of measurements, one JSON file for each, looked up by name and arguments.

    Args:
        directory: made when the first measurement is kept.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def all(self, wanted: Mapping[str, tuple[Mapping[str, Any], Callable[[], Any]]], label: str) -> dict[str, Any]:
        """Make the measurements that are missing, one after another; an interruption keeps the finished ones.

        Args:
            wanted: for each name the arguments that tell the measurement from others, and a function that makes it;
                both consist of numbers, strings, lists and dicts. Measurements whose names begin with the same word
                and whose arguments agree are the same.
            label: of the progress bar.

        Returns:
            All results, by name.
        """
        results = {}
        with finished.progress_bar(label, len(wanted)) as advance:
            for name, (arguments, measure) in wanted.items():
                results[name] = self._one(name.split(" ")[0], dict(arguments), measure)
                advance()
        return results

    def _one(self, kind: str, arguments: dict[str, Any], measure: Callable[[], Any]) -> Any:
        path = finished.file_of(self.directory, kind, [kind, arguments])
        request = json.loads(json.dumps([kind, arguments]))  # tuples become lists, as in the file
        content = finished.read(path, lambda content: content["of"] == request and "found" in content)
        if content is None:
            content = json.loads(json.dumps({"of": request, "found": measure()}))
            finished.write(path, content)
        return content["found"]
