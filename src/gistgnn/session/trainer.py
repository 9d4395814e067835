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
from gistgnn.recipe.metric import Metric
from gistgnn.runners.runner import Runner
from gistgnn.schedule import RoundPlan
from gistgnn.session.scorer import Running, Scorer
from gistgnn.settings import Training
from gistgnn.theta.model_spec import ModelSpec
from gistgnn.theta.store import Store
from gistgnn.theta.theta import Theta


class Trainer(Protocol):
    """See `gistgnn.GIST`, which documents every member."""

    method: str
    merges: bool
    widths: Widths
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
    def spec(self) -> ModelSpec: ...  # noqa: D102
    @property
    def full_spec(self) -> ModelSpec: ...  # noqa: D102
    @property
    def workers(self) -> int: ...  # noqa: D102
    def model(self) -> nn.Module: ...  # noqa: D102
    def partition_of(self, plan: RoundPlan) -> Partition: ...  # noqa: D102
    def begin_run(  # noqa: D102
        self, training: Training, first: RoundPlan, *, resumed: bool, init: Mapping[str, Tensor] | None = None
    ) -> None: ...
    def stand_in(self, plan: RoundPlan) -> nn.Module | None: ...  # noqa: D102
    def make_runner(self, name: str) -> Runner: ...  # noqa: D102
    def make_scorer(  # noqa: D102
        self, running: Running, graph: Graph, evaluation: Evaluation, metric: Metric, *, any_outputs: bool = False
    ) -> Scorer: ...
    def traffic(self, training: Training, theta: int, slices: Sequence[int]) -> dict[str, float]: ...  # noqa: D102
