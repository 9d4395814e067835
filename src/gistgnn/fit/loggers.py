"""The loggers of `gistgnn train --log`. A logger is imported when it is asked for."""

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

# what `Log` writes to, and what ends it, given whether the run failed
Started = tuple[Any, Callable[[bool], None]]

ID = "log-id"
_TAGS = {
    "loss": "loss",
    "learning rate": "lr",
    "score/validation": "validation",
    "score/test": "test",
}
_TAGS |= {"seconds of training": "train_seconds"}


def require_loggers(names: Sequence[str]) -> None:
    """Raise InputError if the package of a logger is not installed; it has the logger's name."""
    for name in names:
        if getattr(find_spec(name), "origin", None) is None:  # a folder of that name is no package
            raise InputError(
                f"--log {name} needs a package that is not installed: pip install {name}"
            )


def start_logger(name: str, out: Path, config: dict[str, Any], ends: ExitStack) -> "Log":
    """Start a logger for the run in the folder `out`, which goes on if that is resumed; `ends` ends
    it.
    """
    from gistgnn.fit.callbacks import Log  # it imports torch

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
    found = mlflow.search_runs(filter_string=f"tags.gistgnn = '{run_id}'", output_format="list")
    run = mlflow.start_run(
        found[0].info.run_id if found else None, run_name=out.name, tags={"gistgnn": run_id}
    )
    mlflow.log_params(
        {name: config[name] for name in ("dataset", "device")} | flat_settings(config)
    )
    # of a run that goes on
    known = mlflow.MlflowClient().get_metric_history(run.info.run_id, "round")
    logger = SimpleNamespace(
        log=mlflow.log_metrics, step=1 + max((each.step for each in known), default=-1)
    )
    return logger, lambda failed: mlflow.end_run("FAILED" if failed else "FINISHED")


def _tensorboard(out: Path, config: dict[str, Any]) -> Started:
    from torch.utils.tensorboard import SummaryWriter

    from gistgnn.storage.whole_files import remove_files

    # a resumed run writes all entries again
    remove_files(out / "tensorboard", "events.out.tfevents.*")
    writer = SummaryWriter(str(out / "tensorboard"))
    writer.add_text("config", f"```\n{json.dumps(config, indent=1)}\n```")

    def write(entry: dict[str, Any], step: int) -> None:
        for tag, key in _TAGS.items():
            if key in entry:  # there may be no test set
                writer.add_scalar(tag, entry[key], step)
        writer.flush()

    return write, lambda failed: writer.close()


LOGGERS = {"wandb": _wandb, "mlflow": _mlflow, "tensorboard": _tensorboard}
