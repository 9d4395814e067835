"""Θ is the same wherever it lies."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gistgnn import GIST, Saving
from gistgnn.errors import DivergedError
from gistgnn.layout.axes import named_tensors
from gistgnn.theta import Store
from tests.helpers.models import OURS, every_model, layout_of, some_models
from tests.helpers.refusals import refused
from tests.helpers.resuming import after, fit, make, state
from tests.theta.stores import equal, shaken, store, values

few = settings(deadline=None, max_examples=4, suppress_health_check=[HealthCheck.function_scoped_fixture])

OPTIMIZERS: dict[str, Any] = {
    "reset": None,
    "adam": torch.optim.Adam,
    "momentum": partial(torch.optim.SGD, lr=0.1, momentum=0.9),
    "sgd": partial(torch.optim.SGD, lr=0.1),
}


def gist_of(name: str, features: tuple[int, ...], m: int, where: Store, **options: Any) -> GIST:
    build, widths = some_models()[name]
    full = layout_of(name).widths(features)
    return GIST(build, full[0] if isinstance(widths, int) else full, m, store=where, **options)


@pytest.mark.parametrize("name", some_models())
@few
@given(data=st.data())
def test_every_store_gives_the_same_theta(
    name: str, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    axes = len(layout_of(name).units)
    m = data.draw(st.integers(1, 4))
    features = tuple(data.draw(st.lists(st.integers(m, m + 6), min_size=axes, max_size=axes)))
    whole = data.draw(st.sets(st.integers(0, axes - 1), max_size=axes - 1))
    carry = OPTIMIZERS[data.draw(st.sampled_from(sorted(OPTIMIZERS)))]
    folder = tmp_path_factory.mktemp("theta")
    found = {}
    for kind in ("memory", "host", "disk"):
        gist = gist_of(name, features, m, store(kind, folder), whole=whole, seed=3)
        shaken(gist, 3, carry)
        found[kind] = values(gist.theta)
    assert equal(found["host"], found["memory"])
    assert equal(found["disk"], found["memory"])


@pytest.mark.parametrize("name", sorted({*some_models(), "pyg gcn None lstm", "gat batch 2", "graphsage none 1"}))
def test_initial_values_are_those_of_the_model_in_one_piece(name: str, tmp_path: Path) -> None:
    build, widths = every_model()[name]
    options: dict[str, Any] = {"seed": 5}
    one, other = GIST(build, widths, **options), GIST(build, widths, store=store("disk", tmp_path), **options)
    assert equal(values(one.theta), values(other.theta))


@pytest.mark.parametrize("m", [1, 3])
@pytest.mark.parametrize("kind", ["host", "disk"])
@pytest.mark.parametrize("runner", ["in-turn", "fused"])
@pytest.mark.parametrize("optimizer_state", ["reset", "carry"])
def test_training_ends_alike(tmp_path: Path, m: int, kind: str, runner: str, optimizer_state: str) -> None:
    options = {"runner": runner, "optimizer_state": optimizer_state}
    plain, other = make(m), make(m, store=store(kind, tmp_path))
    expected = state(plain, fit(plain, **options))
    assert state(other, fit(other, **options)) == expected


@pytest.mark.parametrize("stops", [[1], [2, 1, 2]])
@pytest.mark.parametrize("optimizer_state", ["reset", "carry"])
def test_a_run_in_files_goes_on(tmp_path: Path, stops: list[int], optimizer_state: str) -> None:
    plain = make()
    expected = state(plain, fit(plain, optimizer_state=optimizer_state))
    saving = Saving(tmp_path / "checkpoints", resume=True)
    for rounds in stops:
        gist = make(store=store("disk", tmp_path))
        if not saving.path.exists():
            gist.theta  # noqa: B018 (makes it)
        result = fit(gist, callbacks=after(rounds), saving=saving, optimizer_state=optimizer_state)
        assert result.interrupted
    resumed = make(store=store("disk", tmp_path))
    assert state(resumed, fit(resumed, saving=saving, optimizer_state=optimizer_state)) == expected


def test_the_best_theta_is_kept(tmp_path: Path) -> None:
    """A rate that ruins the model after its best round."""
    options: dict[str, Any] = {"epochs": 40, "lr": 0.4, "evaluate_every": 1}
    plain, mapped = make(), make(store=store("disk", tmp_path))
    one, other = fit(plain, **options), fit(mapped, **options)
    assert one.progress.best_round < one.progress.rounds
    assert equal(dict(named_tensors(one.model)), dict(named_tensors(other.model)))


def test_half_precision_takes_half_the_room(tmp_path: Path) -> None:
    full, half = (make(store=store("disk", tmp_path / p, p)) for p in ("float32", "bf16"))
    result = fit(half, optimizer_state="carry")
    fit(full, optimizer_state="carry")
    assert all(t.dtype == torch.bfloat16 for t in half.theta.specs.values() if t.dtype.is_floating_point)
    assert all(t.dtype == torch.float32 for t in named_tensors(result.model).values() if t.is_floating_point())
    assert result.test is not None
    assert result.test["accuracy"] > 0.4  # chance is a third
    sizes = [sum(t.nbytes for t in values(gist.theta).values()) for gist in (full, half)]
    assert sizes[1] < 0.6 * sizes[0]


def test_a_loop_of_one_s_own_goes_on_in_another_process(tmp_path: Path) -> None:
    plain, first, second = make(), *(make(store=store("disk", tmp_path)) for _ in range(2))
    shaken(plain, 5, torch.optim.Adam)
    shaken(first, 2, torch.optim.Adam)
    second.resume()
    assert second.next_round == 2
    shaken(second, 3, torch.optim.Adam)
    assert equal(values(second.theta), values(plain.theta))


def test_sub_gcns_that_a_loop_leaves_out_stay_as_they_are(tmp_path: Path) -> None:
    found = {}
    for kind in ("memory", "disk"):
        gist = make(4, store=store(kind, tmp_path))
        for round_ in gist.rounds(2):
            for i, sub in enumerate(round_):
                with torch.no_grad():
                    for parameter in sub.parameters():
                        parameter += 1
                if i == 1:
                    break
        found[kind] = values(gist.theta)
    assert equal(found["memory"], found["disk"])


def test_a_round_that_streams_is_gone_through_once(tmp_path: Path) -> None:
    gist = GIST(OURS["gcn"], (8, 4), 4, store=store("disk", tmp_path))
    round_ = gist.begin_round()
    assert len({id(sub) for sub in round_}) == 1  # one module for all
    with refused("round 1", "sub-GCN 0", "once"):
        list(round_)


def test_a_round_that_does_not_end_leaves_theta_as_it_was(tmp_path: Path) -> None:
    gist = make(store=store("disk", tmp_path))
    before = values(gist.theta)
    for round_ in gist.rounds(1):
        for sub in round_:
            with torch.no_grad():
                next(sub.parameters()).fill_(3.0)
        break
    assert equal(values(gist.theta), before)


def test_a_sub_gcn_that_diverges_leaves_theta_as_it_was(tmp_path: Path) -> None:
    gist = make(store=store("disk", tmp_path))
    before = values(gist.theta)
    with refused("diverged in round 1", "sub-GCN 1", error=DivergedError):
        for round_ in gist.rounds(1):
            for i, sub in enumerate(round_):
                with torch.no_grad():
                    next(sub.parameters()).fill_(float("nan") if i == 1 else 3.0)
    assert equal(values(gist.theta), before)
    other = make(store=store("disk", tmp_path))
    other.resume()
    assert equal(values(other.theta), before)


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (("tape",), ["store is 'tape'", "memory, host, disk, sharded"]),
        (("mapped",), ["store is disk", "no folder"]),
        (("memory", Path("x")), ["store is memory", "disk"]),
        (("host", None, "bf16"), ["bf16", "host"]),
        (("disk", Path("x"), "float16"), ["float16", "float32, bf16"]),
    ],
)
def test_a_wrong_store_is_refused(arguments: tuple[Any, ...], parts: list[str]) -> None:
    with refused(*parts):
        Store(*arguments)


def test_a_fit_from_scratch_begins_anew(tmp_path: Path) -> None:
    plain, gist = make(), make(store=store("disk", tmp_path))
    expected = state(plain, fit(plain))
    fit(gist)
    assert state(gist, fit(gist)) == expected
