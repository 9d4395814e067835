"""Algorithm 1 of the paper (`train`), and the class `GIST` around it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Literal

from torch import Tensor, nn

from gistgnn.accounting.footprint import round_costs
from gistgnn.evaluation import Evaluation
from gistgnn.global_model import GlobalModel
from gistgnn.graphs import Graph
from gistgnn.phases import Phase
from gistgnn.runners.registry import RunnerName, make_runner
from gistgnn.runners.runner import Runner
from gistgnn.sampling import Sampling, named_sampling
from gistgnn.sampling.registry import SamplerName
from gistgnn.schedule import check_phases, refuse_phases
from gistgnn.session.options import Options
from gistgnn.session.result import Result
from gistgnn.session.saving import Saving
from gistgnn.session.scorer import Scorer
from gistgnn.session.session import Session
from gistgnn.settings import Training, choose_training
from gistgnn.training.loss import Loss
from gistgnn.training.metric import Metric
from gistgnn.training.names import LossName, MetricName, OptimizerName, ScheduleName
from gistgnn.training.optimizer import MakeOptimizer
from gistgnn.training.schedule import Factor, MakeScheduler
from gistgnn.utils.checks import check_kind

if TYPE_CHECKING:
    from torch_geometric.data import Data


def train(gist: "GIST", session: Session) -> None:
    """Algorithm 1, from the round at which `gist` stands.

    Args:
        gist: Θ and the partition.
        session: the batches (Cluster in the algorithm; the whole graph where c = 1), the runner, and the schedule: T,
            ζ, and how steps are taken.

    Raises:
        DivergedError: a loss or parameter is not finite; Θ is as it was before that round.
    """
    sampler, runner, seconds = session.sampler, session.runner, session.seconds
    while gist.next_round < session.schedule.rounds:
        plan = session.schedule.plan(gist.next_round)
        with seconds("take"):
            round_ = gist.begin_round(plan)  # subGCNs
        with seconds("train"):
            losses = runner(round_, sampler, plan.training, plan.stretch, gist.seed)  # subTrain
        with seconds("merge"):
            loss = round_.aggregate(losses)  # subAgg
        if session.after_round(plan, loss):
            break


class GIST(GlobalModel):
    """Trains a graph neural network by graph independent subnetwork training.

    Args:
        build: returns the model at given widths: `build(widths)` with a tuple of one width per axis. If `widths` is a
            single integer: `build(width)`, with one axis that all layers share (PyG's own models, residual nets). The
            model's forward takes (x, edge_index), (x, adj) or (x), and edge data by name; see
            `gistgnn.sampling.arguments`.
        widths: the full model's widths, d_l in the paper.
        sub_gcns: m; 1 is the baseline, ordinary training of the full model.
        input_axis: the axis whose width is the number of input features, to partition d_0 as in Table 1; usually None.
        whole: axes that are not partitioned.
        partition: "balanced" or "categorical" (see `Partition`).
        seed: initial parameters, blocks and dropout follow from it.
        device: where the sub-GCNs train.
        store: where Θ is: "memory", "host", "sharded" over the ranks, or a `Store`.
        ranks: the processes that train the model together (see docs/how-to/workers.md); None: this one alone.
        axis_names: the names of the axes in messages about the partition; None: axis 0, axis 1, ...

    Raises:
        InputError: a value is out of range, or the model's layout fails the check (see `infer_layout`).
    """

    _phased = True  # a run may have phases, and blocks that last
    _scorer_kind = Scorer  # what scores Θ between rounds

    def fit(
        self,
        graph: "Graph | Data",
        training: Training | Literal["split", "each"] | None = None,
        *,
        sampler: Sampling | SamplerName | None = None,
        runner: RunnerName = "auto",
        inductive: bool = False,
        evaluation: Evaluation | None = None,
        progress: bool = True,
        callbacks: Sequence[object] = (),
        init: nn.Module | Mapping[str, Tensor] | None = None,
        max_seconds: float | None = None,
        saving: Saving | None = None,
        epochs: int | None = None,
        local_steps: int | None = None,
        loss: LossName | Loss | None = None,
        class_weights: Literal["balanced"] | Sequence[float] | None = None,
        label_smoothing: float | None = None,
        metric: MetricName | Metric | Callable[[Tensor, Tensor], Any] | None = None,
        optimizer: OptimizerName | MakeOptimizer | None = None,
        lr: float | None = None,
        weight_decay: float | None = None,
        momentum: float | None = None,
        schedule: ScheduleName | Factor | MakeScheduler | None = None,
        optimizer_state: Literal["reset", "carry"] | None = None,
        precision: Literal["float32", "bf16"] | None = None,
        clip_norm: float | None = None,
        patience: int | None = None,
        evaluate_every: int | Literal["auto"] | None = None,
        phases: Sequence[Phase] | None = None,
        redraw_every: int | None = None,
        cross_weights: Literal["random", "zero"] | None = None,
        budget: float | None = None,
    ) -> Result:
        """Train on a graph from scratch, and return the model at its best validation score over the whole graph.

        Settings of training are given as a `Training`, or as keywords: `epochs`, `phases` or `budget` is required
        then, and the others have the defaults of `Training`, which documents them.

        Args:
            graph: a `Graph`, or a PyG `Data` with train_mask, val_mask and test_mask.
            training: all settings; or "split" or "each", the keyword of that name.
            sampler: how batches are made of the graph: settings of `gistgnn.sampling`, or a name for the defaults, such
                as "clusters"; None: every step sees the whole graph.
            runner: "in-turn": one sub-GCN after another; "auto": the same result, bit for bit, but faster: each batch
                is made once; "fused": all in one pass over each batch.
            inductive: train on the subgraph of the training nodes; scores are those of the whole graph.
            evaluation: how models are run on the whole graph between rounds; None: `Evaluation()`.
            progress: show a progress bar on standard error.
            callbacks: objects with methods of `Callback`, called in order; they may end the run.
            init: a trained model of the full widths, or its `state_dict()`, with which Θ begins; None: the seed's.
            max_seconds: end in time to be back after so many seconds, with the best model so far; at least one round is
                trained. A run that is resumed has so many seconds more.
            saving: where and how often the state is saved, and whether to resume.
            epochs: see `Training`, also for the rest.

        Raises:
            InputError: a setting is out of range, the graph is unusable, or a checkpoint is of another run.
            DivergedError: training diverged; `self.theta` holds the parameters from before that round.
        """
        given = locals()
        settings = {field.name: given[field.name] for field in fields(Training)}
        settings["training"] = training if isinstance(training, str) else None
        whole = None if isinstance(training, str) else training
        sampling = named_sampling(sampler, getattr(graph, "num_nodes", None) or 1, getattr(graph, "num_clusters", None))
        check_kind("training", whole, Training, "a Training, 'split' or 'each'", none=True)
        chosen, sampling = self._adapt(self._check_phases(choose_training(whole, settings)), sampling)
        how = Evaluation() if evaluation is None else evaluation
        options = Options(sampling, runner, inductive, how, progress, callbacks, saving, init, max_seconds)
        session = Session(self, graph, chosen, options, self._make_runner(runner), self._scorer_kind, self._traffic)
        with session:
            if not session.finished:
                train(self, session)
        result = session.result()
        session.fit_is_over(result)
        return result

    def _traffic(self, training: Training, theta: int, slices: Sequence[int]) -> dict[str, float]:
        """Bytes that a worker sends: its slices in every round, from Θ and back (see `gistgnn.distributed.costs`).

        Args:
            training: ζ, and whether moments are carried.
            theta: bytes of Θ.
            slices: bytes of every sub-GCN.
        """
        costs = round_costs(training, self.sub_gcns, self.workers, theta=theta, slices=slices)
        return {"bytes_per_round": costs.gist}

    def _make_runner(self, name: str) -> Runner:
        """Return the runner of a name."""
        return make_runner(name)

    def _adapt(self, training: Training, sampler: Sampling | None) -> tuple[Training, Sampling | None]:
        """Change the settings of a run to those that the method needs."""
        return training, sampler

    def _check_phases(self, training: Training) -> Training:
        """Refuse phases that do not fit the method, the widths, the partition or the ranks."""
        if not self._phased:
            refuse_phases(training, self.method)
        check_phases(training.phases, self.partition, self.input_axis)
        if training.phases:
            self.store.check_ranks(self.ranks, max(phase.sub_gcns for phase in training.phases), "sub_gcns")
        return training
