"""The saved states of a run, from which it resumes as if it had never stopped."""

from gistgnn.checkpoint.checkpoints import KEPT, Checkpoint, Checkpoints, require_same_run
from gistgnn.checkpoint.storage import Part

__all__ = ["KEPT", "Checkpoint", "Checkpoints", "Part", "require_same_run"]
