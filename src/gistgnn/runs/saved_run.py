"""`load_run`: the result of a run that has been saved."""

import logging
from dataclasses import fields
from pathlib import Path

from gistgnn.layout.axes import Build
from gistgnn.runs import run_folder
from gistgnn.session.progress import Progress
from gistgnn.session.result import Result

log = logging.getLogger(__name__)


def load_run(folder: str | Path, build: Build | None = None) -> Result:
    """Return the result of a finished run: of `gistgnn train`, or one that `Result.save` has written.

    Example:
        >>> result = load_run("runs/mine", build)
        >>> result.test["accuracy"]

    Args:
        folder: of the run.
        build: for a model that is not one of ours, the function that was given to `GIST`.

    Raises:
        InputError: a file is missing or damaged, `build` is missing, or it builds another model.
    """
    _, record, model = run_folder.load_run(Path(folder), build)
    if note := run_folder.note_on(record):
        log.warning("%s: %s", folder, note)
    known = {field.name for field in fields(Progress)} - {"best", "best_score", "chosen"}
    key = record.get("metric", {}).get("name")
    best = {split: record[split] for split in ("validation", "test") if record.get(split)}
    progress = Progress(
        **{name: value for name, value in record.items() if name in known},
        best=best,
        best_score=best["validation"].get(key) if best else None,
        chosen=record.get("budget"),
    )
    if "standardised" in record:  # in the configuration it may be left to the features
        record["config"]["standardise"] = record["standardised"]
    own = {field.name for field in fields(Result)} - {"model", "progress", "interrupted"}
    return Result(
        model,
        progress,
        bool(record.get("interrupted")),
        **{name: value for name, value in record.items() if name in own},
    )
