from collections import Counter
from itertools import combinations
from math import comb
from typing import Any

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

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
@given(
    case=cases(),
    kind=kinds,
    seed=st.integers(0, 2**40),
    number=st.integers(0, 10**6),
    data=st.data(),
)
def test_blocks_split_every_axis_that_is_not_whole(
    case: tuple[tuple[int, ...], int], kind: str, seed: int, number: int, data: st.DataObject
) -> None:
    features, m = case
    if kind == "categorical":  # Random blocks need many more features than sub-GCNs.
        features = tuple(d + 20 for d in features)
        m = min(m, 3)
    whole_axes = data.draw(st.sets(st.sampled_from(range(len(features)))))
    partition = Partition(features, m, whole=whole_axes, kind=kind, seed=seed)
    blocks = partition.blocks(number)
    assert len(blocks) == m
    for axis, d in enumerate(features):
        blocks_of_axis = [b[axis] for b in blocks]
        if axis in whole_axes:
            assert all(torch.equal(b, torch.arange(d)) for b in blocks_of_axis)
            continue
        assert sorted(torch.cat(blocks_of_axis).tolist()) == list(range(d))
        for block in blocks_of_axis:
            assert len(block) > 0
            assert block.dtype == torch.long
            assert torch.equal(block, block.sort().values)
        if kind == "balanced":
            sizes = [len(block) for block in blocks_of_axis]
            assert max(sizes) - min(sizes) <= 1
    assert partition.whole == (whole_axes if m > 1 else {*range(len(features))})
    assert partition.sizes(number) == [tuple(map(len, of_sub_gcn)) for of_sub_gcn in blocks]


@examples
@given(kind=kinds, seed=st.integers(0, 2**40), number=st.integers(0, 10**4))
def test_axes_of_the_same_width_have_blocks_of_their_own(kind: str, seed: int, number: int) -> None:
    for of_sub_gcn in Partition((64, 64), 3, kind=kind, seed=seed).blocks(number):
        assert of_sub_gcn[0].tolist() != of_sub_gcn[1].tolist()


def as_lists(partition: Partition, number: int) -> list[list[list[int]]]:
    return [[block.tolist() for block in of_sub_gcn] for of_sub_gcn in partition.blocks(number)]


@examples
@given(
    kind=kinds,
    seed=st.integers(0, 2**40),
    number=st.integers(0, 10**4),
    other=st.integers(1, 10**4),
)
def test_blocks_follow_from_seed_and_round_alone(
    kind: str, seed: int, number: int, other: int
) -> None:
    fresh = as_lists(Partition((64, 48), 3, kind=kind, seed=seed), number)
    used = Partition((64, 48), 3, kind=kind, seed=seed)
    for earlier in range(3):
        used.blocks(earlier)
    assert as_lists(used, number) == fresh
    assert as_lists(used, number + other) != fresh
    assert as_lists(Partition((64, 48), 3, kind=kind, seed=seed + other), number) != fresh


def test_all_balanced_blocks_are_equally_likely_and_categorical_sizes_are_binomial() -> None:
    """Draws with an empty block are left out of the binomial sizes.

    Counts at least as far from the expected ones do not have a tiny probability.
    """
    balanced = Partition((6,), 2, seed=5)
    categorical = Partition((6,), 2, kind="categorical", seed=7)
    seen = Counter(tuple(balanced.blocks(t)[0][0].tolist()) for t in range(ROUNDS))
    possible = list(combinations(range(6), 3))
    assert set(seen) == set(possible)
    assert chisquare([seen[b] for b in possible]).pvalue > 1e-3
    sizes = Counter(len(categorical.blocks(t)[0][0]) for t in range(ROUNDS))
    assert set(sizes) == set(range(1, 6))
    expected = [ROUNDS * comb(6, k) / (2**6 - 2) for k in range(1, 6)]
    assert chisquare([sizes[k] for k in range(1, 6)], expected).pvalue > 1e-3


@examples
@given(case=cases(), data=st.data(), seed=st.integers(0, 2**40), number=st.integers(0, 10**6))
def test_blocks_of_a_divisor_are_unions(
    case: tuple[tuple[int, ...], int], data: st.DataObject, seed: int, number: int
) -> None:
    """Block r of m' sub-GCNs is the union of the blocks of m that are r mod m'.

    It is so also by way of m = 1.
    """
    features, many = case
    divisors = [m for m in range(1, many + 1) if many % m == 0]
    few = data.draw(st.sampled_from(divisors))
    whole_axes = data.draw(st.sets(st.sampled_from(range(len(features)))))
    partition = Partition(features, many, whole=whole_axes, seed=seed)
    blocks = partition.blocks(number)
    unions = partition.split_into(1).split_into(few).blocks(number)
    for r, union in enumerate(unions):
        for axis, d in enumerate(features):
            parts = [blocks[i][axis] for i in range(r, many, few)]
            expected = torch.arange(d) if axis in whole_axes else torch.cat(parts).sort().values
            assert torch.equal(union[axis], expected)


REFUSED: dict[tuple[str, ...], dict[str, Any]] = {
    **{("sub_gcns is", repr(m)): {"sub_gcns": m} for m in (0, -1, 1.5, "2")},
    ("sub_gcns is 9", "8 features of axis 1", "at most 8"): {"features": (16, 8), "sub_gcns": 9},
    ("sub_gcns is 9", "8 features of d_2"): {
        "features": (16, 8),
        "sub_gcns": 9,
        "names": ["d_1", "d_2"],
    },
    ("partition is 'even'", "balanced", "categorical"): {"kind": "even"},
    ("axis 2", "0 to 1"): {"features": (8, 8), "whole": [2]},
    ("seed is -1",): {"seed": -1},
    ("30 features", "30 sub-GCNs", "fewer"): {
        "features": (30,),
        "sub_gcns": 30,
        "kind": "categorical",
    },
}


def test_what_cannot_be_split_is_refused() -> None:
    for messages, options in REFUSED.items():
        with refused(*messages):
            Partition(**{"features": (8,), "sub_gcns": 2, **options})
    assert Partition((16, 8), 16, whole=[1]).sub_gcns == 16
