"""The bytes that a run on many ranks would send, by formula."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from gistgnn.distributed import Costs, costs
from gistgnn.errors import InputError
from gistgnn.estimate.shapes import RunShape, possible_sub_gcns
from gistgnn.graphs.sizes import GraphSizes
from gistgnn.runs.config import RunConfig


@dataclass(frozen=True)
class Traffic:
    """A run on W ranks with Θ sharded over them."""

    ranks: int
    sub_gcns: int
    theta: int  # bytes of Θ that a rank holds between rounds; the best Θ and moments come on top
    costs: Costs  # bytes that a rank sends in a round


def traffic_on_ranks(
    config: RunConfig, sizes: GraphSizes, ranks: Sequence[int], sub_gcns: Sequence[int] | None = None
) -> list[Traffic]:
    """Count the bytes that a run sends on several numbers of ranks.

    Args:
        config: the run; its own m is ignored.
        sizes: of its graph.
        ranks: every W.
        sub_gcns: every m, which is left out where it is below W; None: m = W.

    Raises:
        InputError: an m that the widths do not allow, or none that is as large as W; or a run with phases.
    """
    if config.training.phases:
        raise InputError("ranks are given, but a run with phases cannot be projected on them: leave --ranks out")
    pairs = [(w, m) for w in ranks for m in sub_gcns or [w] if m >= w]
    if alone := [w for w in ranks if w not in dict(pairs)]:
        most = max(sub_gcns or alone)
        raise InputError(f"ranks is {alone[0]}, more than any m ({most}): each rank trains one at least")
    wanted = sorted({m for _, m in pairs})
    if too_many := sorted(set(wanted) - set(possible_sub_gcns(config, sizes, wanted))):
        raise InputError(
            f"m = {too_many[0]} is more than the widths allow: give wider --hidden, or fewer --ranks or --sub-gcns"
        )
    runs = {m: RunShape(replace(config, sub_gcns=m), sizes) for m in wanted}
    found = []
    for w, m in pairs:
        [phase] = runs[m].phases
        slices = [own + moments for own, moments in zip(phase.slices, phase.carried, strict=True)]
        sent = costs(runs[m].theta, slices, w, phase.first.local_steps, sharded=True)
        found.append(Traffic(w, m, -(-runs[m].theta // w), sent))
    return found
