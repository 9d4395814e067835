"""What a run says of parameters that nothing has trained, where it ends before its last round."""

import logging

import pytest

from gistgnn import GIST, Callback
from gistgnn.fit.callbacks import Run
from tests.helpers.fitting import GRAPH, gcn
from tests.helpers.logs import logged


class Stop(Callback):
    def __init__(self, after: int) -> None:
        self.after = after

    def on_round_end(self, run: Run, loss: float) -> None:
        if run.round == self.after:
            run.stop()


@pytest.mark.parametrize(("after", "said"), [(2, True), (19, False), (20, False)])
def test_a_run_that_is_stopped_says_what_it_has_not_trained(after: int, said: bool) -> None:
    with logged(logging.WARNING) as notes:
        result = GIST(gcn(), (8, 8), 2).fit(
            GRAPH, "each", epochs=20, local_steps=1, progress=False, callbacks=[Stop(after)]
        )
    share = 100 * result.coverage.never_trained
    told = [note for note in notes if "have never been trained" in note]
    assert bool(told) == said
    if said:
        assert f"{share:.1f} %" in told[0]
        assert "2 of 20 rounds" in told[0]
