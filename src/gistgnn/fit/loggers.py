"""The loggers of `gistgnn train --log`, each imported when it is asked for."""

import json
import os
import secrets
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from gistgnn.errors import InputError, users_code

if TYPE_CHECKING:
    from gistgnn.fit.callbacks import Log

Started = tuple[Any, Callable[[bool], None]]
"""What `Log` writes to, and the function that ends it, which is told whether the run failed."""

ID = "log-id"  # The file in the folder of a run with its id in the loggers.
_TAGS = {
    "loss": "loss",
    "learning rate": "lr",
    "score/validation": "validation",
    "score/test": "test",
    "seconds of training": "train_seconds",
}
"""What TensorBoard calls the numbers of an entry of the history."""


def require_loggers(names: Sequence[str]) -> None:
    """Raise InputError if the package of a logger, which has its name, is not installed."""
    for name in names:
        # A folder of that name has a spec without an origin, and is no package.
        if getattr(find_spec(name), "origin", None) is None:
            raise InputError(
                f"--log {name} needs a package that is not installed: pip install {name}"
            )


def start_logger(name: str, out: Path, config: dict[str, Any], ends: ExitStack) -> "Log":
    """Start a logger for a run, or let it go on if the run is resumed.

    Args:
        name: of the logger.
        out: the folder of the run.
        config: the settings of the run, which the logger shows.
        ends: ends the logger.
    """
    from gistgnn.fit.callbacks import Log  # This imports torch.

    with users_code(f"--log {name} cannot start"):
        logger, end = LOGGERS[name](out.resolve(), config)
    log = Log(logger)
    ends.push(lambda error, *_: log.attempt(lambda: end(error is not None)))
    return log


def _id_of(out: Path) -> str:
    """Return the id of a run in its loggers, which a resumed run finds in its folder."""
    path = out / ID
    if not path.exists():
        path.write_text(secrets.token_hex(8))
    return path.read_text()


def _wandb(out: Path, config: dict[str, Any]) -> Started:
    import wandb

    chosen: dict[str, Any] = {"project": "gistgnn", "name": out.name, "dir": str(out)}
    chosen = {key: os.environ.get(f"WANDB_{key.upper()}", value) for key, value in chosen.items()}
    run = wandb.init(**chosen, id=_id_of(out), resume="allow", config=config)
    return run, lambda failed: run.finish(exit_code=int(failed))


def _mlflow(out: Path, config: dict[str, Any]) -> Started:
    import mlflow

    from gistgnn.fit.identity import flat_settings

    run_id = _id_of(out)
    runs = mlflow.search_runs(filter_string=f"tags.gistgnn = '{run_id}'", output_format="list")
    run = mlflow.start_run(
        runs[0].info.run_id if runs else None, run_name=out.name, tags={"gistgnn": run_id}
    )
    mlflow.log_params(
        {name: config[name] for name in ("dataset", "device")} | flat_settings(config)
    )
    # A run that goes on has entries already.
    entries = mlflow.MlflowClient().get_metric_history(run.info.run_id, "round")
    next_step = 1 + max((entry.step for entry in entries), default=-1)
    logger = SimpleNamespace(log=mlflow.log_metrics, step=next_step)
    return logger, lambda failed: mlflow.end_run("FAILED" if failed else "FINISHED")


def _tensorboard(out: Path, config: dict[str, Any]) -> Started:
    from torch.utils.tensorboard import SummaryWriter

    from gistgnn.storage.whole_files import remove_files

    # A resumed run writes all its entries again.
    remove_files(out / "tensorboard", "events.out.tfevents.*")
    writer = SummaryWriter(str(out / "tensorboard"))
    writer.add_text("config", f"```\n{json.dumps(config, indent=1)}\n```")

    def write(entry: dict[str, Any], step: int) -> None:
        for tag, key in _TAGS.items():
            if key in entry:  # There may be no test set.
                writer.add_scalar(tag, entry[key], step)
        writer.flush()

    return write, lambda failed: writer.close()


LOGGERS = {"wandb": _wandb, "mlflow": _mlflow, "tensorboard": _tensorboard}
