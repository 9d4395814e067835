"""What a session needs of the object that trains: `GIST`, or a baseline."""

from collections.abc import Mapping, Sequence
from typing import Protocol

import torch
from torch import Tensor, nn

from gistgnn.distributed import World
from gistgnn.evaluation import Evaluation
from gistgnn.graphs import Graph
from gistgnn.layout.axes import Widths
from gistgnn.partition import Partition
from gistgnn.runners.runner import Runner
from gistgnn.schedule import RoundPlan
from gistgnn.session.scorer import Running, Scorer
from gistgnn.settings import Training
from gistgnn.theta.model_spec import ModelSpec
from gistgnn.theta.store import Store
from gistgnn.theta.theta import Theta
from gistgnn.training.metric import Metric


class Trainer(Protocol):
    """See `gistgnn.GIST`, which documents every member."""

    method: str
    _merges: bool
    widths: Widths
    shared: bool
    input_axis: int | None
    seed: int
    device: torch.device
    partition: Partition
    store: Store
    ranks: World
    next_round: int

    @property
    def theta(self) -> Theta: ...  # noqa: D102
    @property
    def _spec(self) -> ModelSpec: ...
    @property
    def _full_spec(self) -> ModelSpec: ...
    @property
    def workers(self) -> int: ...  # noqa: D102
    def model(self) -> nn.Module: ...  # noqa: D102
    def _partition_of(self, plan: RoundPlan) -> Partition: ...
    def _begin_run(
        self, training: Training, first: RoundPlan, *, resumed: bool, init: Mapping[str, Tensor] | None = None
    ) -> None: ...
    def _stand_in(self, plan: RoundPlan) -> nn.Module | None: ...
    def _make_runner(self, name: str) -> Runner: ...
    def _make_scorer(
        self, running: Running, graph: Graph, evaluation: Evaluation, metric: Metric, *, any_outputs: bool = False
    ) -> Scorer: ...
    def _traffic(self, training: Training, theta: int, slices: Sequence[int]) -> dict[str, float]: ...
