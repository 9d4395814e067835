"""What the ranks of a run send each other in a round, by formula, beside two ways of training all of Θ on each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Costs:
    """Bytes that a rank sends in a round of ζ steps on average, and receives.

    Attributes:
        gist: the slices of its sub-GCNs, there and back.
        data_parallel: the gradients of Θ, averaged after every step.
        local_sgd: Θ, averaged once.
    """

    gist: float
    data_parallel: float
    local_sgd: float


def costs(theta: int, slices: Sequence[float], ranks: int, local_steps: int, *, sharded: bool) -> Costs:
    """Count what W ranks send in a round.

    Sharded, a slice comes from its owners and goes back to them, but for the 1/W that a rank owns itself:
    2 (W - 1)/W Σ_i |slice_i| in all, O(d²/m) for each sub-GCN (section 3 of the paper). Where every rank has all of Θ,
    a trained slice goes to the W - 1 others. An average over all ranks is taken to be a ring's, 2 (W - 1)/W |Θ| for
    each.

    Args:
        theta: bytes of Θ.
        slices: bytes of every sub-GCN's slice, with the moments that are carried.
        ranks: W.
        local_steps: ζ.
        sharded: whether Θ is sharded over the ranks, or on each of them.
    """
    others = (ranks - 1) / ranks
    gist = 2 * others * sum(slices) / ranks if sharded else others * sum(slices)
    average = 2 * others * theta
    return Costs(gist, local_steps * average, average)
