"""What a run says of itself in the log: its choices, and what would make it better."""

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from gistgnn.accounting.coverage import never_trained
from gistgnn.fit.callbacks import Run
from gistgnn.fit.prepare import Setup
from gistgnn.fit.result import Progress
from gistgnn.sampling import Sampler
from gistgnn.sampling.clusters import WHOLE_GRAPH
from gistgnn.schedule import Schedule
from gistgnn.settings import LONGEST_ROUND, ROUNDS_PER_SUB_GCN, SHORTEST_ROUND
from gistgnn.training.metric import Metric
from gistgnn.training.names import named_as
from gistgnn.utils.formats import duration, plural

log = logging.getLogger(__name__)

# A note says how many parameters stay untrained if they are more than this share.
MOST_UNTRAINED = 0.03
# A run was too short if the last 20 % of its rounds improved the score by more than 2 %.
LATE = 0.2
RISING = 0.02
# A run was too long if its best round lies in the first half, with 5 scores or more after it, and
# if these took 10 seconds or more: below that, to run it again saves nothing.
EARLY = 0.5
MANY_LATER = 5
WORTH_SAVING = 10.0


def log_choices(
    setup: Setup, schedule: Schedule, sampler: Sampler, evaluation: Mapping[str, Any]
) -> None:
    """Log what a run does, and why, where its settings may leave it open; `--verbose` shows it.

    Args:
        setup: of the run.
        schedule: its rounds.
        sampler: its batches.
        evaluation: how it is scored, as result.json holds it.
    """
    training = setup.training
    nodes = plural(setup.graph.num_nodes, "node")
    if setup.sampling is None:
        batches = f"the whole graph of {nodes} in every step; by default of up to {WHOLE_GRAPH:,}"
    else:
        batches = f"by {setup.sampling.name}"
        facts = {} if sampler.facts is None else msgspec.structs.asdict(sampler.facts)
        measured = {name: value for name, value in facts.items() if value is not None}
        for name, value in measured.items():
            batches += f", {name.replace('_', ' ')} {value:.4g}"
    log.debug("batches: %s", batches)
    if setup.scaling is None:
        log.debug("features: as they are, as words are by default: few in a row, none negative")
    else:
        log.debug("features: scaled to mean 0 and deviation 1 over the training nodes")
    steps = plural(schedule.local_steps, "step")
    limits = f"{SHORTEST_ROUND} to {LONGEST_ROUND} by default, with {ROUNDS_PER_SUB_GCN} m rounds"
    log.debug("rounds: %s of %s (ζ: %s)", f"{schedule.rounds:,}", steps, limits)
    log.debug(
        "training: %g epochs of %s, m = %d; learning rate %g, %s; loss %s",
        training.all_epochs, plural(sampler.steps_per_epoch, "step"), setup.gist.workers,
        training.first_lr, named_as(setup.settings.schedule),
        "cross-entropy" if training.loss is None else getattr(training.loss, "name", "own"),
    )  # fmt: skip
    log.debug(
        "scores: %s after every %s, by default in up to a tenth of the time; evaluation %s",
        setup.metric.name, plural(schedule.evaluate_every, "round").removeprefix("1 "),
        evaluation.get("method"),
    )  # fmt: skip


def note_untrained_parameters(run: Run) -> None:
    """Log before a run how many parameters its rounds will leave untrained, if they are many."""
    gist = run.gist
    rounds = run.schedule.rounds
    if not gist.ranks.leads or run.progress.rounds >= rounds:
        return
    share = never_trained(gist.full_spec, gist.partition, rounds)
    if share > MOST_UNTRAINED:
        log.warning(
            "%.1f %% of the parameters will never be trained: they lie between blocks in %s; "
            "raise --epochs or lower --local-steps",
            100 * share,
            "the only round" if rounds == 1 else f"all {rounds:,} rounds",
        )


def note_outcome(run: Run, setup: Setup) -> None:
    """Log after a run what would have made it better: more or fewer rounds, or class weights."""
    gist = run.gist
    progress = run.progress
    if not gist.ranks.leads:
        return
    if progress.stopped_early:
        share = never_trained(gist.full_spec, gist.partition, progress.rounds)
        if share > MOST_UNTRAINED:
            log.warning(
                "%.1f %% of the parameters have never been trained: the run has ended after %s of "
                "%s rounds, by %s",
                100 * share, f"{progress.rounds:,}", f"{run.schedule.rounds:,}",
                progress.stopped_by,
            )  # fmt: skip
    elif not run.interrupted:
        scored = [entry for entry in progress.history if entry["validation"] is not None]
        _note_if_too_short(progress, scored, setup.metric)
        _note_if_too_long(progress, scored)
    note_missed_classes(progress, setup.graph.class_names)


def _note_if_too_short(
    progress: Progress, scored: Sequence[Mapping[str, Any]], metric: Metric
) -> None:
    """Log it if the score was still getting better when a run came to its end.

    Args:
        progress: of the run.
        scored: the entries of its history that have a score.
        metric: of the score.
    """
    before = [
        entry["validation"] for entry in scored if entry["round"] <= (1 - LATE) * progress.rounds
    ]
    if not before or progress.best_round != progress.rounds:
        return
    best = max(before) if metric.higher_is_better else min(before)
    last = scored[-1]["validation"]
    if abs(last - best) > RISING * abs(last):
        log.info(
            "the score was still getting better: %s of the validation nodes was %.4g before "
            "the last fifth of the run, and is %.4g: train longer, by more epochs or a budget",
            metric.name, best, last,
        )  # fmt: skip


def _note_if_too_long(progress: Progress, scored: Sequence[Mapping[str, Any]]) -> None:
    """Log it if the best round of a run that has come to its end was an early one.

    Args:
        progress: of the run.
        scored: the entries of its history that have a score.
    """
    later = [entry for entry in scored if entry["round"] > progress.best_round]
    if len(later) < MANY_LATER or progress.best_round > EARLY * progress.rounds:
        return
    best = scored[-len(later) - 1]
    seconds_after = progress.train_seconds - best["train_seconds"]
    if seconds_after >= WORTH_SAVING:
        log.info(
            "the best round was %s of %s, and those after it took %s: train for fewer epochs, "
            "or end by patience=%d (--patience %d)",
            f"{progress.best_round:,}", f"{progress.rounds:,}",
            duration(seconds_after), MANY_LATER, MANY_LATER,
        )  # fmt: skip


def note_missed_classes(progress: Progress, class_names: Sequence[str]) -> None:
    """Log which classes the best model of a run never predicts, if there are some."""
    classes = progress.scores.classes
    nodes = [scores["nodes"] for scores in classes]
    missed = [
        number for number, scores in enumerate(classes) if scores["nodes"] and not scores["f1"]
    ]
    if not missed:
        return
    share = 100 * sum(nodes[number] for number in missed) / sum(nodes)
    which = ", ".join(class_names[number] if class_names else str(number) for number in missed[:5])
    which = f"class{'es' * (len(missed) > 1)} {which}" + ", ..." * (len(missed) > 5)
    log.warning(
        "no node of %s is found (%.1f %% of the nodes scored): train longer, or give class_weights="
        '"balanced" and metric="f1_macro" (--class-weights balanced --metric f1_macro)',
        which,
        share,
    )
