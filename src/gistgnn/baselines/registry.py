"""The methods that train: GIST, and the baselines that it is compared with.

A new method is a file with a subclass of `GIST`, and an entry here. This module imports nothing
slow, for the command.
"""

from typing import Any

from gistgnn.utils.lazy import Registry

METHODS: Registry[Any] = Registry(
    {
        "gist": "gistgnn.gist:GIST",
        "parts": "gistgnn.baselines.parts:Parts",
        "data-parallel": "gistgnn.baselines.data_parallel:DataParallel",
        "local-sgd": "gistgnn.baselines.local_sgd:LocalSGD",
        "ensemble": "gistgnn.baselines.ensemble:Ensemble",
    }
)
"""Subclasses of `GIST`, by the names of the methods."""

UNSPLIT = ("data-parallel", "local-sgd")
"""The methods whose workers train the full model."""
