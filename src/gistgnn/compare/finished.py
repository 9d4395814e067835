"""Finished work in JSON files, so that nothing is done twice: a file's name holds a digest of what was asked for."""

from __future__ import annotations

import hashlib
import json
import logging
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from gistgnn.errors import InputError
from gistgnn.storage.json_files import read_json, write_json
from gistgnn.utils.progress import TaskProgress

log = logging.getLogger(__name__)

_NAN = "not a number"


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
    except FileNotFoundError:
        return None
    except InputError as error:
        log.warning("%s", error)
        return None
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def write(path: Path, content: Any) -> None:
    """Write a file, whole or not at all."""
    write_json(path, content)


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
            content = read(path, lambda content: {"of", "found"} <= content.keys())
            if content is None or content["of"] != request:
                content = json.loads(json.dumps({"of": request, "found": measure()}))
                content["found"] = _replaced(content["found"], math.nan, _NAN)
                write(path, content)
            results[name] = _replaced(content["found"], _NAN, math.nan)
            progress.advance()
    return results


def _replaced(found: Any, old: Any, new: Any) -> Any:
    """Return numbers, texts, lists and dicts with one value in place of another: JSON has no NaN."""
    if isinstance(found, dict):
        return {name: _replaced(value, old, new) for name, value in found.items()}
    if isinstance(found, list):
        return [_replaced(value, old, new) for value in found]
    return new if found == old or (found != found and old != old) else found
