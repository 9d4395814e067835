"""The expected coverage against entries that sub-GCNs really hold: of all possible blocks, and of many rounds."""

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gistgnn import GIST
from gistgnn.accounting import coverage
from gistgnn.baselines.registry import METHODS
from gistgnn.partition import Blocks, Partition
from gistgnn.sampling import ClusterSampling
from gistgnn.schedule import Schedule
from gistgnn.settings import Phase, Training
from tests.helpers.fitting import fit, gcn
from tests.helpers.models import every_model

KINDS = ("balanced", "categorical")


def shares(coverage: dict[str, Any]) -> dict[int, float]:
    return {int(n): share for n, share in coverage["counts"].items()}


def held_in(gist: GIST, every: Iterable[Sequence[Blocks]]) -> dict[int, float]:
    """Share of the parameters by the number of the given rounds in which some sub-GCN has them."""
    model = gist._full_spec.on_meta()
    often = {name: np.zeros(tensor.shape, int) for name, tensor in model.named_parameters()}
    for blocks in every:
        for name, count in often.items():
            here = np.zeros(count.shape, bool)
            for sub_gcn in blocks:
                dims = gist.layout.dims[name]
                here[np.ix_(*(gist.layout.positions(dim, sub_gcn, gist.partition.features) for dim in dims))] = True
            count += here
    counts = Counter(np.concatenate([count.ravel() for count in often.values()]).tolist())
    return {n: count / counts.total() for n, count in counts.items()}


def every_blocks(gist: GIST) -> Iterator[list[Blocks]]:
    """All blocks that a round may draw, equally likely."""
    m, kind = gist.sub_gcns, gist.partition.kind
    axes = []
    for axis, d in enumerate(gist.partition.features):
        owners = itertools.product(range(m), repeat=d)
        even = sorted(i % m for i in range(d))
        fitting = [o for o in owners if (sorted(o) == even if kind == "balanced" else len(set(o)) == m)]
        split = [[torch.tensor([f for f in range(d) if o[f] == i]) for i in range(m)] for o in fitting]
        axes.append([[torch.arange(d)] * m] if axis in gist.partition.whole else split)
    for chosen in itertools.product(*axes):
        yield list(zip(*chosen, strict=True))


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
    ],
)
def test_one_round_is_the_mean_over_all_possible_blocks(
    model: str, widths: int | tuple[int, ...], m: int, kind: str, options: Any
) -> None:
    gist = GIST(every_model()[model][0], widths, m, partition=kind, **options)
    found = shares(coverage.coverage_of(gist._full_spec, gist.partition, Counter({((None, 1),): 2})))
    possible = [held_in(gist, [blocks]).get(1, 0.0) for blocks in every_blocks(gist)]
    assert sum(n * share for n, share in found.items()) / 2 == pytest.approx(np.mean(possible), abs=1e-12)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("method", METHODS)
def test_without_new_draws_coverage_is_exact(method: str, kind: str) -> None:
    """Not even the sizes of categorical blocks are left to chance. Baselines of full models train everything."""
    splits = method in ("gist", "ensemble")
    gist = METHODS[method](gcn(), (16, 12), 3, **({"partition": kind, "seed": 2} if splits else {}))
    sampler = ClusterSampling(clusters=4, clusters_per_batch=2, method="random")
    own = {"redraw_every": 0} if method == "gist" else {}
    result = fit(gist, training="each", epochs=4, sampler=sampler, **own)
    rounds = result.coverage["rounds"]
    expected = held_in(gist, [gist.blocks(0)] * rounds) if splits else {rounds: 1.0}
    assert rounds == 4
    assert shares(result.coverage) == pytest.approx(expected)


def phased(draw: st.DrawFn) -> Training:
    phases: list[Phase] = []
    for _ in range(draw(st.integers(1, 3))):
        m = draw(st.sampled_from([1, 2, 4]))
        phases.append(Phase(m, draw(st.integers(1, 4)), redraw_every=draw(st.sampled_from([0, 1, 2]))))
    return Training(phases=tuple(phases), training="each", local_steps=1)


@given(training=st.composite(phased)(), model=st.sampled_from(["gcn none 2", "residual", "copies of the whole"]))
@settings(max_examples=8, deadline=None)
def test_phases_agree_with_many_runs(training: Training, model: str) -> None:
    build, widths = every_model()[model]
    gist = GIST(build, 12 if isinstance(widths, int) else (12,) * len(widths), 4)
    schedule, runs, sums = Schedule(training, 1, 4), 40, Counter[int]()
    found = coverage.coverage_of(gist._full_spec, gist.partition, schedule.draws(schedule.rounds))
    expected = shares(found)
    assert found["rounds"] == schedule.rounds
    assert sum(expected.values()) == pytest.approx(1.0)
    for seed in range(runs):
        gist.partition = Partition(gist.partition.features, 4, seed=seed)
        plans = map(schedule.plan, range(schedule.rounds))
        sums.update(held_in(gist, [gist._partition_of(plan).blocks(plan.draw) for plan in plans]))
    assert {n for n, share in sums.items() if share > 0} <= set(expected)
    for n, share in expected.items():
        error = math.sqrt(share * (1 - share) / runs)
        assert sums[n] / runs == pytest.approx(share, abs=5 * error + 1e-9)
