"""Which share of Θ was trained how often, against adding one to every entry that a sub-GCN holds."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gistgnn import GIST
from gistgnn.accounting.coverage import coverage_of, partition_of
from gistgnn.baselines.registry import METHODS
from gistgnn.sampling import ClusterSampling
from tests.helpers.fitting import fit, gcn
from tests.helpers.models import every_model


def counted(gist: GIST, rounds: int) -> dict[str, float]:
    """The shares of the parameters by how often a sub-GCN held them."""
    before = gist.theta.copy()
    for round_ in gist.rounds(rounds):
        for sub in round_:
            with torch.no_grad():
                for parameter in sub.parameters():
                    parameter += 1
    names = dict(gist.model().named_parameters())
    moved = torch.cat([(gist.theta.tensors[name] - before[name]).flatten() for name in names]).round().long()
    values, counts = moved.unique(return_counts=True)
    return {str(int(v)): int(n) / len(moved) for v, n in zip(values, counts, strict=True)}


@given(
    model=st.sampled_from(sorted(every_model())),
    m=st.integers(1, 4),
    rounds=st.integers(0, 5),
    kind=st.sampled_from(["balanced", "categorical"]),
    seed=st.integers(0, 100),
)
@settings(max_examples=12, deadline=None)
def test_it_is_what_sub_gcns_hold(model: str, m: int, rounds: int, kind: str, seed: int) -> None:
    build, widths = every_model()[model]
    widths = 12 if isinstance(widths, int) else (12,) * len(widths)
    gist = GIST(build, widths, m, seed=seed, partition=kind)
    expected = counted(gist, rounds)
    found = coverage_of(gist, rounds)
    assert found["rounds"] == rounds
    assert found["counts"] == pytest.approx(expected)


def test_of_large_tensors_a_sample_stands_for_all() -> None:
    gist = GIST(gcn(), (256, 256), 4, seed=1)
    found, rounds = coverage_of(gist, 8)["counts"], 8
    expected = counted(gist, rounds)
    for count in expected:
        assert found.get(count, 0.0) == pytest.approx(expected[count], abs=0.03)
    assert sum(found.values()) == pytest.approx(1.0)


def test_axes_that_are_left_whole_are_always_trained() -> None:
    gist = GIST(gcn(), (8, 8), 4, whole=[1])
    assert coverage_of(gist, 6)["counts"] == {"6": 1.0}
    assert partition_of(gist) == [
        {"name": "axis 0", "features": 8, "blocks": [2, 2, 2, 2]},
        {"name": "axis 1", "features": 8, "blocks": [8]},
    ]


@pytest.mark.parametrize(("method", "never"), [("data-parallel", 0.0), ("local-sgd", 0.0), ("ensemble", 0.5)])
def test_of_what_gist_is_compared_with(method: str, never: float) -> None:
    """An ensemble never trains the weights between its members."""
    options: dict[str, Any] = {"sampler": ClusterSampling(clusters=4, clusters_per_batch=2, method="random")}
    result = fit(METHODS[method].load()(gcn(), (64, 64), 2), training="each", epochs=4, **options)
    counts = result.coverage["counts"]
    assert counts.get("0", 0.0) == pytest.approx(never * 64 * 64 / result.coverage["parameters"], abs=0.02)
    assert counts.get("0", 0.0) + counts[str(result.coverage["rounds"])] == pytest.approx(1.0)
