"""The share that is never trained, against the entries that sub-GCNs hold.

It is compared over all possible blocks, and over many draws.
"""

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
import torch

from gistgnn import GIST
from gistgnn.accounting.coverage import coverage_of, never_trained
from gistgnn.baselines.registry import METHODS
from gistgnn.nn import GCN
from gistgnn.partition import Blocks, Partition
from gistgnn.sampling import ClusterSampling
from gistgnn.storage.record import Coverage
from tests.helpers.fitting import fit, gcn
from tests.helpers.models import every_model

KINDS = ("balanced", "categorical")
INPUT_AXIS = ((lambda widths: GCN(widths[0], widths[1:], 3)), {"input_axis": 0})


def made(model: str, widths: Any, m: int, **options: Any) -> GIST:
    build, needed = INPUT_AXIS if model == "input axis" else (every_model()[model][0], {})
    return GIST(build, widths, m, **needed, **options)


def is_trained(gist: GIST, blocks: Sequence[Blocks]) -> np.ndarray:
    """Whether each parameter of Θ is in some sub-GCN."""
    flags = []
    for name, tensor in gist.full_spec.on_meta().named_parameters():
        here = np.zeros(tensor.shape, bool)
        for sub_gcn in blocks:
            positions = (
                gist.layout.positions(dim, sub_gcn, gist.partition.features)
                for dim in gist.layout.dims[name]
            )
            here[np.ix_(*positions)] = True
        flags.append(here.ravel())
    return np.concatenate(flags)


def every_blocks(gist: GIST) -> Iterator[list[Blocks]]:
    """All blocks that a round may draw, equally likely."""
    m = gist.sub_gcns
    axes: list[list[list[torch.Tensor]]] = []
    for axis, d in enumerate(gist.partition.features):
        if axis in gist.partition.whole:
            axes.append([[torch.arange(d)] * m])
            continue
        possible = itertools.product(range(m), repeat=d)
        axes.append(
            [
                [(torch.tensor(owners) == sub_gcn).nonzero().squeeze(1) for sub_gcn in range(m)]
                for owners in possible
                if may_be_drawn(owners, m, gist.partition.kind)
            ]
        )
    for chosen in itertools.product(*axes):
        yield list(zip(*chosen, strict=True))


def may_be_drawn(owners: tuple[int, ...], m: int, kind: str) -> bool:
    """Whether features may belong to these sub-GCNs: in even shares, or each with one at least."""
    if kind == "balanced":
        return sorted(owners) == sorted(i % m for i in range(len(owners)))
    return len(set(owners)) == m


def sizes_of(blocks: Sequence[Blocks]) -> list[tuple[int, ...]]:
    return [tuple(map(len, of_sub_gcn)) for of_sub_gcn in blocks]


@pytest.mark.one_in(3)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("model", "widths", "m", "options"),
    [
        ("gcn none 2", (3, 4), 2, {}),
        ("gcn none 2", (3, 5), 2, {"whole": [0]}),
        ("graphsage none 2", (4, 3), 2, {}),
        ("residual", 4, 2, {}),
        ("residual", 6, 3, {}),
        ("jumping over x", (3, 4), 2, {}),
        ("copies of the whole", (4, 3), 2, {}),
        ("input axis", (4, 3), 2, {}),
    ],
)
def test_the_share_is_the_mean_over_all_possible_blocks(
    model: str, widths: int | tuple[int, ...], m: int, kind: str, options: Any
) -> None:
    gist = made(model, widths, m, partition=kind, seed=1, **options)
    possible = [(sizes_of(blocks), is_trained(gist, blocks)) for blocks in every_blocks(gist)]
    chances = np.mean([flags for _, flags in possible], axis=0)
    for rounds in (2, 3, 7):
        expected = np.mean((1 - chances) ** rounds)
        assert never_trained(gist.full_spec, gist.partition, rounds) == pytest.approx(
            expected, abs=1e-12
        )
    # One round has the first draw's blocks, whose sizes are known.
    drawn = sizes_of(gist.blocks(0))
    expected = 1 - np.mean([flags for sizes, flags in possible if sizes == drawn])
    assert never_trained(gist.full_spec, gist.partition, 1) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("model", "widths", "m"),
    [("gcn none 2", (13, 11), 4), ("residual", 12, 3), ("input axis", (9, 7), 3)],
)
def test_real_draws_leave_the_share_untrained(
    model: str, widths: int | tuple[int, ...], m: int, kind: str
) -> None:
    gist = made(model, widths, m, partition=kind)
    rounds = 3
    shares = []
    expected = never_trained(gist.full_spec, gist.partition, rounds)
    for seed in range(40):
        partition = Partition(gist.partition.features, m, kind=kind, seed=seed)
        trained = np.any(
            [is_trained(gist, partition.blocks(draw)) for draw in range(rounds)], axis=0
        )
        shares.append(1 - trained.mean())
    error = np.std(shares, ddof=1) / math.sqrt(len(shares))
    assert error < 0.1 * expected, "the test can tell"
    assert np.mean(shares) == pytest.approx(expected, abs=4 * error)


def test_one_sub_gcn_trains_everything_and_no_round_trains_nothing() -> None:
    for m, rounds, share in ((1, 1, 0.0), (1, 5, 0.0), (1, 0, 1.0), (2, 0, 1.0), (2, 1000, 0.0)):
        gist = GIST(gcn(), (16, 12), m)
        assert never_trained(gist.full_spec, gist.partition, rounds) == share


@pytest.mark.one_in(3)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("method", METHODS)
def test_a_result_has_the_share(method: str, kind: str) -> None:
    """A run of one draw has trained just that share. Baselines of full models train everything."""
    splits = method in ("gist", "ensemble", "parts")
    options = {"partition": kind, "seed": 2} if splits else {}
    gist = METHODS[method](gcn(), (16, 12), 3, **options)
    sampler = ClusterSampling(clusters=4, clusters_per_batch=2, method="random")
    result = fit(
        gist, training="each", epochs=4, sampler=sampler, local_steps=8 if method == "gist" else 2
    )
    # Narrow models that train by themselves have the blocks of one draw.
    rounds = 1 if splits else 4
    trained = is_trained(gist, gist.blocks(0)) if splits else np.ones(16)
    parameters = sum(tensor.numel() for tensor in gcn()((16, 12)).parameters())
    assert result.coverage == Coverage(
        rounds=rounds,
        parameters=parameters,
        never_trained=pytest.approx(1 - trained.mean(), abs=1e-12),
    )
    assert (result.coverage.never_trained > 0.1) == splits


def test_rounds_of_a_run_have_draws_of_their_own() -> None:
    gist = GIST(gcn(), (16, 12), 3)
    result = fit(gist, training="each", epochs=8, local_steps=2)
    assert result.coverage == coverage_of(gist.full_spec, gist.partition, 4)
    # A weight between two split layers is in a sub-GCN by chance, and any other one is in all.
    crossing = 16 * 12 / result.coverage.parameters
    sizes = [(6, 4), (5, 4), (5, 4)]
    chance = sum(a * b for a, b in sizes) / (16 * 12)
    assert result.coverage.never_trained == pytest.approx(crossing * (1 - chance) ** 4)
