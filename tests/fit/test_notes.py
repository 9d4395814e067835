"""What a run says of parameters that nothing has trained, where it ends before its last round."""

import logging

import pytest

from gistgnn import GIST, Callback
from gistgnn.fit.callbacks import Run
from gistgnn.fit.fit import Fit
from gistgnn.training.metric import Metric
from tests.helpers.fitting import GRAPH, gcn
from tests.helpers.logs import logged


class Stop(Callback):
    def __init__(self, after: int) -> None:
        self.after = after

    def on_round_end(self, run: Run, loss: float) -> None:
        if run.round == self.after:
            run.stop()


@pytest.mark.parametrize(("after", "noted"), [(2, True), (19, False), (20, False)])
def test_a_run_that_is_stopped_says_what_it_has_not_trained(after: int, noted: bool) -> None:
    with logged(logging.WARNING) as notes:
        result = GIST(gcn(), (8, 8), 2).fit(
            GRAPH, "each", epochs=20, local_steps=1, progress=False, callbacks=[Stop(after)]
        )
    share = 100 * result.coverage.never_trained
    told = [note for note in notes if "have never been trained" in note]
    assert bool(told) == noted
    if noted:
        assert f"{share:.1f} %" in told[0]
        assert "2 of 20 rounds" in told[0]


class Rounds(Callback):
    """Counts the rounds that are over, and interrupts a run after one of them."""

    over = 0

    def __init__(self, interrupt_after: int | None = None) -> None:
        self.interrupt_after = interrupt_after

    def on_round_end(self, run: Run, loss: float) -> None:
        self.over = run.round
        if self.over == self.interrupt_after:
            run.interrupt()


@pytest.mark.parametrize(
    ("best_round", "patience", "round_seconds", "interrupt_after", "noted"),
    [
        (2, None, 2.0, None, True),
        (10, None, 2.0, None, True),
        (11, None, 2.0, None, False),
        (20, None, 2.0, None, False),
        (2, 5, 2.0, None, False),
        # Ending such a run earlier saves nothing.
        (2, None, 0.01, None, False),
        (2, None, 0.6, None, True),
        (10, None, 0.6, None, False),
        # The user has ended it.
        (2, None, 2.0, 19, False),
    ],
)
def test_a_run_whose_best_round_is_long_over_says_so(
    monkeypatch: pytest.MonkeyPatch,
    best_round: int,
    patience: int | None,
    round_seconds: float,
    interrupt_after: int | None,
    noted: bool,
) -> None:
    """The metric is best after one round, and every round moves the clock on by the same time."""
    rounds = Rounds(interrupt_after)
    record = Fit.after_round

    def after_round(run: Fit, loss: float) -> None:
        run.progress.train_seconds = run.progress.rounds * round_seconds
        record(run, loss)

    monkeypatch.setattr(Fit, "after_round", after_round)
    with logged() as notes:
        result = GIST(gcn(), (8, 8), 1).fit(
            GRAPH,
            epochs=20,
            local_steps=1,
            evaluate_every=1,
            patience=patience,
            progress=False,
            metric=Metric(
                lambda logits, targets: float(rounds.over == best_round - 1), "of a round", True
            ),
            callbacks=[rounds],
        )
    assert result.progress.best_round == best_round
    told = [note for note in notes if "the best round was" in note]
    assert bool(told) == noted
    if noted:
        assert f"{best_round} of 20" in told[0]
        assert "--patience" in told[0]
