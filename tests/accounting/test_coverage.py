"""The expected coverage against entries that sub-GCNs really hold: of all possible blocks, and of many rounds."""

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gistgnn import GIST
from gistgnn.accounting import coverage
from gistgnn.accounting.coverage import partition_of
from gistgnn.baselines.registry import METHODS
from gistgnn.partition import Blocks, Partition
from gistgnn.sampling import ClusterSampling
from gistgnn.schedule import Schedule
from gistgnn.settings import Phase, Training
from tests.helpers.fitting import fit, gcn
from tests.helpers.models import every_model

KINDS = ("balanced", "categorical")


def coverage_of(gist: GIST, rounds: int) -> dict[str, Any]:
    draws: coverage.Draws = Counter({((None, 1),): rounds})
    if gist.method == "ensemble":  # keeps its blocks
        draws = Counter({((None, rounds),): 1})
    return coverage.coverage_of(gist._full_spec, gist.partition, draws)


def shares(gist: GIST, rounds: int) -> dict[int, float]:
    return {int(n): share for n, share in coverage_of(gist, rounds)["counts"].items()}


def held(gist: GIST, rounds: int) -> dict[int, float]:
    """Share of the parameters by the number of rounds in which some sub-GCN has them; an ensemble keeps its blocks."""
    return held_in(gist, [gist.blocks(0 if gist.method == "ensemble" else t) for t in range(rounds)])


def held_in(gist: GIST, every: Iterable[Sequence[Blocks]]) -> dict[int, float]:
    """Share of the parameters by the number of rounds, of which the blocks are given, from their positions alone."""
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


def small(model: str, widths: int | tuple[int, ...], m: int, **options: Any) -> GIST:
    return GIST(every_model()[model][0], widths, m, **options)


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
    monkeypatch: pytest.MonkeyPatch, model: str, widths: int | tuple[int, ...], m: int, kind: str, options: Any
) -> None:
    """Of two rounds, because the sizes of a single draw's blocks are known."""
    gist = small(model, widths, m, partition=kind, **options)
    expected = sum(n * share for n, share in shares(gist, 2).items()) / 2
    possible = list(every_blocks(gist))
    found = []
    for blocks in possible:
        monkeypatch.setattr(gist, "blocks", lambda _, blocks=blocks: blocks)
        found.append(held(gist, 1).get(1, 0.0))
    assert expected == pytest.approx(np.mean(found), abs=1e-12)


def test_axes_that_are_left_whole_are_always_trained() -> None:
    gist = GIST(gcn(), (8, 8), 4, whole=[1])
    assert coverage_of(gist, 6)["counts"] == {"6": 1.0}
    assert partition_of(gist.partition, gist.blocks(0)) == [
        {"name": "axis 0", "features": 8, "blocks": [2, 2, 2, 2]},
        {"name": "axis 1", "features": 8, "blocks": [8]},
    ]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("method", "never"), [("data-parallel", False), ("local-sgd", False), ("ensemble", True)])
def test_of_what_gist_is_compared_with(method: str, never: bool, kind: str) -> None:
    """An ensemble never trains the weights between its members, and the others train everything."""
    make: Callable[..., GIST] = METHODS[method].load()
    gist = make(gcn(), (64, 64), 2, **({"partition": kind} if never else {}))
    options: dict[str, Any] = {"sampler": ClusterSampling(clusters=4, clusters_per_batch=2, method="random")}
    result = fit(gist, training="each", epochs=4, **options)
    rounds = result.coverage["rounds"]
    assert shares(gist, rounds) == pytest.approx(held(gist, rounds) if never else {rounds: 1.0})
    assert {int(n): share for n, share in result.coverage["counts"].items()} == shares(gist, rounds)
    assert (0 in shares(gist, rounds)) == never


# Phases.


def phased(draw: st.DrawFn) -> Training:
    phases: list[Phase] = []
    for _ in range(draw(st.integers(1, 3))):
        m = draw(st.sampled_from([1, 2, 4]))
        phases.append(Phase(m, draw(st.integers(1, 4)), redraw_every=draw(st.sampled_from([0, 1, 2]))))
    return Training(phases=tuple(phases), training="each", local_steps=1)


@given(training=st.composite(phased)(), model=st.sampled_from(["gcn none 2", "residual", "copies of the whole"]))
@settings(max_examples=8, deadline=None)
def test_phases_agree_with_many_runs(training: Training, model: str) -> None:
    """Of kept, nested and redrawn blocks."""
    build, widths = every_model()[model]
    gist = GIST(build, 12 if isinstance(widths, int) else (12,) * len(widths), 4)
    schedule, runs, sums = Schedule(training, 1, 4), 40, Counter[int]()
    found = coverage.coverage_of(gist._full_spec, gist.partition, schedule.draws(schedule.rounds))
    expected = {int(n): share for n, share in found["counts"].items()}
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


@pytest.mark.parametrize("kind", KINDS)
def test_blocks_that_are_kept_are_counted_exactly(kind: str) -> None:
    """Without a new draw nothing is left to chance, not even the sizes of categorical blocks."""
    gist = GIST(gcn(), (16, 12), 3, partition=kind, seed=2)
    result = fit(gist, redraw_every=0, training="each", epochs=6)
    expected = held_in(gist, [gist.blocks(0)] * 3)
    assert {int(n): share for n, share in result.coverage["counts"].items()} == pytest.approx(expected)
