"""Figure 5: how often sub-GCNs are merged (appendix A.3)."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from gistgnn.paper.experiment import Verdict
from gistgnn.paper.small_graphs import DATASETS, GridFigure, Means, epochs_of, labelled, small_run
from gistgnn.runs.config import RunConfig

ROBUST = 3.0  # points between the best and the worst ζ


@dataclass(frozen=True)
class LocalIterations(GridFigure):
    """Figure 5: how often sub-GCNs are merged: a GCN 256-256, with every ζ and m.

    Args:
        training: as in `Table1`.
    """

    training: Literal["split", "each"] = "split"
    local_steps: tuple[int, ...] = (1, 5, 10, 20, 35, 50)
    sub_gcns: tuple[int, ...] = (2, 4, 8)

    name = "local-iterations"
    title = "Figure 5: local iterations"
    line, point = ("m", "m = {}"), "ζ = {}"
    chart = ("Accuracy by ζ", "ζ, local steps")
    defaults: ClassVar[dict[str, dict[str, Any]]] = {
        "small": {"datasets": ("cora",), "seeds": 2, "epochs": 400, "local_steps": (5, 20, 50)},
        "full": {"datasets": DATASETS, "seeds": 5, "epochs": 400},
    }

    def _axes(self) -> tuple[Sequence[int], Sequence[int]]:
        return self.sub_gcns, self.local_steps

    def _run_of(self, dataset: str, line: int, point: int, lr: float) -> RunConfig:
        return small_run(self, dataset, (256, 256), line, point, lr, training=self.training)

    def _verdicts(self, dataset: str, means: Means) -> list[Verdict]:
        verdicts = []
        for m in self.sub_gcns:
            scores = [means[dataset, m, zeta] for zeta in self.local_steps]
            low, high = min(scores), max(scores)
            claim = f"{dataset}, m = {m}: accuracy hardly depends on ζ (at most {ROBUST:g} points)"
            holds = high - low <= ROBUST if len(scores) > 1 else None
            verdicts.append(Verdict(claim, holds, f"{low:.2f} to {high:.2f}"))
        return labelled([*verdicts, self._falls_slightly(dataset, means)], self.training)

    def _falls_slightly(self, dataset: str, means: Means) -> Verdict:
        """Judge "test accuracy decreases slightly as ζ increases" (appendix A.3)."""
        ends = min(self.local_steps), max(self.local_steps)
        few, many = (statistics.fmean(means[dataset, m, zeta] for m in self.sub_gcns) for zeta in ends)
        return Verdict(
            f"{dataset}: accuracy falls slightly as ζ grows (by at most {ROBUST:g} points)",
            0 < few - many <= ROBUST if len(set(ends)) > 1 else None,
            f"mean over m: ζ = {ends[0]} {few:.2f}, ζ = {ends[1]} {many:.2f}",
        )

    def _settings(self) -> str:
        return (
            f"A GCN with hidden layers of 256 and 256, {epochs_of(self.epochs, self.training)}. Scores are taken after "
            "every round, so a small ζ has more scores to choose from."
        )
