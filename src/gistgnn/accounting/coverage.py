"""Coverage: which share of Θ a run is expected to have trained, and in how many rounds (section 2.1)."""

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from gistgnn.layout.axes import Dim
from gistgnn.partition import Blocks, Partition
from gistgnn.theta.model_spec import ModelSpec

NEGLIGIBLE = 1e-13  # a smaller share is left out
_TINY = 1e-18  # leaves the sum of many phases quick
_TERMS = 30  # of an alternating series; the next term is below 1e-14

Draws = Counter[tuple[tuple[int | None, int], ...]]
Touched = tuple[int, ...]  # how many different features of every axis a parameter lies at


def partition_of(partition: Partition, blocks: Sequence[Blocks]) -> list[dict[str, Any]]:
    """Return the part of result.json on the partition: every axis with its features and the sizes of its blocks."""
    found = []
    for axis, (name, d) in enumerate(zip(partition.names, partition.features, strict=True)):
        sizes = [d] if axis in partition.whole else [len(sub_gcn[axis]) for sub_gcn in blocks]
        found.append({"name": name, "features": d, "blocks": sizes})
    return found


def coverage_of(spec: ModelSpec, partition: Partition, draws: Draws) -> dict[str, Any]:
    """Return which share of the parameters of Θ is expected to be trained in how many rounds.

    A parameter at one feature of one split axis, or at none, is trained in every round. A parameter at several
    features is trained in the rounds whose blocks send all of them to the same sub-GCN. Draws are independent, so the
    number of such draws is binomial. The rounds of one draw have the same blocks, or nested ones. The shares are
    expectations over the random blocks; they are exact where all rounds have the same blocks and m.

    Args:
        spec: the full model.
        partition: the blocks' sizes follow from it.
        draws: how the finished rounds share draws: for every kind of draw, as (m, rounds) pairs, how many there are; m
            None means the m of the partition (see `Schedule.draws`).

    Returns:
        "rounds": T; "parameters": their number in Θ; "counts": shares of the parameters by the number of rounds, as
        text. Shares below `NEGLIGIBLE` are left out.
    """
    whole = frozenset(range(len(partition.features))) - set(partition.split)
    parameters: Counter[Touched] = Counter()
    for name, _ in spec.on_meta().named_parameters():
        parameters.update(_touched(spec.layout.dims[name], partition.features, whole))
    # Balanced blocks have the same sizes in all draws; one draw is draw 0.
    known = draws.total() == 1 or partition.kind == "balanced"
    split = {m: partition if m is None else partition.split_into(m) for kind in draws for m, _ in kind}
    sizes = {m: [[len(b) for b in sub] for sub in own.blocks(0)] if known else None for m, own in split.items()}
    total = parameters.total()
    shares: defaultdict[int, float] = defaultdict(float)
    for touched, count in parameters.items():
        chances = {m: min(_chance(touched, own, sizes[m]), 1.0) for m, own in split.items()}
        found = {0: 1.0}
        for kind, number in draws.items():
            found = _sum(found, _rounds_of(kind, number, chances, split))
        for n, probability in found.items():
            shares[n] += probability * count / total
    counts = {str(n): shares[n] for n in sorted(shares) if shares[n] > NEGLIGIBLE}
    return {"rounds": sum(n * r for kind, n in draws.items() for _, r in kind), "parameters": total, "counts": counts}


def _rounds_of(
    kind: tuple[tuple[int | None, int], ...],
    number: int,
    chances: Mapping[int | None, float],
    split: Mapping[int | None, Partition],
) -> dict[int, float]:
    """Return the distribution of the number of rounds that train a parameter, over all draws of one kind.

    Within a draw the blocks are nested: what is in a block of a large m is in one of every smaller m.
    """
    if len(kind) == 1:
        ((m, rounds),) = kind
        return {n * rounds: each for n, each in _binomial(number, chances[m]).items() if each > _TINY}
    one, before = {}, 0.0
    ordered = sorted(kind, key=lambda pair: -split[pair[0]].sub_gcns)
    for place, (m, _) in enumerate(ordered):
        one[sum(rounds for _, rounds in ordered[place:])] = chances[m] - before
        before = chances[m]
    one[0] = 1 - before
    found = {0: 1.0}
    for _ in range(number):
        found = _sum(found, one)
    return found


