"""The global parameters Θ, and the places where they can lie: memory, disk, ranks."""

from gistgnn.theta.registry import Store

__all__ = ["Store"]
