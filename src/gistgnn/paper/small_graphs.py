"""What Figures 4 and 5 have in common: full-batch GCNs on small graphs, as in Table 1.

The learning rate and weight decay are not in the text; 0.01 and 5e-4 for one device, 0.05 and none for sub-GCNs are
what Table 1's search on Cora chooses most.
"""

from __future__ import annotations

from collections.abc import Sequence

from gistgnn.compare.comparison import score_of
from gistgnn.compare.many_runs import Record
from gistgnn.runs.config import ModelConfig, RunConfig
from gistgnn.settings import Training

DROPOUT = 0.5


def small_run(
    dataset: str, hidden: Sequence[int], sub_gcns: int, epochs: int, local_steps: int, seed: int, device: str
) -> RunConfig:
    """A run of a small graph, in which every sub-GCN gets all epochs."""
    training = Training(
        epochs,
        local_steps,
        training="each",
        lr=0.01 if sub_gcns == 1 else 0.05,
        weight_decay=5e-4 if sub_gcns == 1 else 0.0,
        schedule="step",
    )
    return RunConfig(
        dataset=dataset,
        model=ModelConfig("gcn", tuple(hidden), dropout=DROPOUT),
        sub_gcns=sub_gcns,
        seed=seed,
        device=device,
        training=training,
    )


def scores_of(records: Sequence[Record]) -> list[float]:
    """The test scores of some runs, in percent."""
    return [score_of(record) for record in records]
