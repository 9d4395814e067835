"""Coverage: which share of Θ a run is expected to have trained, and in how many rounds (section 2.1)."""

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

from gistgnn.layout.axes import Dim
from gistgnn.partition import Blocks, Partition
from gistgnn.theta.model_spec import ModelSpec

NEGLIGIBLE = 1e-13  # a smaller share is left out
_TERMS = 30  # of an alternating series; the next term is below 1e-14

Touched = tuple[int, ...]  # how many different features of every axis a parameter lies at


def partition_of(partition: Partition, blocks: Sequence[Blocks]) -> list[dict[str, Any]]:
    """Return the part of result.json on the partition: every axis with its features and the sizes of its blocks."""
    return [
        {
            "name": name,
            "features": d,
            "blocks": [d] if axis in partition.whole else [len(sub_gcn[axis]) for sub_gcn in blocks],
        }
        for axis, (name, d) in enumerate(zip(partition.names, partition.features, strict=True))
    ]


def coverage_of(spec: ModelSpec, partition: Partition, rounds: int, *, fixed_blocks: bool = False) -> dict[str, Any]:
    """Return which share of the parameters of Θ is expected to be trained in how many rounds.

    A parameter at one feature of one split axis, or at none, is trained in every round. A parameter at several
    features is trained in the rounds whose blocks send all of them to the same sub-GCN. Rounds draw independent blocks,
    so the number of these rounds is binomial. The shares are expectations over the random blocks. Where all rounds
    have the same blocks, a parameter is trained in all of them or in none; the shares are exact.

    Args:
        spec: the full model.
        partition: the blocks' sizes follow from it.
        rounds: T, the number of finished rounds.
        fixed_blocks: all rounds have the blocks of the first.

    Returns:
        "rounds": T; "parameters": their number in Θ; "counts": shares of the parameters by the number of rounds, as
        text. Shares below `NEGLIGIBLE` are left out.
    """
    from scipy.stats import binom  # slow to import

    parameters: Counter[Touched] = Counter()
    for name, _ in spec.on_meta().named_parameters():
        parameters.update(_touched(spec.layout.dims[name], partition.features, partition.whole))
    total = parameters.total()
    shares: defaultdict[int, float] = defaultdict(float)
    known = fixed_blocks or partition.kind == "balanced"  # balanced blocks have the same sizes in all rounds
    sizes = [[len(block) for block in sub_gcn] for sub_gcn in partition.blocks(0)] if known else None
    for touched, count in parameters.items():
        p = _chance(touched, partition, sizes)
        chances = binom.pmf(range(rounds + 1), rounds, min(p, 1.0)).tolist()  # of every number of rounds
        trained = {0: 1 - p, rounds: p} if fixed_blocks and rounds else dict(enumerate(chances))
        for n, probability in trained.items():
            shares[n] += probability * count / total
    counts = {str(n): shares[n] for n in sorted(shares) if shares[n] > NEGLIGIBLE}
    return {"rounds": rounds, "parameters": total, "counts": counts}


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
