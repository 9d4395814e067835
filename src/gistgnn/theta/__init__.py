"""The global parameters Θ, and the places where they can lie: memory, disk, ranks."""

from typing import TYPE_CHECKING

from gistgnn.utils.lazy import lazy_attributes

if TYPE_CHECKING:
    from gistgnn.theta.store import Store

__all__ = ["Store"]

__getattr__ = lazy_attributes(__name__, {"Store": "store"})
