"""What the ranks of a run have exchanged, beside the formula."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from gistgnn.distributed.costs import costs
from gistgnn.distributed.ranks import Ranks


def communication(ranks: Ranks, theta: int, local_steps: int, *, sharded: bool) -> dict[str, Any]:
    """Gather what every rank has exchanged since it began; all ranks call this.

    Args:
        ranks: of the run.
        theta: bytes of Θ.
        local_steps: ζ.
        sharded: whether Θ is sharded.

    Returns:
        "ranks" and "rounds"; for a round on average, a list over the ranks each: "sent" and "received" (bytes of
        slices), "seconds" (of exchanging them), "waited" (seconds for the others, evaluation included); "formula",
        what `costs` says a rank sends; "read" (bytes that rank 0 has read of Θ in the whole run).
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
