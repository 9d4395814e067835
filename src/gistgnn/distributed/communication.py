"""Report how many bytes the ranks of a run have exchanged, beside the formula."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from gistgnn.distributed.costs import costs
from gistgnn.distributed.world import World


def communication(ranks: World, theta: int, local_steps: int, *, sharded: bool) -> dict[str, Any]:
    """Gather the traffic of all ranks since the run began; all ranks call this.

    Args:
        ranks: the processes of the run.
        theta: bytes of Θ.
        local_steps: ζ.
        sharded: whether Θ is sharded.

    Returns:
        "ranks" and "rounds". Lists with a mean per round for every rank: "sent" and "received" (bytes of slices),
        "seconds" (exchanging slices), "waited" (seconds of waiting for other ranks, which includes evaluation).
        "formula": the bytes that a rank sends by `costs`. "read": bytes of Θ that rank 0 has read in the whole run.
    """
    own = ranks.traffic
    rounds = max(own.rounds, 1)
    values = (own.sent, own.received, own.seconds, own.waited, own.read)
    sent, received, seconds, waited, read = zip(*ranks.gather(values), strict=True)
    expected = costs(theta, [own.slices / rounds], ranks.count, local_steps, sharded=sharded)
    return {
        "ranks": ranks.count,
        "rounds": own.rounds,
        "sent": [each / rounds for each in sent],
        "received": [each / rounds for each in received],
        "seconds": [each / rounds for each in seconds],
        "waited": [each / rounds for each in waited],
        "formula": asdict(expected),
        "read": sum(read),
    }
