"""Coverage: which share of Θ a run is expected to have trained, and in how many rounds (section 2.1)."""

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from gistgnn.layout.axes import Dim
from gistgnn.partition import Partition
from gistgnn.theta.model_spec import ModelSpec

NEGLIGIBLE = 1e-13  # a smaller share is left out
_TINY = 1e-18  # leaves the sum of many phases quick
_TERMS = 30  # of an alternating series; the next term is below 1e-14

Draws = Counter[tuple[tuple[int | None, int], ...]]
Touched = tuple[int, ...]  # how many different features of every axis a parameter lies at
Distribution = tuple[np.ndarray, np.ndarray]  # numbers of rounds, and the probability of each


def coverage_of(spec: ModelSpec, partition: Partition, draws: Draws) -> dict[str, Any]:
    """Return which share of Θ's parameters is expected to be trained in how many rounds, as in result.json."""
    # A parameter at several features is trained when one sub-GCN gets all of them; one at a single feature always is.
    # Draws are independent, so the number of such draws is binomial. The rounds of one draw have the same or nested
    # blocks. The shares are expectations over the blocks, exact where all rounds have the same.
    parameters: Counter[Touched] = Counter()
    for name, _ in spec.on_meta().named_parameters():
        parameters.update(_touched(spec.layout.dims[name], partition))
    # Balanced blocks have the same sizes in all draws; one draw is draw 0.
    known = draws.total() == 1 or partition.kind == "balanced"
    splits = {m: partition if m is None else partition.split_into(m) for kind in draws for m, _ in kind}
    rounds = sum(number * each for kind, number in draws.items() for _, each in kind)
    shares: Counter[int] = Counter()
    for touched, count in parameters.items():
        chances = {m: _chance(touched, own, known=known) for m, own in splits.items()}
        found: Distribution = np.zeros(1, np.int64), np.ones(1)
        for kind, number in draws.items():
            found = _sum(found, _rounds_of(kind, number, chances, splits))
        for n, probability in zip(*found, strict=True):
            shares[int(n)] += probability * count / parameters.total()
    counts = {str(n): float(shares[n]) for n in sorted(shares) if shares[n] > NEGLIGIBLE}
    return {"rounds": rounds, "parameters": parameters.total(), "counts": counts}


def _touched(dims: Sequence[Dim], partition: Partition) -> Counter[Touched]:
    """Count the entries of a tensor by how many different features of every split axis they lie at."""
    features = partition.features
    counts = Counter({(0,) * len(features): 1})
    for dim in dims:
        extended: Counter[Touched] = Counter()
        for touched, entries in counts.items():
            for segment in dim:
                axis = segment.axis
                if axis not in partition.split:
                    extended[touched] += entries * (segment.fixed if axis is None else features[axis])
                    continue
                extended[touched] += entries * touched[axis]  # the same feature as in an earlier dimension
                another = (*touched[:axis], touched[axis] + 1, *touched[axis + 1 :])
                extended[another] += entries * (features[axis] - touched[axis])
        counts = +extended
    return counts


def _chance(touched: Touched, partition: Partition, *, known: bool) -> float:
    """Return the probability that one round sends these features of every axis all to the same sub-GCN."""
    # n features of an axis are all in a block of s of its d features with probability C(s, n) / C(d, n). Where the
    # sizes are random (not `known`: categorical), all sub-GCNs are equally likely, given that no block is empty.
    if sum(touched) < 2:
        return 1.0
    m = partition.sub_gcns
    sizes, together = np.array(partition.sizes(0)) if known else None, np.ones(m)
    for axis, (n, d) in enumerate(zip(touched, partition.features, strict=True)):
        if sizes is not None:
            for k in range(n):
                together *= np.maximum(sizes[:, axis] - k, 0) / (d - k)
        elif n:
            together *= m**-n * _none_empty(d - n, m - 1, m) / _none_empty(d, m, m)
    return min(float(together.sum()), 1.0)


def _none_empty(features: int, blocks: int, m: int) -> float:
    """The probability that features sent to m sub-GCNs at random leave none of `blocks` given ones empty."""
    # by inclusion and exclusion over the empty ones
    terms = range(min(blocks, _TERMS) + 1)
    return sum((-1) ** j * math.comb(blocks, j) * (1 - j / m) ** features for j in terms)


def _rounds_of(
    kind: tuple[tuple[int | None, int], ...],
    number: int,
    chances: dict[int | None, float],
    splits: dict[int | None, Partition],
) -> Distribution:
    """The distribution of the number of rounds that train a parameter, over all draws of one kind."""
    # Within a draw the blocks are nested: what is in a block of a large m is in one of every smaller m.
    if len(kind) == 1:  # binomial; the Chernoff bound leaves less than `_TINY` outside of the range around the mean
        ((m, rounds),) = kind
        mean, bits = number * chances[m], -math.log(_TINY)
        reach = math.sqrt(2 * bits * mean) + bits
        first, last = max(math.floor(mean - reach), 0), min(math.ceil(mean + reach), number)
        hits = torch.arange(first, last + 1, dtype=torch.float64)
        trials, p = torch.tensor([number, chances[m]], dtype=torch.float64)
        ways = torch.lgamma(trials + 1) - torch.lgamma(hits + 1) - torch.lgamma(trials - hits + 1)
        odds = (ways + torch.special.xlogy(hits, p) + torch.special.xlog1py(trials - hits, -p)).exp()
        likely = odds > _TINY
        return (rounds * hits[likely].long()).numpy(), odds[likely].numpy()
    ordered = sorted(kind, key=lambda pair: -splits[pair[0]].sub_gcns)
    rounds_left = np.cumsum([rounds for _, rounds in ordered][::-1])[::-1]
    steps = np.diff([0.0, *(chances[m] for m, _ in ordered), 1.0])
    one: Distribution = np.append(rounds_left, 0), steps
    found = one
    for _ in range(number - 1):
        found = _sum(found, one)
    return found


def _sum(one: Distribution, other: Distribution) -> Distribution:
    """Return the distribution of the sum of two independent numbers."""
    values, places = np.unique(np.add.outer(one[0], other[0]), return_inverse=True)
    return values, np.bincount(places.ravel(), np.multiply.outer(one[1], other[1]).ravel())
