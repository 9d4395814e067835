"""The numbers of every round, in the result and after a run that was interrupted."""

from pathlib import Path
from typing import Any

import pytest

from gistgnn import GIST, Saving
from gistgnn.baselines import Parts
from gistgnn.fit.result import MOST_ROUNDS, Progress
from gistgnn.nn import GCN
from gistgnn.runners.in_turn import InTurn
from gistgnn.sampling import ClusterSampling
from tests.helpers.models import tiny_graph

GRAPH = tiny_graph(60)
RUN: dict[str, Any] = {
    "sampler": ClusterSampling(6, 2, method="random"),
    "epochs": 8,
    "local_steps": 2,
    "evaluate_every": 5,
    "progress": False,
}


def trainer(kind: type[GIST] = GIST, m: int = 2) -> GIST:
    return kind(lambda widths: GCN(GRAPH.num_features, widths, GRAPH.num_classes), (8, 8), m)


class Measuring(InTurn):
    """Returns one more number of each sub-GCN, and another one of the first two alone."""

    def __call__(self, *arguments: Any) -> Any:
        numbers = super().__call__(*arguments)
        for i, values in numbers.items():
            values["square"] = float((i + 1) ** 2)
            if i < 2:
                values["of two"] = i + 2.0
        return numbers


class Losses:
    """A callback that notes the loss of every round."""

    def __init__(self) -> None:
        self.seen: list[float] = []

    def on_round_end(self, run: Any, loss: float) -> None:
        self.seen.append(loss)


def test_every_round_has_its_loss_and_the_history_those_of_its_evaluations() -> None:
    losses = Losses()
    result = trainer().fit(GRAPH, callbacks=[losses], **RUN)
    rounds = result.per_round
    assert [entry["round"] for entry in rounds] == list(range(1, result.progress.rounds + 1))
    assert [entry["loss"] for entry in rounds] == losses.seen
    assert result.as_dict()["per_round"] == rounds
    by_round = {entry["round"]: entry for entry in rounds}
    assert 1 < len(result.history) < len(rounds)
    for entry in result.history:
        for name in ("loss", "epoch", "train_seconds"):
            assert by_round[entry["round"]][name] == entry[name]


def test_a_number_that_a_runner_measures_comes_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gistgnn.runners.in_turn.InTurn", Measuring)
    result = trainer(m=3).fit(GRAPH, runner="in-turn", **RUN)
    for entry in result.per_round:
        assert entry["square"] == pytest.approx((1 + 4 + 9) / 3)
        assert entry["of two"] == pytest.approx((2 + 3) / 2)


def test_a_resumed_run_has_the_numbers_of_all_its_rounds(tmp_path: Path) -> None:
    class Stop:
        def on_round_end(self, run: Any, loss: float) -> None:
            if run.progress.rounds == 3:
                run.interrupt()

    unbroken = trainer().fit(GRAPH, **RUN)
    trainer().fit(GRAPH, callbacks=[Stop()], saving=Saving(tmp_path), **RUN)
    resumed = trainer().fit(GRAPH, saving=Saving(tmp_path, resume=True), **RUN)
    names = ("round", "epoch", "loss")
    for entry, expected in zip(resumed.per_round, unbroken.per_round, strict=True):
        assert {name: entry[name] for name in names} == {name: expected[name] for name in names}


def test_parts_have_the_mean_of_theirs() -> None:
    result = trainer(Parts).fit(GRAPH, **RUN)
    assert [entry["round"] for entry in result.per_round] == list(
        range(1, result.progress.rounds + 1)
    )
    assert result.per_round[-1]["epoch"] == pytest.approx(RUN["epochs"])


@pytest.mark.parametrize("rounds", [1, MOST_ROUNDS, MOST_ROUNDS + 1, 7 * MOST_ROUNDS])
def test_of_very_many_rounds_an_even_selection_is_held(rounds: int) -> None:
    progress = Progress()
    for number in range(1, rounds + 1):
        progress.add_round({"round": number, "loss": 1 / number})
    numbers = [entry["round"] for entry in progress.per_round]
    assert min(rounds, MOST_ROUNDS // 2) <= len(numbers) <= MOST_ROUNDS
    stride = numbers[0]
    assert numbers == list(range(int(stride), rounds + 1, int(stride)))
    assert [entry["loss"] for entry in progress.per_round] == [1 / number for number in numbers]
