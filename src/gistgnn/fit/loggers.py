"""The loggers of `gistgnn train --log`. A logger is imported when it is asked for."""

import logging
import os
import secrets
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from gistgnn.errors import InputError, reason, users_code

if TYPE_CHECKING:
    from gistgnn.fit.callbacks import Log

Started = tuple[Any, Callable[[bool], Any]]  # what `Log` writes to, and what ends it: (failed) -> None

_ID = "log-id"
_TAGS = {"loss": "loss", "learning rate": "lr", "score/validation": "validation", "score/test": "test"}
_TAGS |= {"seconds of training": "train_seconds"}

log = logging.getLogger(__name__)


def require_loggers(names: Sequence[str]) -> None:
    """Raise InputError if the package of a logger is not installed; it has the logger's name."""
    for name in names:
        if getattr(find_spec(name), "origin", None) is None:  # a folder of that name is no package
            raise InputError(f"--log {name} needs a package that is not installed: pip install {name}")


def start_loggers(
    names: Sequence[str], out: Path, config: dict[str, Any], ends: ExitStack, *, resume: bool
) -> list["Log"]:
    """Start loggers for the run in the folder `out`, anew or where it was left; `ends` ends them."""
    from gistgnn.fit.callbacks import Log  # it imports torch

    loggers = list[Log]()
    if not resume:
        (out / _ID).unlink(missing_ok=True)
    for name in names:
        with users_code(f"--log {name} cannot start"):
            logger, end = LOGGERS[name](out.resolve(), config)
        ends.push(partial(_end, name, end))
        loggers.append(Log(logger))
    return loggers


def _end(name: str, end: Callable[[bool], Any], error: type[BaseException] | None, *more: Any) -> None:
    """End a logger; a network may be lost."""
    try:
        end(error is not None)
    except Exception as failure:
        log.warning("%s did not end as it should (%s)", name, reason(failure))


def _id_of(out: Path) -> str:
    """Return the id of a run in its loggers, which a resumed run finds in its folder."""
    if not (out / _ID).exists():
        (out / _ID).write_text(secrets.token_hex(8))
    return (out / _ID).read_text()


def _wandb(out: Path, config: dict[str, Any]) -> Started:
    import wandb

    chosen = {"project": "gistgnn", "name": out.name, "dir": str(out)}
    chosen = {key: os.environ.get(f"WANDB_{key.upper()}", value) for key, value in chosen.items()}
    run = wandb.init(**chosen, id=_id_of(out), resume="allow", config=config)
    return run, lambda failed: run.finish(exit_code=int(failed))


def _mlflow(out: Path, config: dict[str, Any]) -> Started:
    import mlflow

    run_id = _id_of(out)
    found = mlflow.search_runs(filter_string=f"tags.gistgnn = '{run_id}'", output_format="list")
    run = mlflow.start_run(found[0].info.run_id if found else None, run_name=out.name, tags={"gistgnn": run_id})
    mlflow.log_params(_flat(config))
    known = mlflow.MlflowClient().get_metric_history(run.info.run_id, "round")  # of a run that goes on
    logger = SimpleNamespace(log=mlflow.log_metrics, step=1 + max((each.step for each in known), default=-1))
    return logger, lambda failed: mlflow.end_run("FAILED" if failed else "FINISHED")


def _tensorboard(out: Path, config: dict[str, Any]) -> Started:
    from torch.utils.tensorboard import SummaryWriter

    from gistgnn.storage.whole_files import remove_files

    remove_files(out / "tensorboard", "events.out.tfevents.*")  # a resumed run writes all entries again
    writer = SummaryWriter(str(out / "tensorboard"))
    writer.add_text("config", "\n".join(f"    {name}: {value}" for name, value in _flat(config).items()))

    def write(entry: dict[str, Any], step: int) -> None:
        for tag, key in _TAGS.items():
            writer.add_scalar(tag, entry[key], step)
        writer.flush()

    return write, lambda failed: writer.close()


def _flat(config: dict[str, Any], before: str = "") -> dict[str, Any]:
    """Return nested settings by names such as model.hidden."""
    flat: dict[str, Any] = {}
    for name, value in config.items():
        flat |= _flat(value, f"{before}{name}.") if isinstance(value, dict) else {before + name: value}
    return flat


LOGGERS = {"wandb": _wandb, "mlflow": _mlflow, "tensorboard": _tensorboard}
