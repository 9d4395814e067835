from collections import Counter
from itertools import combinations
from math import comb

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2

from gistgnn.partition import Partition
from tests.helpers.refusals import refused

ROUNDS = 2000
examples = settings(deadline=None, max_examples=60)
kinds = st.sampled_from(["balanced", "categorical"])


@st.composite
def cases(draw: st.DrawFn) -> tuple[tuple[int, ...], int]:
    features = tuple(draw(st.lists(st.integers(1, 40), min_size=1, max_size=4)))
    return features, draw(st.integers(1, min(features)))


@examples
@given(case=cases(), seed=st.integers(0, 2**40), number=st.integers(0, 10**6))
def test_balanced_blocks_split_every_axis_evenly(case: tuple[tuple[int, ...], int], seed: int, number: int) -> None:
    features, m = case
    blocks = Partition(features, m, seed=seed).blocks(number)
    assert len(blocks) == m
    for axis, d in enumerate(features):
        own = [b[axis] for b in blocks]
        assert sorted(torch.cat(own).tolist()) == list(range(d))
        assert max(map(len, own)) - min(map(len, own)) <= 1
        assert all(torch.equal(b, b.sort().values) and b.dtype == torch.long for b in own)


@examples
@given(d=st.integers(8, 60), m=st.integers(1, 3), seed=st.integers(0, 99), number=st.integers(0, 10**6))
def test_categorical_blocks_split_every_axis(d: int, m: int, seed: int, number: int) -> None:
    own = [b[0] for b in Partition((d,), m, kind="categorical", seed=seed).blocks(number)]
    assert sorted(torch.cat(own).tolist()) == list(range(d))
    assert all(len(b) and torch.equal(b, b.sort().values) for b in own)


@examples
@given(case=cases(), kind=kinds, data=st.data())
def test_whole_axes_are_whole(case: tuple[tuple[int, ...], int], kind: str, data: st.DataObject) -> None:
    features, _ = case
    whole = data.draw(st.sets(st.sampled_from(range(len(features))), min_size=1))
    m = data.draw(st.integers(2, 3))
    roomy = tuple(d if axis in whole else d + 10 for axis, d in enumerate(features))
    partition = Partition(roomy, m, whole=whole, kind=kind)
    assert partition.whole == whole
    for own in partition.blocks(0):
        for axis, d in enumerate(roomy):
            assert torch.equal(own[axis], torch.arange(d)) == (axis in whole)
    drawn = [tuple(len(block) for block in own) for own in partition.blocks(3)]
    assert partition.sizes(3) == drawn


def as_lists(partition: Partition, number: int) -> list[list[list[int]]]:
    return [[block.tolist() for block in own] for own in partition.blocks(number)]


@examples
@given(kind=kinds, seed=st.integers(0, 2**40), number=st.integers(0, 10**4), other=st.integers(1, 10**4))
def test_blocks_follow_from_seed_and_round_alone(kind: str, seed: int, number: int, other: int) -> None:
    fresh = as_lists(Partition((64, 48), 3, kind=kind, seed=seed), number)
    used = Partition((64, 48), 3, kind=kind, seed=seed)
    for earlier in range(3):
        used.blocks(earlier)
    assert as_lists(used, number) == fresh
    assert as_lists(used, number + other) != fresh
    assert as_lists(Partition((64, 48), 3, kind=kind, seed=seed + other), number) != fresh


def chi_square(counts: list[int], expected: list[float]) -> float:
    """The probability of counts at least as far from what is expected."""
    statistic = sum((c - e) ** 2 / e for c, e in zip(counts, expected, strict=True))
    return float(chi2.sf(statistic, len(counts) - 1))


def test_balanced_blocks_are_uniform() -> None:
    partition = Partition((6,), 2, seed=5)
    seen = Counter(tuple(partition.blocks(t)[0][0].tolist()) for t in range(ROUNDS))
    every = list(combinations(range(6), 3))
    assert set(seen) == set(every)
    assert chi_square([seen[b] for b in every], [ROUNDS / len(every)] * len(every)) > 1e-3


def test_categorical_sizes_are_binomial_without_the_empty_ones() -> None:
    partition = Partition((6,), 2, kind="categorical", seed=7)
    seen = Counter(len(partition.blocks(t)[0][0]) for t in range(ROUNDS))
    sizes = range(1, 6)
    assert set(seen) == set(sizes)
    assert chi_square([seen[k] for k in sizes], [ROUNDS * comb(6, k) / (2**6 - 2) for k in sizes]) > 1e-3


@examples
@given(
    features=st.lists(st.integers(1, 40), min_size=1, max_size=3),
    data=st.data(),
    seed=st.integers(0, 2**40),
    number=st.integers(0, 10**6),
)
def test_blocks_of_a_divisor_are_unions(features: list[int], data: st.DataObject, seed: int, number: int) -> None:
    """Block r of m' sub-GCNs is the union of the blocks of m that are r mod m'."""
    many = data.draw(st.integers(1, min(features)))
    few = data.draw(st.sampled_from([m for m in range(1, many + 1) if many % m == 0]))
    whole = data.draw(st.sets(st.sampled_from(range(len(features)))))
    partition = Partition(features, many, whole=whole, seed=seed)
    blocks, unions = partition.blocks(number), partition.split_into(few).blocks(number)
    for r, union in enumerate(unions):
        for axis, d in enumerate(features):
            parts = [blocks[i][axis] for i in range(r, many, few)]
            expected = torch.arange(d) if axis in whole else torch.cat(parts).sort().values
            assert torch.equal(union[axis], expected)


@examples
@given(case=cases(), kind=kinds, m=st.integers(1, 4), number=st.integers(0, 99))
def test_split_into_is_the_partition_into_another_number(
    case: tuple[tuple[int, ...], int], kind: str, m: int, number: int
) -> None:
    """It forgets nothing, also by way of m = 1, where every axis is whole."""
    features = tuple(d + 20 for d in case[0])
    whole = [0] if len(features) > 1 else []
    names = [f"d_{axis}" for axis in range(len(features))]
    partition = Partition(features, 3, whole=whole, kind=kind, seed=5, names=names)
    split = partition.split_into(1).split_into(m)
    assert as_lists(split, number) == as_lists(Partition(features, m, whole=whole, kind=kind, seed=5), number)
    assert split.names == names
    assert split.split == partition.split == list(range(len(whole), len(features)))


def test_refusals() -> None:
    for m in (0, -1, 1.5, "2"):
        with refused("sub_gcns is", repr(m)):
            Partition((8,), m)  # type: ignore[arg-type]
    with refused("sub_gcns is 9", "8 features of axis 1", "at most 8"):
        Partition((16, 8), 9)
    with refused("sub_gcns is 9", "8 features of d_2", "at most 8"):
        Partition((16, 8), 9, names=["d_1", "d_2"])
    with refused("partition is 'even'", "balanced", "categorical"):
        Partition((8,), 2, kind="even")
    with refused("axis 2", "0 to 1"):
        Partition((8, 8), 2, whole=[2])
    with refused("seed is -1"):
        Partition((8,), 2, seed=-1)
    assert Partition((16, 8), 16, whole=[1]).sub_gcns == 16


def test_a_categorical_partition_that_never_comes_is_refused() -> None:
    with refused("30 features", "30 sub-GCNs", "fewer"):
        Partition((30,), 30, kind="categorical").blocks(0)
