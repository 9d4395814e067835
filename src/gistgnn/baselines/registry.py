"""The methods that train: GIST, and the baselines that it is compared with.

A new method is a file with a subclass of `GIST`, and an entry here. This module imports nothing slow, for the command.
"""

from dataclasses import dataclass
from pkgutil import resolve_name
from typing import Any


@dataclass(frozen=True)
class Method:
    """A way to train: a subclass of `GIST`, as "module:Class", and whether its sub-GCNs hold parts of the model."""

    home: str
    splits: bool = True

    def load(self) -> Any:
        return resolve_name(self.home)


METHODS = {
    "gist": Method("gistgnn.gist:GIST"),
    "data-parallel": Method("gistgnn.baselines.data_parallel:DataParallel", splits=False),
    "local-sgd": Method("gistgnn.baselines.local_sgd:LocalSGD", splits=False),
    "ensemble": Method("gistgnn.baselines.ensemble:Ensemble"),
}
"""The methods by name."""
