"""What a run would take on many ranks, each of which is a machine like this one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from gistgnn.distributed import Costs, costs
from gistgnn.errors import InputError
from gistgnn.planning.forecast import possible_sub_gcns
from gistgnn.planning.rates import measure
from gistgnn.planning.rehearsal import Rehearsal, rehearse
from gistgnn.planning.sizes import GraphSizes
from gistgnn.runs.config import RunConfig
from gistgnn.settings import make_training

DELAYS = 14  # messages that wait for one another in a round: words at its end, two exchanges, whether to stop


@dataclass(frozen=True)
class Network:
    """What connects the ranks.

    Args:
        bandwidth: bytes a second that a rank sends and receives.
        latency: seconds that a message takes.
    """

    bandwidth: float
    latency: float = 0.0


@dataclass(frozen=True)
class Spread:
    """A run on W ranks, Θ sharded over them; an estimate.

    Attributes:
        ranks: W.
        sub_gcns: m.
        theta: bytes of Θ that a rank holds between rounds (the best Θ and moments come on top).
        costs: bytes that a rank sends in a round.
        training: seconds of ζ steps of a rank's sub-GCNs.
        exchange: seconds of the round's exchanges.
        data_parallel: seconds that the same steps' averages of gradients would take, of all of Θ.
        local_sgd: seconds of one average of Θ.
        speedup: how much sooner an epoch ends than with the same m on one rank.
        over_baseline: than with m = 1 on one rank, where that fits.
    """

    ranks: int
    sub_gcns: int
    theta: int
    costs: Costs
    training: float
    exchange: float
    data_parallel: float
    local_sgd: float
    speedup: float
    over_baseline: float

    @property
    def round(self) -> float:
        """Seconds of a round, without evaluation."""
        return self.training + self.exchange


def spread(
    config: RunConfig, sizes: GraphSizes, ranks: Sequence[int], network: Network, sub_gcns: Sequence[int] | None = None
) -> list[Spread]:
    """Project a run on several numbers of ranks: products at this machine's rates, bytes at the network's.

    Args:
        config: the run; its own m is not looked at.
        sizes: of its graph.
        ranks: every W.
        network: what connects them.
        sub_gcns: every m, of which those below W are left out; None: m = W.

    Raises:
        InputError: an m that the widths do not allow, or none that is as large as W.
    """
    pairs = [(w, m) for w in ranks for m in sub_gcns or [w] if m >= w]
    for w in ranks:
        if w not in {each for each, _ in pairs}:
            raise InputError(f"ranks is {w}, more than any m ({max(sub_gcns or [w])}): each rank trains one at least")
    wanted = sorted({1, *(m for _, m in pairs)})
    if too_many := sorted(set(wanted) - set(possible_sub_gcns(config, sizes, tuple(wanted)))):
        raise InputError(
            f"m = {too_many[0]} is more than the widths allow: give wider --hidden, or fewer --ranks or --sub-gcns"
        )
    found = {m: rehearse(replace(config, sub_gcns=m), sizes) for m in wanted}
    rates = measure([each.step for each in found.values()], torch.device(config.device))
    steps = {m: rates.seconds(each.step) / (m if each.fused else 1) for m, each in found.items()}
    return [_project(config, w, m, found[m], steps, network) for w, m in pairs]


def _project(
    config: RunConfig, ranks: int, m: int, found: Rehearsal, steps: dict[int, float], network: Network
) -> Spread:
    local_steps = make_training(config.training).local_steps
    slices = [own + moments for own, moments in zip(found.slices, found.carried, strict=True)]
    sent = costs(found.theta, slices, ranks, local_steps, sharded=True)
    training = local_steps * -(-m // ranks) * steps[m]
    delay = DELAYS * network.latency if ranks > 1 else 0.0
    exchange = sent.gist / network.bandwidth + delay
    round_ = training + exchange
    averages = 2 * (ranks - 1) * network.latency  # the steps of a ring
    return Spread(
        ranks=ranks,
        sub_gcns=m,
        theta=-(-found.theta // ranks),
        costs=sent,
        training=training,
        exchange=exchange,
        data_parallel=sent.data_parallel / network.bandwidth + local_steps * averages,
        local_sgd=sent.local_sgd / network.bandwidth + averages,
        speedup=local_steps * m * steps[m] / round_,
        over_baseline=local_steps * m * steps[1] / round_,
    )