def _binomial(number: int, chance: float) -> dict[int, float]:
    """Return the probability of k hits in ``number`` trials, for every k near the mean.

    The Chernoff bound leaves less than `_TINY` outside of the range.
    """
    mean, bits = number * chance, -math.log(_TINY)
    reach = math.sqrt(2 * bits * mean) + bits
    first, last = max(math.floor(mean - reach), 0), min(math.ceil(mean + reach), number)
    hits = torch.arange(first, last + 1, dtype=torch.float64)
    trials, p = torch.tensor(float(number), dtype=torch.float64), torch.tensor(chance, dtype=torch.float64)
    ways = torch.lgamma(trials + 1) - torch.lgamma(hits + 1) - torch.lgamma(trials - hits + 1)
    odds = (ways + torch.special.xlogy(hits, p) + torch.special.xlog1py(trials - hits, -p)).exp()
    return {first + n: each for n, each in enumerate(odds.tolist())}


def _sum(one: Mapping[int, float], other: Mapping[int, float]) -> dict[int, float]:
    """Return the distribution of the sum of two independent numbers."""
    found: defaultdict[int, float] = defaultdict(float)
    for a, p in one.items():
        for b, q in other.items():
            found[a + b] += p * q
    return dict(found)


def _touched(dims: Sequence[Dim], features: Sequence[int], whole: frozenset[int]) -> Counter[Touched]:
    """Count the entries of a tensor by how many different features of every split axis they lie at."""
    counts = Counter({(0,) * len(features): 1})
    for dim in dims:
        extended: Counter[Touched] = Counter()
        for touched, entries in counts.items():
            for axis, fixed in ((segment.axis, segment.fixed) for segment in dim):
                if axis is None or axis in whole:
                    extended[touched] += entries * (fixed if axis is None else features[axis])
                    continue
                extended[touched] += entries * touched[axis]  # the same feature as in an earlier dimension
                another = (*touched[:axis], touched[axis] + 1, *touched[axis + 1 :])
                extended[another] += entries * (features[axis] - touched[axis])
        counts = +extended
    return counts


def _chance(touched: Touched, partition: Partition, sizes: Sequence[Sequence[int]] | None) -> float:
    """Return the probability that one round sends these features of every axis all to the same sub-GCN.

    n features of an axis all fall into a block of s among its d features with probability C(s, n) / C(d, n). Where the
    sizes are random too (categorical), all sub-GCNs are equally likely, given that no block is empty.

    Args:
        touched: how many features of every axis.
        partition: its features and sub-GCNs are used.
        sizes: of the blocks of every sub-GCN, by axis, where they are known; None: the partition is categorical.
    """

    def in_block(i: int, axis: int, n: int) -> float:
        d = partition.features[axis]
        if sizes is not None:
            return math.comb(sizes[i][axis], n) / math.comb(d, n)
        return m**-n * _none_empty(d - n, m - 1, m) / _none_empty(d, m, m)

    m = partition.sub_gcns
    if sum(touched) < 2:
        return 1.0
    return sum(math.prod(in_block(i, axis, n) for axis, n in enumerate(touched) if n) for i in range(m))


def _none_empty(features: int, blocks: int, m: int) -> float:
    """Return the probability that features sent to m sub-GCNs at random leave none of `blocks` given ones empty.

    By inclusion and exclusion over the empty ones.
    """
    terms = range(min(blocks, _TERMS) + 1)
    return sum((-1) ** j * math.comb(blocks, j) * (1 - j / m) ** features for j in terms)
