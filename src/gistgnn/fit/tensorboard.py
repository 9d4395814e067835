"""A run's history as TensorBoard events."""

import shutil
from pathlib import Path
from typing import Any

from gistgnn.errors import InputError
from gistgnn.fit.callbacks import Callback, Run

FOLDER = "tensorboard"


def require_tensorboard() -> None:
    """Raise InputError if the package tensorboard is not installed."""
    try:
        import torch.utils.tensorboard  # noqa: F401
    except ImportError as error:
        raise InputError(
            "tensorboard is asked for, but the package is not installed: pip install tensorboard"
        ) from error


class Events(Callback):
    """Writes every entry of a run's history as it comes; call `close` at the end.

    By step are written: loss, learning rate, scores and seconds of training. A run that goes on gives its earlier
    entries again, so what the folder held before is replaced.

    Args:
        folder: of the event files.
    """

    def __init__(self, folder: Path) -> None:
        require_tensorboard()
        from torch.utils.tensorboard import SummaryWriter

        shutil.rmtree(folder, ignore_errors=True)
        try:
            self._writer = SummaryWriter(str(folder))
        except OSError as error:
            raise InputError(f"cannot write {folder}: {error.strerror}; choose another --out") from error

    def on_fit_begin(self, run: Run) -> None:
        """Write the entries of a run that is resumed."""
        for entry in run.history:
            self.on_evaluation(run, entry)

    def on_evaluation(self, run: Run, entry: dict[str, Any]) -> None:
        """Write an entry; see `Result.history`."""
        step = entry["step"]
        for name, key in (
            ("loss", "loss"),
            ("learning rate", "lr"),
            ("score/validation", "validation"),
            ("score/test", "test"),
            ("seconds of training", "train_seconds"),
        ):
            self._writer.add_scalar(name, entry[key], step)
        self._writer.flush()

    def close(self) -> None:
        """Write what is left."""
        self._writer.close()
