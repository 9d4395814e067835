"""Parts: m narrow models that train by themselves, and stand side by side at the end."""

import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from msgspec import structs
from torch import Tensor

from gistgnn.accounting.costs import memory_of, require_theta_fits, slice_bytes, theta_bytes
from gistgnn.accounting.coverage import coverage_of
from gistgnn.errors import DivergedError, InputError
from gistgnn.fit.identity import facts_of, fingerprint_of, require_same_training
from gistgnn.fit.narrow import NarrowRuns, SavedState, score_wide_model, trained_values
from gistgnn.fit.notes import note_missed_classes
from gistgnn.fit.prepare import Setup
from gistgnn.fit.result import Progress, Result
from gistgnn.gist import GIST, run_to_end
from gistgnn.layout.axes import Build
from gistgnn.settings import Training
from gistgnn.storage.record import Sent
from gistgnn.utils.process_memory import peak_memory_bytes

# This share of the time of a limited run is left for joining the parts and scoring them.
JOINING = 0.05


class Parts(GIST):
    """Trains m narrow models by themselves, and puts them side by side into one wide model.

    Each has batches of its own.

    Nothing is exchanged before the end. Part i trains on rank i mod W, and each is kept at its own
    best validation score. Weights between the parts are zero, so the wide model's output is the
    mean of theirs (see `gistgnn.join`). With m workers this is the best that we know. Split
    training gives every part E/m epochs.

    Callbacks are told of every part's run, one after another. `max_seconds` is shared by the parts
    of a rank.

    Args:
        build, widths: see `GIST`.
        sub_gcns: m.
        options: the other arguments of `GIST`, but for `input_axis` and `whole`: a part is narrow
            in all hidden layers.
    """

    method = "parts"
    merges_sub_gcns = False

    def __init__(
        self,
        build: Build,
        widths: int | Sequence[int],
        sub_gcns: int,
        **options: Any,
    ) -> None:
        if options.get("input_axis") is not None:
            raise InputError(
                "the input features are partitioned, but every part sees all: leave their axis out"
            )
        super().__init__(build, widths, sub_gcns, **options)
        if self.partition.whole and sub_gcns > 1:
            raise InputError(
                f"axis {min(self.partition.whole)} is whole, but parts are narrow in all axes: "
                "leave it out"
            )

    def _train(self, setup: Setup) -> Result:
        begun = time.perf_counter()
        self.scaling = setup.scaling
        setup.require_step_fits()
        require_theta_fits(self.full_spec, self.store, self.ranks.count)
        fingerprint = fingerprint_of(setup)
        if self.ranks.count > 1:
            require_same_training(setup, fingerprint)
        with SavedState(setup, fingerprint) as state:
            runs = NarrowRuns(setup, run_to_end)
            if state.saved is None:
                state.save(0, {}, {})
            results: dict[int, Result] = {}
            try:
                self.ranks.together(lambda: self._train_parts(runs, begun, results))
            except DivergedError as error:
                error.result = self._join_results(runs, results, fingerprint, is_complete=False)
                error.result.diverged = str(error)
                raise
        interrupted = self.ranks.any(any(result.interrupted for result in results.values()))
        joined = self._join_results(runs, results, fingerprint, is_complete=not interrupted)
        if self.ranks.leads:
            note_missed_classes(joined.progress, setup.graph.class_names)
        return structs.replace(joined, interrupted=interrupted)

    def _train_parts(self, runs: NarrowRuns, begun: float, results: dict[int, Result]) -> None:
        """Train the parts of this rank, and add their results.

        The result of a part that was interrupted or has diverged is added, too.
        """
        setup = runs.setup
        training = self._make_part_settings(setup.settings)
        own_parts = range(self.ranks.rank, self.sub_gcns, self.ranks.count)
        for number, part in enumerate(own_parts):
            seconds = None
            if setup.arguments.max_seconds is not None:
                passed = time.perf_counter() - begun
                left = (1 - JOINING) * setup.arguments.max_seconds - passed
                seconds = max(left, 1e-3) / (len(own_parts) - number)
            widths = self.layout.widths(map(len, self.blocks(0)[part]))
            try:
                part_runs = runs.of_part(part)
                results[part] = part_runs.train(
                    part_runs.model(widths),
                    training,
                    title=f"part {part + 1} of {self.sub_gcns}",
                    folder=f"part-{part}",
                    max_seconds=seconds,
                )
            except DivergedError as error:
                results[part] = error.result
                raise
            if results[part].interrupted:
                return

    def _make_part_settings(self, training: Training) -> Training:
        """Return the settings of a part, which takes as many steps as a sub-GCN would."""
        epochs = training.all_epochs
        if training.training == "split":
            epochs = epochs / self.sub_gcns
        return replace(training, epochs=epochs, training="split")

    def _join_results(
        self,
        runs: NarrowRuns,
        results: Mapping[int, Result],
        fingerprint: dict[str, dict[str, Any]],
        *,
        is_complete: bool,
    ) -> Result:
        """Return the result of the whole run: its model is made of the parts, and scored.

        `is_complete` says that all parts have been trained to their end.
        """
        setup = runs.setup
        first = next(iter(results.values()))
        progress = self._combine_progress(list(results.values()), setup.settings)
        values = {
            part: trained_values(result.model) for part, result in results.items() if result.history
        }
        shared: dict[str, Any] = {
            **facts_of(setup, fingerprint),
            "interrupted": False,
            "diverged": None,
            "coverage": coverage_of(self.full_spec, self.partition, 1),
        }
        if not is_complete and not self._fill_up(values):
            progress.history = []
            progress.per_round = []
            return structs.replace(first, model=self.model(), **progress.entries(), **shared)
        self._combine(values)
        scorer = score_wide_model(setup, runs.sampler, progress)
        sizes = self.partition.sizes(0)
        theta = theta_bytes(self.full_spec)
        slices = slice_bytes(self.full_spec, sizes)
        return structs.replace(
            first,
            **progress.entries(),
            model=self.model(),
            peak_memory_bytes=peak_memory_bytes(self.device),
            evaluation=scorer.description,
            inference_seconds=statistics.median(scorer.passes) if scorer.passes else None,
            traffic=Sent(workers=self.workers),
            memory={
                "process": first.memory["process"],
                **memory_of(self, setup.graph, setup.training, theta, slices),
            },
            partition=self.partition.describe(0),
            **shared,
        )

    def _fill_up(self, values: dict[int, dict[str, Tensor]]) -> bool:
        """Let parts that have not been trained yet be copies of those that have.

        Returns False if some rank cannot do so.
        """
        sizes = self.partition.sizes(0)
        missing = [
            i for i in range(self.ranks.rank, self.sub_gcns, self.ranks.count) if i not in values
        ]
        trained = list(values)
        for number, part in enumerate(missing):
            same = [other for other in trained if sizes[other] == sizes[part]]
            if same:
                values[part] = values[same[number % len(same)]]
        return not self.ranks.any(any(part not in values for part in missing))

    def _combine(self, values: Mapping[int, Mapping[str, Tensor]]) -> None:
        """Make Θ the wide model, of the trained values of this rank's parts."""
        self.join_parts(values.__getitem__, self.sub_gcns)

    def _combine_progress(self, results: Sequence[Result], training: Training) -> Progress:
        """Return how far the run has come: the means over the parts of all ranks.

        The time of training is that of the slowest rank. Other times are those of this rank.
        """
        parts = [result.progress for result in results]
        reports = self.ranks.gather(
            {
                "rounds": max(part.rounds for part in parts),
                "steps": sum(part.steps for part in parts),
                "train_seconds": sum(part.train_seconds for part in parts),
                "histories": [part.history for part in parts],
                "per_round": [part.per_round for part in parts],
                "stopped_by": [part.stopped_by for part in parts if part.stopped_early],
            }
        )
        progress = Progress()
        for part in parts:
            progress.add_seconds(part)
        progress.rounds = max(report["rounds"] for report in reports)
        progress.steps = sum(report["steps"] for report in reports)
        progress.train_seconds = max(report["train_seconds"] for report in reports)
        progress.history = _average_histories([report["histories"] for report in reports])
        progress.per_round = _average_rounds([report["per_round"] for report in reports])
        for entry in (*progress.history, *progress.per_round):
            entry["epoch"] *= training.all_epochs / self._make_part_settings(training).all_epochs
        stopped_by = [reason for report in reports for reason in report["stopped_by"]]
        progress.stopped_by = stopped_by[0] if stopped_by else None
        return progress


