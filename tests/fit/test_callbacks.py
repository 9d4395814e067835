"""`fit` with callbacks, and with a time limit."""

import time
from pathlib import Path
from typing import Any

from torch import Tensor

from gistgnn import GIST, Callback, Result, Saving
from gistgnn.evaluation import evaluate
from gistgnn.layout.axes import named_tensors
from tests.helpers.fitting import GRAPH, fit, gcn, same, theta


def run(**options: Any) -> tuple[dict[str, Tensor], Result]:
    own = GIST(gcn(), (8, 8), 2)
    result = fit(own, **options)
    return theta(own), result


class Recorder(Callback):
    def __init__(self, stop_after: int = 99) -> None:
        self.events, self.stop_after = list[Any](), stop_after

    def on_round_end(self, run: Any, loss: float) -> None:
        self.events.append(("round", run.round, run.rounds))
        assert loss > 0
        if run.round == self.stop_after:
            run.stop()

    def on_evaluation(self, run: Any, entry: dict[str, Any]) -> None:
        assert run.history[-1] == entry
        assert run.best_score == max(e["validation"] for e in run.history)
        self.events.append(("evaluation", entry["round"]))

    def on_fit_end(self, run: Any, result: Result) -> None:
        self.events.append(("end", result.progress.rounds))


class OnlyRounds:
    seen = 0

    def on_round_end(self, run: Any, loss: float) -> None:
        self.seen = run.round
        assert same({n: t.clone() for n, t in named_tensors(run.model()).items()}, theta(run.gist))


def test_callbacks_are_told_in_order_and_may_stop() -> None:
    recorder, other = Recorder(), OnlyRounds()
    run(callbacks=[recorder, other], evaluate_every=2)  # three rounds
    assert recorder.events == [
        ("round", 1, 3), ("evaluation", 2), ("round", 2, 3), ("evaluation", 3), ("round", 3, 3), ("end", 3),
    ]  # fmt: skip
    assert other.seen == 3
    stopping = Recorder(stop_after=1)
    _, result = run(callbacks=[stopping], evaluate_every=3)
    assert stopping.events[-1] == ("end", 1)
    assert (result.progress.stopped_early, result.progress.stopped_by) == (True, "callback")
    assert not result.interrupted
    assert result.test == evaluate(result.model, GRAPH)["test"]  # the last round is evaluated, if none was before


def test_a_run_ends_in_time_with_its_best_model_and_may_go_on(tmp_path: Path) -> None:
    begun = time.perf_counter()
    _, result = run(max_seconds=0.6, epochs=10**9, local_steps=1, evaluate_every=10**9)
    assert time.perf_counter() - begun < 60  # a busy machine may be late; all rounds would take days
    assert result.progress.stopped_by == "max_seconds"
    assert len(result.history) == 1
    assert result.test == evaluate(result.model, GRAPH)["test"]
    saving = Saving(tmp_path / "checkpoints", resume=True)
    assert run(saving=saving, max_seconds=1e-6)[1].progress.rounds == 1
    resumed, unbroken = run(saving=saving, max_seconds=1000), run()
    assert (resumed[1].progress.rounds, resumed[1].progress.stopped_by) == (3, None)
    assert same(resumed[0], unbroken[0])
