"""Figure 4: GCNs of several depths and widths on one device (appendix A.3)."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from gistgnn.paper.experiment import Verdict
from gistgnn.paper.small_graphs import DATASETS, GridFigure, Means, small_run
from gistgnn.runs.config import RunConfig

STEPS_BETWEEN_SCORES = 20


@dataclass(frozen=True)
class DepthWidth(GridFigure):
    """Figure 4: models of several depths and widths, trained on one device. The output layer counts in `layers`."""

    layers: tuple[int, ...] = (2, 3, 4, 5, 7, 9)
    widths: tuple[int, ...] = (16, 32, 64, 128, 256, 512, 1024)

    name = "depth-width"
    title = "Figure 4: depth and width on one device"
    line, point = ("layers", "{} layers"), "d = {}"
    chart = ("Accuracy by width", "hidden width")
    defaults: ClassVar[dict[str, dict[str, Any]]] = {
        "small": {"datasets": ("cora",), "seeds": 2, "epochs": 200, "layers": (2, 3, 4), "widths": (16, 64, 256)},
        "full": {"datasets": DATASETS, "seeds": 5, "epochs": 400},
    }

    def _axes(self) -> tuple[Sequence[int], Sequence[int]]:
        return self.layers, self.widths

    def _run_of(self, dataset: str, line: int, point: int, lr: float) -> RunConfig:
        return small_run(self, dataset, (point,) * (line - 1), 1, STEPS_BETWEEN_SCORES, lr)

    def _verdicts(self, dataset: str, means: Means) -> list[Verdict]:
        ends = min(self.widths), max(self.widths)
        narrow, wide = (statistics.fmean(means[dataset, L, d] for L in self.layers) for d in ends)
        best = {L: max(means[dataset, L, d] for d in self.widths) for L in self.layers}
        fewest, each = min(best), ", ".join(f"{L} layers {score:.2f}" for L, score in best.items())
        return [
            Verdict(
                f"{dataset}: wider models score higher",
                wide > narrow if len(set(ends)) > 1 else None,
                f"mean over depths: d = {ends[0]} {narrow:.2f}, d = {ends[1]} {wide:.2f}",
            ),
            Verdict(
                f"{dataset}: deeper models are no better",
                best[max(best)] <= best[fewest] if len(best) > 1 else None,
                f"best width of each: {each}",
            ),
            Verdict(
                f"{dataset}: two layers perform best",
                best[fewest] == max(best.values()) if fewest == 2 and len(best) > 1 else None,
                f"best width of each: {each}",
            ),
        ]

    def _settings(self) -> str:
        return f"GCNs trained on one device for {self.epochs} epochs. Layers include the output layer."
