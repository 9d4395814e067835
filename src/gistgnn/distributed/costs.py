"""Bytes that ranks send in a round: by formula, and in a run."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from gistgnn.distributed.world import World


@dataclass(frozen=True)
class Costs:
    """Bytes that a rank sends in a round of ζ steps, on average. It receives as many."""

    gist: float  # the slices of the rank's sub-GCNs, from Θ and back
    data_parallel: float  # the gradients of Θ, averaged after every step
    local_sgd: float  # Θ, averaged once


def costs(theta: int, slices: Sequence[float], ranks: int, local_steps: int, *, sharded: bool) -> Costs:
    """Count the bytes that W ranks send in a round.

    With Θ sharded, the owners of a slice send it to the rank that trains it, and get it back. The rank owns 1/W of it
    itself, so all ranks send 2 (W - 1)/W Σ_i |slice_i|. All m slices of a d × d matrix hold d²/m entries: section 2.3.
    With all of Θ on every rank, a trained slice goes to the W - 1 other ranks. An average over all ranks is a ring's:
    2 (W - 1)/W |Θ| for each rank.

    Args:
        theta: bytes of Θ.
        slices: bytes of every sub-GCN's slice, carried moments included.
        ranks: W.
        local_steps: ζ.
        sharded: whether the ranks share Θ; otherwise every rank has all of it.
    """
    others = (ranks - 1) / ranks
    gist = 2 * others * sum(slices) / ranks if sharded else others * sum(slices)
    average = 2 * others * theta
    return Costs(gist, local_steps * average, average)


def communication(ranks: World, theta: int, local_steps: int, *, sharded: bool) -> dict[str, Any]:
    """Gather the traffic of all ranks since the run began; all ranks call this. For the arguments see `costs`.

    Returns:
        "ranks" and "rounds". Lists with a mean per round for every rank: "sent" and "received" (bytes of slices),
        "seconds" (exchanging slices), "waited" (seconds of waiting for other ranks, which includes evaluation).
        "formula": the bytes that a rank sends by `costs`. "read": bytes of Θ that rank 0 has read in the whole run.
    """
    own = ranks.traffic
    rounds = max(own.rounds, 1)
    values = (own.sent, own.received, own.seconds, own.waited, own.read)
    *means, read = zip(*ranks.gather(values), strict=True)
    names = ("sent", "received", "seconds", "waited")
    return {
        "ranks": ranks.count,
        "rounds": own.rounds,
        **{name: [each / rounds for each in every] for name, every in zip(names, means, strict=True)},
        "formula": asdict(costs(theta, [own.slices / rounds], ranks.count, local_steps, sharded=sharded)),
        "read": sum(read),
    }
