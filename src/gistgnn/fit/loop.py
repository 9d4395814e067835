"""`Loop`: validation, the best model, early stopping and checkpoints for a user's own loop."""

import logging
import math
import time
from collections.abc import Callable, Iterator
from typing import Any

from torch import nn

from gistgnn.errors import DivergedError, InputError, RankLostError
from gistgnn.evaluation.scores import evaluation_mode
from gistgnn.fit.identity import fingerprint_of_model, require_same_ranks
from gistgnn.fit.result import Progress
from gistgnn.fit.saving import Saver, Saving
from gistgnn.global_model import GlobalModel
from gistgnn.round import Round
from gistgnn.training.metric import Metric
from gistgnn.utils.checks import check_callable, check_count, check_flag, check_kind
from gistgnn.utils.interrupts import signals_wait

log = logging.getLogger(__name__)


class Loop:
    """Yields the rounds of a `GIST` for a training loop of your own, and watches the full model.

    Example:
        >>> loop = Loop(gist, 200, lambda model: accuracy(model, graph), patience=10)
        >>> for round in loop:
        ...     for sub in round:  # a plain nn.Module at the blocks' widths
        ...         train(sub)
        >>> model = loop.best_model()

    When the loop goes on to the next round, the sub-GCNs are written back, the full model is
    scored, the best one is kept, and the state is saved. A round that is left by `break` or by an
    error is dropped, and a later loop over the same `Loop` goes on with it. With ranks, rank 0
    scores.

    Args:
        gist: the model; the loop goes on from the parameters that it has.
        rounds: T, the rounds of the whole loop; a resumed loop counts its earlier rounds as well.
        validate: returns the score of the full model, which is in evaluation mode; gradients are
            off. Without it nothing is scored, and the best model is the last one.
        higher_is_better: False if `validate` returns an error.
        evaluate_every: rounds between two scores; the last round is scored as well.
        patience: the loop ends after this many scores without a better one. Defaults to no limit.
        saving: where and how often the state is saved, and whether to resume. Θ, its best and
            carried moments are saved; your own random numbers are not.

    Attributes:
        progress: how far the loop has come, as `Result.progress` says it of a run: `rounds` that
            are over; `history`, one entry for each score with round, score (None where it was not
            finite) and seconds since the loop began; `best_score`, None before the first one;
            `best_round`, counted from 1, or -1; `stopped_early`, whether `patience` has ended the
            loop.
    """

    def __init__(
        self,
        gist: GlobalModel,
        rounds: int,
        validate: Callable[[nn.Module], Any] | None = None,
        *,
        higher_is_better: bool = True,
        evaluate_every: int = 1,
        patience: int | None = None,
        saving: Saving | None = None,
    ) -> None:
        check_kind("gist", gist, GlobalModel, "a GIST")
        check_flag("higher_is_better", higher_is_better)
        check_kind("saving", saving, Saving, "a Saving", none=True)
        rounds = check_count("rounds", rounds)
        evaluate_every = check_count("evaluate_every", evaluate_every)
        if patience is not None:
            patience = check_count("patience", patience)
        if validate is None:
            for name, value, default in (
                ("patience", patience, None),
                ("evaluate_every", evaluate_every, 1),
                ("higher_is_better", higher_is_better, True),
            ):
                if value != default:
                    raise InputError(
                        f"{name} is {value}, but there is no validate: give a function of the model"
                    )
        else:
            check_callable("validate", validate, "a function of the model that returns its score")
        self._gist = gist
        self._rounds = rounds
        self._validate = validate
        self._metric = Metric(lambda score, _: score, "validate", higher_is_better)
        self._evaluate_every = evaluate_every
        self._patience = patience
        self.progress = Progress()
        if gist.ranks.count > 1:
            settings = {
                "rounds": rounds,
                "validate": "missing" if validate is None else "given",
                "higher_is_better": higher_is_better,
                "evaluate_every": evaluate_every,
                "patience": patience,
            }
            require_same_ranks(gist, saving, fingerprint_of_model(gist, saving, {}), settings)
        self._saver: Saver | None = None
        self._latest: Round | None = None  # The round that was yielded last, until it is over.
        self._is_iterated = False
        # The progress after the last round that is over: what a checkpoint after an error holds.
        self._recorded = self.progress.copy()
        # The loop resumes after an error, which came before the last round was scored.
        self._unscored = False
        resumes = saving is not None and gist.ranks.lead(lambda: saving.resumes)
        with gist.beginning_loop(resumes=resumes) as self._theta:
            if saving:
                self._resume(saving)

    def _resume(self, saving: Saving) -> None:
        """Begin to save, and resume from the checkpoint, if there is one."""
        gist = self._gist
        scale = {"regression": True} if gist.averages else {}  # Θ has another scale then.
        self._saver = Saver(
            gist.theta, gist.ranks, saving, fingerprint_of_model(gist, saving, scale)
        )
        try:
            state = self._saver.begin()
        except BaseException:
            self._saver.close()
            raise
        if state is not None:
            self.progress = state
            self._recorded = state.copy()
            # Θ on disk may be one round further than the checkpoint.
            gist.next_round = gist.theta.place.round
            self._unscored = gist.next_round > state.first_round + state.rounds
            state.rounds = gist.next_round - state.first_round
            self._stop_if_out_of_patience()  # The patience may be another one now.

    def best_model(self) -> nn.Module:
        """Return the full model of the best score, in evaluation mode.

        Without scores it is the model as it is now. Later rounds do not change it.
        """
        return self._theta.full_model(self._gist.trained_spec, best=self.progress.best_round > 0)

    def __len__(self) -> int:
        """Return T."""
        return self._rounds

    def __iter__(self) -> Iterator[Round]:
        """Yield the rounds that are left."""
        if self._is_iterated:
            raise InputError(
                "this Loop is iterated already, by a loop that has not ended: leave that one first"
            )
        self._is_iterated = True
        begun = time.perf_counter()
        try:
            self._find_round()
            if self._saver:
                self._saver.go_on(self._theta.place.round - self.progress.first_round)
            if self._unscored:
                self._end_round(self.progress.rounds, time.perf_counter() - begun)
            while self.progress.rounds < self._rounds and not self.progress.stopped_early:
                if self._latest is None:
                    self._latest = self._gist.begin_round()
                    yield self._latest
                self._latest.aggregate()
                self._end_round(
                    self._latest.number + 1 - self.progress.first_round, time.perf_counter() - begun
                )
                self._latest = None
        # The caller leaves the loop by `break`, which is a GeneratorExit here.
        except (Exception, KeyboardInterrupt, GeneratorExit) as error:
            self._save_after(error)
            raise
        finally:
            self._is_iterated = False
            if self._saver:
                self._saver.close()

    def _find_round(self) -> None:
        """Go on where the last loop over this object was left.

        A round is over if it was written back. One that was dropped begins again.
        """
        gist = self._gist
        state = self.progress
        latest = self._latest
        if gist.theta is not self._theta:
            raise InputError(
                "the model of this Loop has been trained anew since, as fit does: make a new Loop"
            )
        if latest is not None and not latest.is_written:
            if latest.is_open:
                gist.next_round = latest.number
            self._latest = None
        if self._latest is None:  # The model may have taken other rounds since.
            state.first_round = gist.next_round - state.rounds
        self._recorded.first_round = state.first_round

    def _save_after(self, error: BaseException) -> None:
        """Save the state after the last round in Θ, and add a note to the error; not with ranks."""
        if (
            self._saver is None
            or self._gist.ranks.count > 1
            or isinstance(error, (DivergedError, RankLostError))
        ):
            return
        recorded = self._recorded
        pending = self._theta.place.round > recorded.first_round + recorded.rounds
        if recorded.rounds + pending > 0:
            error.add_note(self._saver.save_after_error(recorded, pending=pending))

    def _end_round(self, rounds: int, seconds: float) -> None:
        """Count a round that is in Θ, score the model, and save the state.

        Args:
            rounds: how many rounds are over, with this one.
            seconds: the time since the loop began.
        """
        state = self.progress
        state.rounds = rounds
        if self._saver:
            self._saver.round_is_over(state.rounds)
        is_due = state.rounds % self._evaluate_every == 0 or state.rounds == self._rounds
        is_scored = bool(state.history) and state.history[-1]["round"] == state.rounds
        if self._validate and is_due and not is_scored:
            self._score(self._validate, seconds)
        self._unscored = False
        self._recorded = state.copy()
        if self._saver:
            self._saver.save(
                state, last=state.stopped_early or state.rounds >= self._rounds, over=True
            )

    def _score(self, validate: Callable[[nn.Module], Any], seconds: float) -> None:
        """Score the full model, keep it if it is the best so far, and count the patience."""
        state = self.progress
        model = self._theta.model_on_leader(self._gist.trained_spec)

        def score_of_model() -> float | None:
            with evaluation_mode(model):
                value = validate(model)
            score = self._metric.any_number(value)
            if math.isfinite(score):
                return score
            log.warning(
                "validate returned %s after round %d: there is no score", value, state.rounds
            )
            return None

        score = self._gist.ranks.lead(score_of_model)
        with signals_wait():
            state.history.append({"round": state.rounds, "score": score, "seconds": seconds})
            if state.scores.add(score, self._metric, state.rounds):
                self._theta.place.keep_best()
            self._stop_if_out_of_patience()

    def _stop_if_out_of_patience(self) -> None:
        """End the loop if the last scores were no better, for as long as its patience."""
        is_out = self.progress.scores.is_out_of_patience(self._patience)
        self.progress.stopped_by = "patience" if is_out else None
