"""Θ is the same wherever it lies."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gistgnn import GIST
from gistgnn.errors import DivergedError
from gistgnn.layout.axes import named_tensors
from gistgnn.theta import Store
from tests.helpers.fitting import same
from tests.helpers.models import OURS, layout_of, some_models
from tests.helpers.refusals import refused
from tests.helpers.resuming import fit, make
from tests.theta.stores import OPTIMIZERS, shaken, store, values


@settings(
    deadline=None, max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data(), name=st.sampled_from(list(some_models())))
def test_every_store_gives_the_same_theta(
    name: str, data: st.DataObject, tmp_path_factory: Any
) -> None:
    build, usual_widths = some_models()[name]
    layout = layout_of(name)
    axes = len(layout.units)
    m = data.draw(st.integers(1, 4))
    full = layout.widths(data.draw(st.lists(st.integers(m, m + 6), min_size=axes, max_size=axes)))
    whole_axes = data.draw(st.sets(st.integers(0, axes - 1), max_size=axes - 1))
    carry = data.draw(st.sampled_from([None, *OPTIMIZERS.values()]))
    folder = tmp_path_factory.mktemp("theta")
    thetas = []
    for kind in ("memory", "host", "disk"):
        widths = full[0] if isinstance(usual_widths, int) else full
        gist = GIST(build, widths, m, store=store(kind, folder), whole=whole_axes, seed=3)
        shaken(gist, 3, carry)
        thetas.append(values(gist.theta))
    assert all(same(theta, thetas[0]) for theta in thetas[1:])


def floating_types(tensors: Mapping[str, torch.Tensor]) -> set[torch.dtype]:
    return {tensor.dtype for tensor in tensors.values() if tensor.is_floating_point()}


def test_half_precision_takes_half_the_room(tmp_path: Path) -> None:
    full, half = (make(store=store("disk", tmp_path / p, p)) for p in ("float32", "bf16"))
    result = fit(half, optimizer_state="carry")
    fit(full, optimizer_state="carry")
    assert floating_types(half.theta.place.tensors) == {torch.bfloat16}
    assert floating_types(named_tensors(result.model)) == {torch.float32}
    assert result.test is not None
    assert result.test["accuracy"] > 0.4  # chance is a third
    full_bytes = sum(tensor.nbytes for tensor in values(full.theta).values())
    half_bytes = sum(tensor.nbytes for tensor in values(half.theta).values())
    assert half_bytes < 0.6 * full_bytes


@pytest.mark.parametrize("kind", ["memory", "disk"])
def test_sub_gcns_that_a_loop_leaves_out_stay_as_they_are(tmp_path: Path, kind: str) -> None:
    gist = make(4, store=store(kind, tmp_path))
    before = values(gist.theta)["convs.1.weight"]
    for round_ in gist.rounds(1):
        for i, sub in enumerate(round_):
            named_tensors(sub)["convs.1.weight"].detach().add_(1)
            if i == 1:
                break
    moved = values(gist.theta)["convs.1.weight"] != before
    for i, (columns, rows, *_) in enumerate(round_.blocks):
        entries = moved[rows][:, columns]
        assert bool(entries.all()) if i <= 1 else not entries.any()


def test_a_round_that_streams_is_gone_through_once(tmp_path: Path) -> None:
    gist = GIST(OURS["gcn"], (8, 4), 4, store=store("disk", tmp_path))
    round_ = gist.begin_round()
    assert len({id(sub) for sub in round_}) == 1  # one module for all
    with refused("round 1", "sub-GCN 0", "once"):
        list(round_)


def test_a_round_that_breaks_off_or_diverges_leaves_theta_as_it_was(tmp_path: Path) -> None:
    gist = make(store=store("disk", tmp_path))
    before = values(gist.theta)
    for round_ in gist.rounds(1):
        for sub in round_:
            next(sub.parameters()).detach().fill_(3.0)
        break  # the round does not end
    gist.next_round = 0
    with refused("diverged in round 1", "sub-GCN 1", error=DivergedError):
        for round_ in gist.rounds(1):
            for i, sub in enumerate(round_):
                next(sub.parameters()).detach().fill_(float("nan") if i == 1 else 3.0)
    other = make(store=store("disk", tmp_path))
    other.resume()
    assert same(values(gist.theta), before)
    assert same(values(other.theta), before)


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (("tape",), ["store is 'tape'", "memory, host, disk"]),
        (("disk",), ["store is disk", "no folder"]),
        (("memory", Path("x")), ["store is memory", "disk"]),
        (("host", None, "bf16"), ["bf16", "host"]),
        (("disk", Path("x"), "float16"), ["float16", "float32, bf16"]),
    ],
)
def test_a_wrong_store_is_refused(arguments: tuple[Any, ...], parts: list[str]) -> None:
    with refused(*parts):
        Store(*arguments)
