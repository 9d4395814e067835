"""Projects a run on many ranks, each of them a machine like this one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from gistgnn.distributed import Costs, costs
from gistgnn.errors import InputError
from gistgnn.graphs.sizes import GraphSizes
from gistgnn.planning.forecast import possible_sub_gcns
from gistgnn.planning.rates import measure
from gistgnn.planning.rehearsal import Rehearsal, rehearse
from gistgnn.runs.config import RunConfig

DELAYS = 14  # messages of a round that wait for one another: words at its end, two exchanges, whether to stop


@dataclass(frozen=True)
class Network:
    """What connects the ranks."""

    bandwidth: float  # bytes a second that a rank sends and receives
    latency: float = 0.0  # seconds that a message takes


@dataclass(frozen=True)
class Spread:
    """An estimate of a run on W ranks with Θ sharded over them; seconds are those of a round."""

    ranks: int
    sub_gcns: int
    theta: int  # bytes of Θ that a rank holds between rounds; the best Θ and moments come on top
    costs: Costs  # bytes that a rank sends in a round
    training: float  # ζ steps of a rank's sub-GCNs
    exchange: float  # the round's exchanges
    data_parallel: float  # averages of all gradients after each of the same steps
    local_sgd: float  # one average of Θ
    speedup: float  # how much sooner an epoch ends than with the same m on one rank
    over_baseline: float  # than with m = 1 on one rank, if that fits

    @property
    def round(self) -> float:
        """Seconds of a round, without evaluation."""
        return self.training + self.exchange


def spread(
    config: RunConfig, sizes: GraphSizes, ranks: Sequence[int], network: Network, sub_gcns: Sequence[int] | None = None
) -> list[Spread]:
    """Project a run on several numbers of ranks: products at this machine's rates, bytes at the network's.

    Args:
        config: the run; its own m is ignored.
        sizes: of its graph.
        ranks: every W.
        network: between them.
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
    wanted = sorted({1, *(m for _, m in pairs)})
    if too_many := sorted(set(wanted) - set(possible_sub_gcns(config, sizes, wanted))):
        raise InputError(
            f"m = {too_many[0]} is more than the widths allow: give wider --hidden, or fewer --ranks or --sub-gcns"
        )
    found = {m: rehearse(replace(config, sub_gcns=m), sizes)[0] for m in wanted}
    rates = measure([run.step for run in found.values()], torch.device(config.device))
    steps = {m: rates.seconds(run.step) / (m if run.together else 1) for m, run in found.items()}
    return [_project(config, w, m, found[m], steps, network) for w, m in pairs]


def _project(
    config: RunConfig, ranks: int, m: int, found: Rehearsal, steps: dict[int, float], network: Network
) -> Spread:
    local_steps = found.first.local_steps
    slices = [size + moments for size, moments in zip(found.slices, found.carried, strict=True)]
    sent = costs(found.theta, slices, ranks, local_steps, sharded=True)
    training = local_steps * -(-m // ranks) * steps[m]
    exchange = sent.gist / network.bandwidth + (DELAYS * network.latency if ranks > 1 else 0.0)
    ring = 2 * (ranks - 1) * network.latency  # the steps of an average
    return Spread(
        ranks=ranks,
        sub_gcns=m,
        theta=-(-found.theta // ranks),
        costs=sent,
        training=training,
        exchange=exchange,
        data_parallel=sent.data_parallel / network.bandwidth + local_steps * ring,
        local_sgd=sent.local_sgd / network.bandwidth + ring,
        speedup=local_steps * m * steps[m] / (training + exchange),
        over_baseline=local_steps * m * steps[1] / (training + exchange),
    )