def _average_histories(
    by_rank: Sequence[Sequence[Sequence[dict[str, Any]]]],
) -> list[dict[str, Any]]:
    """Return the means of the parts' scores after every round in which all were scored.

    A last entry has the means of their ends.

    Args:
        by_rank: of each rank the histories of its parts; those without a score do not count.
    """
    scored = [[history for history in histories if history] for histories in by_rank]
    by_round = [
        [{entry["round"]: entry for entry in history} for history in histories]
        for histories in scored
    ]
    parts = [part for rank in by_round for part in rank]
    if not parts:
        return []
    common = set.intersection(*(set(part) for part in parts))
    rows = [[[part[number] for part in rank] for rank in by_round] for number in sorted(common)]
    ends = [[history[-1] for history in histories] for histories in scored]
    if ends not in rows:  # The parts have stopped after different rounds.
        rows.append(ends)
    return list(map(_average_evaluations, rows))


def _average_rounds(
    by_rank: Sequence[Sequence[Sequence[dict[str, float]]]],
) -> list[dict[str, float]]:
    """Return the means of the numbers of each round that all parts have numbers of.

    Args:
        by_rank: of each rank the numbers of the rounds of its parts.
    """
    by_round = [[{entry["round"]: entry for entry in part} for part in rank] for rank in by_rank]
    parts = [part for rank in by_round for part in rank]
    common = set.intersection(*(set(part) for part in parts)) if parts else set()
    means = []
    for number in sorted(common):
        entries = [part[number] for part in parts]
        # A round that was scored after a restart may lack numbers.
        names = [name for name in entries[0] if all(name in entry for entry in entries)]
        mean = {name: statistics.fmean(entry[name] for entry in entries) for name in names}
        mean["round"] = number
        mean["train_seconds"] = max(
            sum(part[number]["train_seconds"] for part in rank) for rank in by_round
        )
        means.append(mean)
    return means


def _average_evaluations(by_rank: Sequence[Sequence[Mapping[str, Any]]]) -> dict[str, Any]:
    """Return the mean of an entry of every part; its time is that of the slowest rank."""
    parts = [entry for rank in by_rank for entry in rank]
    mean = dict(max(parts, key=lambda entry: entry["round"]))
    for name in ("loss", "validation", "test"):
        values = [part[name] for part in parts]
        mean[name] = None if None in values else statistics.fmean(values)
    mean["train_seconds"] = max(sum(entry["train_seconds"] for entry in rank) for rank in by_rank)
    return mean
