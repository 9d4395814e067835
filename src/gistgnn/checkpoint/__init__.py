"""A run's state on disk, from which it goes on as if it had never stopped."""

from gistgnn.checkpoint.checkpoints import FILE_BYTES, KEPT, Checkpoint, Checkpoints, require_same_run
from gistgnn.checkpoint.part import Part

__all__ = ["FILE_BYTES", "KEPT", "Checkpoint", "Checkpoints", "Part", "require_same_run"]
