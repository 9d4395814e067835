"""What a run says of itself: parameters that will not be trained, a run that is too short, classes that are missed."""

import logging

from gistgnn.accounting.coverage import coverage_of
from gistgnn.fit.callbacks import Callback, Run
from gistgnn.fit.prepare import Setup
from gistgnn.fit.result import Result

log = logging.getLogger(__name__)

MOST_UNTRAINED = 0.03  # share of the parameters
LATE, RISING = 0.2, 0.02  # the last part of a run, and the share of the score that it gains, of a run that is too short


class Notes(Callback):
    """Logs the notes of a run, on rank 0."""

    def __init__(self, setup: Setup) -> None:
        self._setup = setup

    def on_fit_begin(self, run: Run) -> None:
        gist, schedule = run.gist, run.schedule
        zero = schedule.plan(0).training.cross_weights == "zero"  # then nothing untrained is in the model
        if zero or not self._setup.variant.merges or not gist.ranks.leads or run.round >= run.rounds:
            return
        counts = coverage_of(gist._full_spec, gist.partition, schedule.draws(run.rounds))["counts"]
        if (share := counts.get("0", 0.0)) > MOST_UNTRAINED:
            rounds = "the only round" if run.rounds == 1 else f"all {run.rounds:,} rounds"
            said = f"{100 * share:.1f} % of the parameters will never be trained: they lie between blocks in {rounds}; "
            log.warning("%sraise --epochs, lower --local-steps, or end with a phase of one sub-GCN", said)

    def on_fit_end(self, run: Run, result: Result) -> None:
        if run.gist.ranks.leads:
            self._note_rising(run)
            self._note_missed(result)

    def _note_rising(self, run: Run) -> None:
        """Say so if the last score is the best by a clear margin over those before the last fifth of the run."""
        progress, metric = run.progress, self._setup.metric
        before = [each["validation"] for each in progress.history if each["round"] <= (1 - LATE) * progress.rounds]
        if not before or progress.stopped_early or progress.best_round != progress.rounds:
            return
        best, last = (max if metric.higher_is_better else min)(before), progress.history[-1]["validation"]
        if abs(last - best) > RISING * abs(last):
            log.info(
                "the score was still getting better: %s of the validation nodes was %.4g before the last fifth of the "
                "run, and is %.4g: train longer, by more epochs or a budget",
                metric.name, best, last,
            )  # fmt: skip

    def _note_missed(self, result: Result) -> None:
        """Say so if the model never finds some class."""
        graph, classes = self._setup.graph, result.progress.classes
        missed = [number for number, each in enumerate(classes) if each["nodes"] and not each["f1"]]
        if missed:
            nodes = sum(each["nodes"] for each in classes)
            share = 100 * sum(classes[number]["nodes"] for number in missed) / nodes
            which = ", ".join(graph.class_names[number] if graph.class_names else str(number) for number in missed[:5])
            which = f"class{'es' * (len(missed) > 1)} {which}" + ", ..." * (len(missed) > 5)
            log.warning(
                "no node of %s is found (%.1f %% of the nodes scored): train longer, or give class_weights="
                '"balanced" and metric="f1_macro" (--class-weights balanced --metric f1_macro)',
                which, share,
            )  # fmt: skip
