"""Recorded steps on a real GPU; tests/runners/test_recorded.py has the same on a pretended one."""

from typing import Any

import pytest
import torch

from gistgnn import GIST
from gistgnn.runners import recorded
from gistgnn.runners.fused import Fused
from gistgnn.schedule import StepRange
from gistgnn.settings import Training
from tests.runners.test_recorded import SGD, model, sampler_of, trained

from .runs import close

pytestmark = pytest.mark.cuda
NAMES = ["graphsage", "gcn", "gat", "gatv2", "gin"]


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return a list that gets every recording."""
    recordings: list[Any] = []

    class Seen(recorded.Recording):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            recordings.append(self)

    monkeypatch.setattr(recorded, "Recording", Seen)
    return recordings


@pytest.mark.parametrize("m", [1, 3])
@pytest.mark.parametrize("kind", ["full", "batches", "precomputed"])
@pytest.mark.parametrize("name", NAMES)
def test_recorded_steps_train_the_theta_of_the_cpu(
    name: str, kind: str, m: int, made: list[Any]
) -> None:
    expected = trained(name, kind, "cpu", m)
    actual = trained(name, kind, "cuda", m)
    assert made
    close(actual, expected)


@pytest.mark.parametrize(
    "options", [{"clip_norm": 0.1}, {"optimizer_state": "reset"}, {"schedule": "step"}], ids=str
)
def test_settings_hold_in_recorded_steps(options: dict[str, Any], made: list[Any]) -> None:
    close(
        trained("graphsage", "batches", "cuda", 2, **options),
        trained("graphsage", "batches", "cpu", 2, **options),
    )
    assert made


def test_dropout_differs_from_step_to_step_and_follows_from_the_seed(made: list[Any]) -> None:
    """Also in steps that are replayed, where the GPU's generator goes on."""

    def losses(seed: int) -> list[float]:
        gist = GIST(
            lambda widths: model("graphsage", widths, dropout=0.5),
            (64, 64),
            1,
            device="cuda",
            width_scaling="none",
        )
        run = Fused()
        training = Training(9, **{**SGD, "lr": 1e-9, "momentum": 0.0})
        values = []
        for number in range(12):
            values += run(
                gist.begin_round(),
                sampler_of("full", "cuda"),
                training,
                StepRange(number, 1, 99),
                seed,
            ).values()
        return values

    first = losses(0)
    again = losses(0)
    other = losses(1)
    assert first == pytest.approx(again, rel=1e-5)
    assert first != pytest.approx(other, rel=1e-3)
    assert len({round(loss, 4) for loss in first}) > 6


@pytest.mark.parametrize("kind", ["full", "batches", "precomputed"])
def test_a_resumed_run_with_dropout_is_the_unbroken_one(kind: str, made: list[Any]) -> None:
    unbroken = trained("graphsage", kind, "cuda", 2, dropout=0.5)
    assert made
    close(trained("graphsage", kind, "cuda", 2, dropout=0.5, resumed=True), unbroken)


def test_the_gpu_s_generator_is_as_it_was(made: list[Any]) -> None:
    torch.cuda.manual_seed(7)
    before = torch.cuda.get_rng_state()
    trained("graphsage", "batches", "cuda", 2)
    assert made
    assert torch.equal(torch.cuda.get_rng_state(), before)
