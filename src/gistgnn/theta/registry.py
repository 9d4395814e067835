"""The places where Θ can lie, how ranks share it, and the store that a user chooses.

A new place is a file with a subclass of `InMemory`, a new exchange one with a subclass of
`Exchange`. Both need an entry here. This module imports nothing slow: the command line reads it.
"""

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from gistgnn.errors import InputError
from gistgnn.settings import PRECISIONS
from gistgnn.utils.checks import check_choice, check_kind
from gistgnn.utils.lazy import Registry

if TYPE_CHECKING:
    from gistgnn.distributed import World

StoreName = Literal["memory", "host", "sharded"]
"""The places that need no folder, and "memory" by rows."""


@dataclass(frozen=True)
class Place:
    """A place for Θ."""

    class_name: str  # "module:Class"
    help: str  # where Θ is, for the command line
    # Which memory takes Θ, the best Θ and the carried moments: "device", "host" or "disk".
    holds: str = "device"
    streams: bool = False  # one sub-GCN is on the device at a time; otherwise all of them


_ONE = "one sub-GCN at a time"
_MEMORY = "gistgnn.theta.memory:InMemory"
_DISK = "gistgnn.theta.disk:OnDisk"

STORES = {
    "memory": Place(_MEMORY, "on the device, with all sub-GCNs of a round"),
    "host": Place(
        _MEMORY, f"in the host's memory, with {_ONE} on the device", holds="host", streams=True
    ),
    "disk": Place(
        _DISK, f"in files in the run's folder, with {_ONE} in memory", holds="disk", streams=True
    ),
}
"""The places by name."""

SHARES: Registry[Any] = Registry(
    {
        "whole": "gistgnn.theta.exchange:Exchange",
        "rows": "gistgnn.theta.rows:Rows",
    }
)
"""The exchanges by name: every rank holds all of Θ, or 1/W of the rows of every tensor."""

SHARDED = "sharded"  # another name of the place "memory" with the exchange "rows"


@dataclass(frozen=True)
class Store:
    """Where Θ, its moments and the best Θ are between rounds.

    Args:
        kind: a name in `gistgnn.theta.registry.STORES`. "memory": on the device where the sub-GCNs
            train, all m of them at once. "host": in the host's memory, one sub-GCN at a time on the
            device. "disk": in files, one sub-GCN at a time in memory. "sharded": in memory, by
            rows.
        folder: of the files; it holds nothing else. Ranks with files of their own have them in
            folders beside it.
        precision: of the numbers in the files, "float32" or "bf16"; sub-GCNs train in float32 all
            the same.
        share: what a rank holds: "whole", all of Θ; or "rows", 1/W of the rows of every tensor.
    """

    kind: str = "memory"
    folder: Path | None = None
    precision: str = "float32"
    share: str = "whole"
    place: Place = field(init=False, repr=False)  # the entry in the registry

    def __post_init__(self) -> None:
        if self.kind == SHARDED:
            object.__setattr__(self, "kind", "memory")
            object.__setattr__(self, "share", "rows")
        check_choice("store", self.kind, STORES)
        check_choice("share", self.share, SHARES)
        check_choice("the store's precision", self.precision, PRECISIONS)
        object.__setattr__(self, "place", STORES[self.kind])
        check_kind(
            "the store's folder", self.folder, (str, os.PathLike), "the path of a folder", none=True
        )
        if self.folder is not None:
            object.__setattr__(self, "folder", Path(self.folder))
        on_disk = self.place.holds == "disk"
        if on_disk and self.folder is None:
            raise InputError(f"the store is {self.kind}, but it has no folder: give it one")
        if not on_disk and self.folder is not None:
            raise InputError(f"a folder is given, but the store is {self.kind}: use disk")
        if not on_disk and self.precision != "float32":
            raise InputError(
                f"the store's precision is {self.precision}, but the store is {self.kind}: use disk"
            )

    @classmethod
    def in_run(
        cls, kind: str, run_folder: Path | None, precision: str = "float32", share: str = "whole"
    ) -> "Store":
        """The store of a run: its files, if it has files, lie in the run's folder."""
        entry = STORES.get(kind)
        return cls(kind, run_folder if entry and entry.holds == "disk" else None, precision, share)

    def check_ranks(self, ranks: "World", workers: int, name: str) -> None:
        """Refuse ranks that do not fit the store, or are more than the workers.

        `name` is what the user calls the workers.
        """
        if not ranks.is_distributed and self.share == "rows":
            raise InputError(
                "share is rows, but there are no ranks: start by torchrun, or use whole"
            )
        check_workers(ranks.count, workers, name)


def check_workers(ranks: int, workers: int, name: str) -> None:
    """Refuse ranks that are more than the workers; `name` is what the user calls these."""
    if workers < ranks:
        raise InputError(
            f"{name} is {workers}, fewer than the {ranks} ranks, each of which trains one at "
            f"least: start fewer ranks, or raise {name}"
        )
