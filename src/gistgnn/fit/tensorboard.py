"""A run's history as TensorBoard events."""

from pathlib import Path
from typing import Any

from gistgnn.errors import InputError
from gistgnn.fit.callbacks import Callback, Run
from gistgnn.storage.whole_files import remove_files

FOLDER = "tensorboard"
TAGS = {"loss": "loss", "learning rate": "lr", "score/validation": "validation", "score/test": "test"}
TAGS |= {"seconds of training": "train_seconds"}
"""The entry of the history that each tag shows."""


def require_tensorboard() -> None:
    """Raise InputError if the package tensorboard is not installed."""
    try:
        import torch.utils.tensorboard  # noqa: F401
    except ImportError as error:
        advice = "the package is not installed: pip install tensorboard"
        raise InputError(f"tensorboard is asked for, but {advice}") from error


class Events(Callback):
    """Writes every entry of a run's history as it comes, with those of a resumed run again; call `close` at the end."""

    def __init__(self, folder: Path) -> None:
        require_tensorboard()
        from torch.utils.tensorboard import SummaryWriter

        remove_files(folder, "events.out.tfevents.*")
        try:
            self._writer = SummaryWriter(str(folder))
        except OSError as error:
            raise InputError(f"cannot write {folder}: {error.strerror}; choose another --out") from error

    def on_fit_begin(self, run: Run) -> None:
        """Write the entries of a run that is resumed."""
        for entry in run.history:
            self.on_evaluation(run, entry)

    def on_evaluation(self, run: Run, entry: dict[str, Any]) -> None:
        for tag, key in TAGS.items():
            self._writer.add_scalar(tag, entry[key], entry["step"])
        self._writer.flush()

    def close(self) -> None:
        """Write what is left."""
        self._writer.close()
