"""An ensemble of sub-GCNs that are never merged (appendix B)."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn

from gistgnn.baselines.members import Apart, ApartOnRanks
from gistgnn.errors import InputError
from gistgnn.evaluation import Evaluation
from gistgnn.evaluation.scores import selection_metric
from gistgnn.gist import GIST
from gistgnn.graphs import Graph
from gistgnn.layout.axes import Build
from gistgnn.nn.ensemble_model import EnsembleModel, members_of
from gistgnn.partition import Blocks
from gistgnn.session.result import Result
from gistgnn.session.scorer import Scorer, ScoreTable
from gistgnn.settings import Training
from gistgnn.theta import InMemory, Model, Running, Theta, make_theta


class Ensemble(GIST):
    """Trains the m sub-GCNs of the first round's blocks to the end, each by itself, and averages their logits.

    It is GIST with ζ → ∞: the sub-GCNs begin as slices of one Θ, but are never merged. Each keeps its own moments, and
    counts in the ensemble as it was at its own best validation score. `local_steps` says how often they are scored,
    and nothing else. The result's model is an `EnsembleModel` (with ranks, on rank 0 alone), its scores those of the
    ensemble at the end.

    Args:
        build: see `GIST`.
        widths: see `GIST`.
        sub_gcns: m.
        options: of `GIST`, but for `input_axis`, and with Θ in memory.

    Raises:
        InputError: the input features are to be partitioned, or Θ is not in memory; or as `GIST` does.
    """

    method = "ensemble"

    def __init__(self, build: Build, widths: int | Sequence[int], sub_gcns: int, **options: Any) -> None:
        if options.get("input_axis") is not None:
            raise InputError("the input features are partitioned: an ensemble's members see all of them")
        super().__init__(build, widths, sub_gcns, **options)
        if self.store.kind != "memory":
            raise InputError(f"the store is {self.store.kind}, but an ensemble's members are in memory: use memory")

    def blocks(self, number: int) -> list[Blocks]:
        """The first round's blocks, in every round."""
        return super().blocks(0)

    def fit(self, graph: Any, **settings: Any) -> Result:
        """Train on a graph; see `GIST.fit`. Every member's moments are kept, whatever `optimizer_state` says."""
        return super().fit(graph, **{**settings, "optimizer_state": "carry"})

    def scorer(self, running: Running, graph: Graph, evaluation: Evaluation) -> Scorer:
        """What scores the ensemble of the members at their best."""
        return EnsembleScorer(self.theta, running, graph, evaluation)

    def traffic(self, training: Training) -> dict[str, float]:
        """Nothing is sent."""
        return {}

    def what(self) -> Model:
        """The ensemble, as one model."""
        full = super().what()
        return Model(self._build_members, full.layout, full.widths, full.shared, full.seed, full.device, full.ranks)

    def _build_members(self, _: Any) -> nn.Module:
        widths = [self.layout.widths([len(block) for block in own]) for own in self.blocks(0)]
        return EnsembleModel([self.build(each[0] if self.shared else each) for each in widths])

    def _make_theta(self, *, replace: bool = False) -> Theta:
        full = make_theta(self.store, Model(self.build, self.layout, self.widths, self.shared, self.seed, self.device))
        assert isinstance(full, InMemory)
        slices = [{name: t.clone() for name, t in full.take_slices(own).items()} for own in self.blocks(0)]
        if self.ranks:
            return ApartOnRanks(self.layout, self.widths, slices, self.ranks)
        return Apart(self.layout, self.widths, slices)


class EnsembleScorer(Scorer):
    """Scores every member, keeps it at its best, and scores the mean of the logits of those.

    Args:
        theta: the members' parameters.
        running: the ensemble with them.
        graph: what it is scored on.
        evaluation: how a member is run.
    """

    latest_counts = True
    _theta: Apart

    def __init__(self, theta: Theta, running: Running, graph: Graph, evaluation: Evaluation) -> None:
        super().__init__(theta, running, graph, evaluation)
        self._chooses = selection_metric(graph)
        self._best: dict[int, tuple[float, Tensor]] = {}  # validation score and logits of each member at its best

    def _score(self) -> ScoreTable:
        if self._theta.best and not self._best:  # of a run that goes on
            for i, member in enumerate(members_of(self._running.best())):
                logits = self._logits(member)
                self._best[i] = self._validation(logits), logits
        seconds = 0.0
        for i, member in enumerate(members_of(self._running.refresh())):
            begun = time.perf_counter()
            logits = self._logits(member)
            seconds += time.perf_counter() - begun
            score = self._validation(logits)
            if i not in self._best or score > self._best[i][0]:
                self._best[i] = score, logits
                self._theta.keep_best_of(i)
        self._passes.append(seconds)
        first, *others = (logits for _, logits in self._best.values())
        return self._table(sum(others, start=first) / len(self._best))

    def _validation(self, logits: Tensor) -> float:
        return self._table(logits)["validation"][self._chooses]
