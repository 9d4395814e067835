"""The places where Θ can lie. A new place is a file with a subclass of `Theta` and an entry here.

This module imports nothing slow: the command line reads it.
"""

from dataclasses import dataclass
from pkgutil import resolve_name
from typing import Any, Literal

StoreName = Literal["memory", "host", "sharded"]
"""The places that need no folder."""


@dataclass(frozen=True)
class Place:
    """A place for Θ.

    Args:
        home: the class, as "module:Class".
        help: where Θ is, for the command line.
        holds: which memory takes Θ, the best Θ and the carried moments: "device", "host" or "disk".
        streams: one sub-GCN is on the device at a time; otherwise all of them.
        alone: one process can use it.
        ranks: several ranks can use it.
        shared: every rank holds 1/W of Θ; otherwise all of it.
    """

    home: str
    help: str
    holds: str = "device"
    streams: bool = False
    alone: bool = True
    ranks: bool = False
    shared: bool = False

    def load(self) -> Any:
        """Import the class, a subclass of `Theta`."""
        return resolve_name(self.home)


STORES = {
    "memory": Place("gistgnn.theta.memory:InMemory", "on the device, with all sub-GCNs of a round", ranks=True),
    "host": Place(
        "gistgnn.theta.memory:InMemory",
        "in the host's memory, with one sub-GCN at a time on the device",
        holds="host",
        streams=True,
    ),
    "disk": Place(
        "gistgnn.theta.disk:OnDisk",
        "in files in the run's folder, with one sub-GCN at a time in memory",
        holds="disk",
        streams=True,
    ),
    "sharded": Place(
        "gistgnn.theta.ranks.sharded:Sharded",
        "by rows over the ranks",
        streams=True,
        alone=False,
        ranks=True,
        shared=True,
    ),
}
"""The places by name."""

ALIASES = {"mapped": "disk"}
"""Names that earlier versions used."""
