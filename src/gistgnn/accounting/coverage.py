"""Coverage: the share of Θ's parameters that a run is expected to never train (section 2.1)."""

import math
from collections import Counter
from collections.abc import Sequence

from gistgnn.layout.axes import Dim
from gistgnn.partition import Partition
from gistgnn.storage.record import Coverage
from gistgnn.theta.model_spec import ModelSpec

NEGLIGIBLE = 1e-13  # A smaller share counts as none.
_TERMS = 30  # An alternating series has so many terms; the next one is below 1e-14.

# At how many different features of every split axis a parameter lies.
FeatureCounts = tuple[int, ...]
# The sizes of the blocks: for each sub-GCN one per axis.
Sizes = Sequence[Sequence[int]]


def coverage_of(spec: ModelSpec, partition: Partition, rounds: int) -> Coverage:
    """Return the entry "coverage" of result.json: of some rounds, each with a draw of its own."""
    return Coverage(
        rounds=rounds,
        parameters=sum(tensor.numel() for tensor in spec.on_meta().parameters()),
        never_trained=never_trained(spec, partition, rounds),
    )


def never_trained(spec: ModelSpec, partition: Partition, rounds: int) -> float:
    """Return the expected share of Θ's parameters that no sub-GCN holds in any round, from 0 to 1.

    Each round draws its blocks anew, independently of the others. A parameter at several features
    is trained in a round when one sub-GCN gets all of them. A parameter at a single feature, or at
    none, always is.
    """
    # Balanced blocks have the same sizes in all draws, and a single draw is draw 0.
    sizes_are_known = partition.kind == "balanced" or rounds == 1
    sizes = partition.sizes(0) if sizes_are_known else None
    parameters = _count_parameters(spec, partition)
    expected = 0.0
    for feature_counts, count in parameters.items():
        chance = _compute_chance_of_training(feature_counts, partition, sizes)
        expected += count * (1 - chance) ** rounds
    share = expected / parameters.total()
    return share if share > NEGLIGIBLE else 0.0


def _count_parameters(spec: ModelSpec, partition: Partition) -> Counter[FeatureCounts]:
    counts: Counter[FeatureCounts] = Counter()
    for name, _ in spec.on_meta().named_parameters():
        counts.update(_count_entries(spec.layout.dims[name], partition))
    return counts


def _count_entries(dims: Sequence[Dim], partition: Partition) -> Counter[FeatureCounts]:
    """Count the entries of a tensor by the numbers of features that they lie at."""
    features = partition.features
    nowhere = (0,) * len(features)
    counts = Counter({nowhere: 1})
    for dim in dims:
        extended: Counter[FeatureCounts] = Counter()
        for feature_counts, entries in counts.items():
            for segment in dim:
                axis = segment.axis
                if axis is None:
                    extended[feature_counts] += entries * segment.fixed
                elif axis not in partition.split:
                    extended[feature_counts] += entries * features[axis]
                else:
                    seen = feature_counts[axis]  # The features of earlier dimensions.
                    farther = (*feature_counts[:axis], seen + 1, *feature_counts[axis + 1 :])
                    extended[feature_counts] += entries * seen
                    extended[farther] += entries * (features[axis] - seen)
        counts = +extended  # This drops counts of zero.
    return counts


def _compute_chance_of_training(
    feature_counts: FeatureCounts, partition: Partition, sizes: Sizes | None
) -> float:
    """Return the probability that a round sends all of some features to the same sub-GCN."""
    if sum(feature_counts) < 2:
        return 1.0
    if sizes is None:
        return _compute_chance_at_random(feature_counts, partition)
    return _compute_chance_of_sizes(feature_counts, partition.features, sizes)


def _compute_chance_of_sizes(
    feature_counts: FeatureCounts, features: Sequence[int], sizes: Sizes
) -> float:
    # All of n features of an axis are in a block of s of its d with probability
    # C(s, n) / C(d, n).
    chance = 0.0
    for blocks in sizes:
        chance_of_block = 1.0
        for n, d, s in zip(feature_counts, features, blocks, strict=True):
            chance_of_block *= math.comb(s, n) / math.comb(d, n)
        chance += chance_of_block
    return chance


def _compute_chance_at_random(feature_counts: FeatureCounts, partition: Partition) -> float:
    # Each feature goes to any sub-GCN alike, given that no block is empty (categorical blocks).
    m = partition.sub_gcns
    chance_of_one = 1.0  # That of a given sub-GCN. All are equally likely.
    for n, d in zip(feature_counts, partition.features, strict=True):
        if n:
            others_not_empty = _compute_chance_of_none_empty(d - n, m - 1, m)
            chance_of_one *= m**-n * others_not_empty / _compute_chance_of_none_empty(d, m, m)
    return m * chance_of_one


def _compute_chance_of_none_empty(features: int, blocks: int, m: int) -> float:
    # The probability that features sent to m sub-GCNs at random leave none of `blocks` given ones
    # empty.
    chance = 0.0
    for empty in range(min(blocks, _TERMS) + 1):  # Inclusion and exclusion.
        chance += (-1) ** empty * math.comb(blocks, empty) * (1 - empty / m) ** features
    return chance
