"""What ways have in common whose workers all train the full model, each on batches of its own."""

from __future__ import annotations

from dataclasses import replace

from gistgnn.errors import InputError
from gistgnn.sampling import Sampling


def independent(sampler: Sampling | None, method: str) -> Sampling:
    """The same way to make batches, but each worker draws its own: with the same ones they would learn the same.

    Raises:
        InputError: every step sees the whole graph.
    """
    if sampler is None:
        raise InputError(
            f"{method} gives each worker batches of its own, but the sampler is full: make batches, such as by "
            "clusters or neighbor"
        )
    return replace(sampler, batches="independent")
