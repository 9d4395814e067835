"""Finished work in JSON files, so that nothing is done twice: a file's name holds a digest of what was asked for."""

import hashlib
import json
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from gistgnn.errors import InputError
from gistgnn.storage.json_files import read_json, write_json
from gistgnn.utils.progress import TaskProgress

log = logging.getLogger(__name__)


def file_of(directory: Path, prefix: str, request: Any) -> Path:
    """Return the file for a request, which JSON can hold, whatever the order of its keys."""
    digest = hashlib.sha256(json.dumps(request, sort_keys=True).encode()).hexdigest()[:16]
    return directory / f"{prefix}-{digest}.json"


def read(path: Path, fits: Callable[[Any], bool]) -> Any | None:
    """Return the content of a file; None if it does not fit the request, is missing or damaged."""
    try:
        content = read_json(path, dict[str, Any], "it is done again")
        content.pop("checksum")
        return content if fits(content) else None
    except InputError as error:
        log.warning("%s", error)
    except (FileNotFoundError, ValueError, KeyError, TypeError, AttributeError):
        pass
    return None


def measure_all(
    directory: Path, wanted: Mapping[str, tuple[Mapping[str, Any], Callable[[], Any]]], label: str
) -> dict[str, Any]:
    """Make the measurements that are missing, one after another; an interruption keeps the finished ones.

    Args:
        directory: of the files, one for each measurement.
        wanted: for each name the arguments that tell the measurement from others, and a function that makes it; both
            consist of numbers, strings, lists and dicts. Measurements whose names begin with the same word and whose
            arguments agree are the same.
        label: of the progress bar.

    Returns:
        All results, by name.
    """
    results = {}
    with TaskProgress(label, len(wanted)) as progress:
        for name, (arguments, measure) in wanted.items():
            kind = name.split(" ")[0]
            request = json.loads(json.dumps([kind, arguments]))  # tuples become lists, as in the file
            path = file_of(directory, kind, request)
            content = read(path, lambda content: isinstance(content["found"], str))
            if content is None or content["of"] != request:
                content = {"of": request, "found": json.dumps(measure())}  # as text, where NaN stays NaN
                write_json(path, content)
            results[name] = json.loads(content["found"])
            progress.advance()
    return results
