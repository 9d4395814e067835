"""The baseline of a run: ordinary training of the same model, in a folder beside it."""

from pathlib import Path

from gistgnn.errors import InputError
from gistgnn.report import names
from gistgnn.storage.record import RESULT, Record, read_result

_MOST_FOLDERS = 100  # that are read: the newest


def find_baseline(folder: Path, record: Record) -> tuple[str, Record] | None:
    """Return the name and the record of the best run on one device beside a run.

    It has the graph, the model and the score of the run. The best is that of the best validation
    score. A run on one device needs no baseline.

    Args:
        folder: of the run, which need not be there yet.
        record: of the run.
    """
    if _is_one_device(record):
        return None
    baselines = [
        (path.parent.name, other)
        for path in _newest_results(folder)
        if (other := _read(path)) is not None and _is_baseline(other, record)
    ]
    if not baselines:
        return None
    metric = record.metric
    sign = 1 if metric.higher_is_better else -1
    return max(baselines, key=lambda baseline: sign * (baseline[1].validation[metric.name] or 0.0))


def _newest_results(folder: Path) -> list[Path]:
    """Return the files result.json of the folders beside a folder, the newest first."""
    folder = folder.resolve()
    try:
        paths = [path for path in folder.parent.glob(f"*/{RESULT}") if path.parent != folder]
        newest = sorted(paths, key=lambda path: path.stat().st_mtime, reverse=True)
    except OSError:  # another process removes one
        return []
    return newest[:_MOST_FOLDERS]


def _read(path: Path) -> Record | None:
    """Return the record in a file; None if the file cannot be read."""
    try:
        return read_result(path, "")
    except InputError:
        return None


def _is_one_device(record: Record) -> bool:
    return names.sub_gcns_of(record) == 1 and names.method_of(record) != "budget"


def _is_baseline(other: Record, record: Record) -> bool:
    """Whether a run on one device ended well, and its scores compare with those of a run."""
    graph = other.fingerprint.get("graph")
    return (
        _is_one_device(other)
        and not other.interrupted
        and other.diverged is None
        and graph == record.fingerprint.get("graph")
        and other.graph == record.graph
        and names.model_of(other) == names.model_of(record)
        and other.metric == record.metric
        and other.evaluation.get("exact") == record.evaluation.get("exact")
        and other.validation.get(record.metric.name) is not None
    )
