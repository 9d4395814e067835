"""Batches for methods whose workers all train the full model."""

from dataclasses import replace

from gistgnn.errors import InputError
from gistgnn.sampling import Sampling


def independent(sampler: Sampling | None, method: str) -> Sampling:
    """Return the same sampling with independent batches: with shared ones all workers would learn the same.

    Raises:
        InputError: every step sees the whole graph.
    """
    if sampler is None:
        raise InputError(
            f"{method} gives each worker its own batches, but the sampler is full: choose another sampler, such as "
            "clusters or neighbor"
        )
    return replace(sampler, batches="independent")
