"""`Loop`: a training loop of the user's own, with validation, the best model, early stopping and checkpoints."""

import logging
import math
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

from torch import nn

from gistgnn.errors import DivergedError, InputError, RankLostError
from gistgnn.evaluation.scores import evaluation_mode
from gistgnn.fit.identity import fingerprint_of_model, require_same_ranks
from gistgnn.fit.result import Progress
from gistgnn.fit.saving import Saver, Saving
from gistgnn.fit.scorer import Running
from gistgnn.global_model import GlobalModel
from gistgnn.round import Round
from gistgnn.training.metric import Metric
from gistgnn.utils.checks import check_callable, check_count, check_flag, check_kind

log = logging.getLogger(__name__)


class Loop:
    """Yields the rounds of a `GIST` for a training loop of your own, and watches what becomes of the full model.

    Example:
        >>> loop = Loop(gist, 200, lambda model: accuracy(model, graph), patience=10)
        >>> for round in loop:
        ...     for sub in round:  # a plain nn.Module at the blocks' widths
        ...         train(sub)
        >>> model = loop.best_model()

    When the loop goes on to the next round, the sub-GCNs are written back, the full model is scored, the best one is
    kept, and the state is saved. A round that is left by `break` or by an error is dropped. With ranks, rank 0 scores.

    Args:
        gist: the model; the loop goes on from the parameters that it has.
        rounds: T, the rounds of the whole loop; a resumed loop counts its earlier rounds as well.
        validate: returns the score of the full model, which is in evaluation mode; gradients are off. None: nothing is
            scored, and the best model is the last one.
        higher_is_better: False if `validate` returns an error.
        evaluate_every: rounds between two scores; the last round is scored as well.
        patience: the loop ends after this many scores without a better one; None: never.
        saving: where and how often the state is saved, and whether to resume. Θ, its best and carried moments are
            saved; your own random numbers are not.

    Attributes:
        progress: how far the loop has come, as `Result.progress` says it of a run: `rounds` that are over; `history`,
            one entry for each score with round, score (None: it was not finite) and seconds since the loop began;
            `best_score`, None before the first one; `best_round`, counted from 1, or -1; `stopped_early`, whether
            `patience` has ended the loop.
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
        check_count("rounds", rounds)
        check_count("evaluate_every", evaluate_every)
        if patience is not None:
            check_count("patience", patience)
        if validate is None:
            given = {"patience": patience, "evaluate_every": evaluate_every, "higher_is_better": higher_is_better}
            for name, default in {"patience": None, "evaluate_every": 1, "higher_is_better": True}.items():
                if given[name] != default:
                    raise InputError(f"{name} is {given[name]}, but there is no validate: give a function of the model")
        else:
            check_callable("validate", validate, "a function of the model that returns its score")
        self._gist, self._rounds, self._validate = gist, rounds, validate
        self._metric = Metric(lambda score, _: score, "validate", higher_is_better)
        self._every, self._patience = evaluate_every, patience
        self.progress = Progress()
        self._unscored = False
        if gist.ranks.count > 1:
            own: dict[str, Any] = {"rounds": rounds, "validate": "missing" if validate is None else "given"}
            own |= {"higher_is_better": higher_is_better, "evaluate_every": evaluate_every, "patience": patience}
            require_same_ranks(gist, saving, fingerprint_of_model(gist, saving, {}), own)
        if saving and gist.ranks.lead(lambda: saving.resumes) and not gist._reopen():
            gist._theta = gist._make_theta(gist._spec, anew=True)  # which the checkpoint fills
        self._running = Running(gist.theta, gist._spec)
        self._saver = saving and Saver(gist.theta, gist.ranks, saving, fingerprint_of_model(gist, saving, {}))
        if self._saver and (state := self._saver.begin()):
            self.progress = state
            self._unscored = gist.theta.place.round > state.rounds  # an error came before the last round was scored
            state.rounds = gist.next_round = gist.theta.place.round
            state.stopped_early = False  # the patience may be longer now

    def best_model(self) -> nn.Module:
        """Return the full model of the best score, in evaluation mode; without scores, the model as it is now."""
        return self._running.best()

    def __len__(self) -> int:
        """Return T."""
        return self._rounds

    def __iter__(self) -> Iterator[Round]:
        """Yield the rounds that are left."""
        state, begun = self.progress, time.perf_counter()
        recorded, place = replace(state, history=[*state.history]), self._gist.theta.place
        round_of_theta = place.round
        try:
            if self._unscored:
                recorded.rounds -= 1
                round_of_theta -= 1
                self._score_if_due(time.perf_counter() - begun)
            while state.rounds < self._rounds and not state.stopped_early:
                recorded, round_of_theta = replace(state, history=[*state.history]), place.round
                round_ = self._gist.begin_round()
                yield round_
                round_.aggregate()
                state.rounds += 1
                if self._saver:
                    self._saver.round_is_over(state.rounds)
                self._score_if_due(time.perf_counter() - begun)
                recorded, round_of_theta = state, place.round
                if self._saver:
                    self._saver.save(state, last=state.stopped_early or state.rounds >= self._rounds, over=True)
        except (Exception, KeyboardInterrupt, GeneratorExit) as error:  # GeneratorExit: the caller has left the loop
            alone, pending = self._gist.ranks.count == 1, place.round > round_of_theta
            begun_once = recorded.rounds + pending > 0
            if self._saver and begun_once and alone and not isinstance(error, (DivergedError, RankLostError)):
                error.add_note(self._saver.save_after_error(recorded, pending=pending))
            raise
        finally:
            if self._saver:
                self._saver.close()

    def _score_if_due(self, seconds: float) -> None:
        rounds, self._unscored = self.progress.rounds, False
        if self._validate and (rounds % self._every == 0 or rounds == self._rounds):
            self._score(self._validate, seconds)

    def _score(self, validate: Callable[[nn.Module], Any], seconds: float) -> None:
        def score_of_model() -> float | None:
            with evaluation_mode(self._running.module):
                value = validate(self._running.module)
            with suppress(TypeError, ValueError):
                if not math.isfinite(float(value)):
                    log.warning("validate returned %s after round %d: there is no score", value, self.progress.rounds)
                    return None
            return self._metric.number(value)

        state = self.progress
        self._running.refresh()
        score = self._gist.ranks.lead(score_of_model)
        state.history.append({"round": state.rounds, "score": score, "seconds": seconds})
        state.evaluations_since_best += score is not None  # no score says nothing of the model
        if self._metric.better(score, state.best_score):
            state.best_score, state.best_round, state.evaluations_since_best = score, state.rounds, 0
            self._gist.theta.place.keep_best()
        state.stopped_early = self._patience is not None and state.evaluations_since_best >= self._patience
