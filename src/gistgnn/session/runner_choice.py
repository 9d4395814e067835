"""Choose the runner of a run with `runner="auto"`, before its first round."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gistgnn.runners.auto import Auto, Choice, TrialRound, choose_runner
from gistgnn.runners.runner import Runner
from gistgnn.sampling import Sampler
from gistgnn.schedule import RoundPlan, Schedule
from gistgnn.session.progress import Progress

if TYPE_CHECKING:
    from gistgnn.session.trainer import Trainer

log = logging.getLogger(__name__)


def settle_runner(trainer: Trainer, runner: Runner, sampler: Sampler, schedule: Schedule, progress: Progress) -> None:
    """Choose for the runner "auto", on rank 0 for all ranks; a resumed run has what it has chosen before.

    Args:
        trainer: the model.
        runner: the run's; nothing happens if it is another one.
        sampler: the batches.
        schedule: the rounds.
        progress: where the choice is kept.
    """
    if not isinstance(runner, Auto):
        progress.runner = None
        return

    def choose() -> list[dict[str, Any]]:
        choices = choose_runners(trainer, sampler, schedule)
        for choice in choices:
            log.info("%s", choice)
        return [choice.as_dict() for choice in choices]

    if progress.runner is None:
        progress.runner = trainer.ranks.lead(choose)
    runner.use(progress.runner)


def choose_runners(trainer: Trainer, sampler: Sampler, schedule: Schedule) -> list[Choice]:
    """Choose a runner for every m of a run for which there is a choice.

    There is none, and sub-GCNs train in turn, where a process trains one of them; where they have independent batches
    or see different input features, and cannot be fused; and where Θ is kept in a way that holds one sub-GCN in memory
    at a time.
    """
    if trainer.theta.streams or trainer.input_axis is not None or sampler.for_sub_gcn(0) is not sampler:
        return []
    plans: dict[int, RoundPlan] = {}
    for rounds in schedule.phases:
        plan = schedule.plan(rounds.start)
        if not plan.copies:
            plans.setdefault(len(trainer._partition_of(plan).blocks(plan.draw)), plan)
    choices = []
    for m, plan in plans.items():
        members = range(0, m, trainer.ranks.count)
        if len(members) > 1:
            choices.append(choose_runner(_trial(trainer, plan, members), sampler, m, plan, trainer.seed))
    return choices


def _trial(trainer: Trainer, plan: RoundPlan, members: range) -> TrialRound:
    """Return new sub-GCNs of the widths of a round's."""
    spec, blocks = trainer._full_spec, trainer._partition_of(plan).blocks(plan.draw)
    widths = [spec.layout.widths([len(block) for block in blocks[i]]) for i in members]
    return TrialRound(members, [replace(spec, widths=each).from_seed().to(trainer.device) for each in widths])
