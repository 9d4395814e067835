"""The runner "auto": what it chooses, that it changes nothing else, and that a run keeps to its choice."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from gistgnn import GIST, Result, Saving
from gistgnn.phases import Phase
from gistgnn.runners import auto
from gistgnn.runners.auto import Auto
from gistgnn.sampling import ClusterSampling
from gistgnn.session import runner_choice
from gistgnn.session.progress import Progress
from gistgnn.session.runner_choice import settle_runner
from gistgnn.theta.store import Store
from tests.helpers.fitting import fit, gcn, same, theta
from tests.helpers.logs import logged
from tests.helpers.models import C, F
from tests.helpers.resuming import after, make, state
from tests.helpers.resuming import fit as six_rounds
from tests.helpers.runners import choosing

DROPOUT = gcn(0.4)


def run(m: int = 3, **options: Any) -> tuple[GIST, Result]:
    gist = GIST(DROPOUT, (9, 9), m)
    return gist, fit(gist, **options)


@pytest.mark.parametrize("faster", ["in-turn", "fused"])
def test_it_trains_as_the_faster_runner_does(monkeypatch: pytest.MonkeyPatch, faster: str) -> None:
    choosing(monkeypatch, faster)
    with logged() as notes:
        gist, result = run(runner="auto", optimizer_state="carry")
    named, other = run(runner=faster, optimizer_state="carry")
    assert same(theta(gist), theta(named))
    how, in_turn, fused = ("fused", 2.0, 1.0) if faster == "fused" else ("in turn", 1.0, 2.0)
    reason = f"a step of all of them takes {in_turn:g} s in turn and {fused:g} s fused"
    seconds = {"in-turn": in_turn, "fused": fused}
    assert result.as_dict()["runner"] == [{"sub_gcns": 3, "used": faster, "reason": reason, "seconds": seconds}]
    assert notes[0] == f"m = 3: the sub-GCNs train {how}: {reason}"
    assert other.runner is None
    assert result.config["runner"] == "auto"


def test_it_is_the_default_and_measures(monkeypatch: pytest.MonkeyPatch) -> None:
    trials = choosing(monkeypatch)
    _, result = run()
    assert trials == [3]
    assert result.runner
    [choice] = result.runner
    assert choice["used"] == min(choice["seconds"], key=choice["seconds"].get)
    assert all(0 < seconds < 60 for seconds in choice["seconds"].values())


def test_the_trial_moves_no_random_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    choosing(monkeypatch)
    before = torch.get_rng_state()
    run()
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(
    ("m", "options", "built"),
    [
        (1, {}, {}),
        (3, {"sampler": ClusterSampling(6, 2, "random", batches="independent")}, {}),
        (3, {"phases": [Phase(3, 2, copies=True)], "epochs": None, "cross_weights": "zero"}, {}),
        (3, {}, {"store": "disk"}),
    ],
    ids=["m = 1", "independent", "copies", "streams"],
)
def test_where_there_is_no_choice_nothing_is_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, m: int, options: dict[str, Any], built: dict[str, Any]
) -> None:
    choosing(monkeypatch)
    monkeypatch.setattr(runner_choice, "choose_runner", lambda *_: pytest.fail("a trial"))
    store = {"store": Store("disk", tmp_path / "theta")} if built else {}
    gist = GIST(DROPOUT, (9, 9), m, **store)
    assert fit(gist, **options).runner == []


def test_every_m_of_a_run_has_its_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    trials = choosing(monkeypatch, "fused")
    phases = [Phase(4, 4), Phase(2, 4), Phase(4, 4), Phase(1, 1)]
    _, result = run(4, phases=phases, epochs=None)
    assert trials == [4, 2]
    assert [choice["sub_gcns"] for choice in result.runner or []] == [4, 2]


def test_a_resumed_run_keeps_to_its_choice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unbroken = make()
    expected = state(unbroken, six_rounds(unbroken, runner="fused"))
    saving = Saving(tmp_path / "checkpoints", resume=True)
    choosing(monkeypatch, "fused")
    six_rounds(make(), runner="auto", saving=saving, stop=after(3))
    trials = choosing(monkeypatch, "in-turn")
    resumed = make()
    assert state(resumed, six_rounds(resumed, runner="auto", saving=saving)) == expected
    assert trials == []


def test_models_that_cannot_be_fused_train_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    class InPlace(nn.Module):
        """A model that vmap cannot run."""

        def __init__(self, widths: Any) -> None:
            super().__init__()
            self.first, self.last = nn.Linear(F, widths[0]), nn.Linear(widths[0], C)

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            hidden = self.first(x)
            return self.last(hidden) + 0.0 * float(hidden.detach().sum())

    trials = choosing(monkeypatch)
    result = fit(GIST(InPlace, (8,), 2))
    assert result.runner
    assert result.runner[0]["used"] == "in-turn"
    assert "vmap cannot run" in result.runner[0]["reason"]
    assert trials == []


def test_fused_is_not_tried_where_memory_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    trials = choosing(monkeypatch)
    monkeypatch.setattr(auto, "why_not_fused", lambda *_: pytest.fail("it is tried"))
    monkeypatch.setattr(auto, "available_bytes", lambda _: 1000)
    _, result = run()
    assert result.runner
    assert result.runner[0]["used"] == "in-turn"
    assert "memory" in result.runner[0]["reason"]
    assert trials == []


def test_rank_0_chooses_for_all() -> None:
    chosen = [{"sub_gcns": 2, "used": "fused", "reason": "", "seconds": {}}]

    class Ranks:
        """Ranks of which this is not the first."""

        def lead(self, work: Any) -> Any:
            return chosen

    class Trainer:
        ranks = Ranks()

    runner, progress, nothing = Auto(), Progress(), Any
    settle_runner(Trainer(), runner, nothing, nothing, progress)  # type: ignore[arg-type]
    assert progress.runner == chosen
    assert runner.fuses
