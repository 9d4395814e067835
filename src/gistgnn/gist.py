"""Algorithm 1 of the paper (`train`), and the class `GIST` around it."""

import inspect
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor, nn

from gistgnn.defaults import complete
from gistgnn.errors import InputError
from gistgnn.evaluation import Evaluation
from gistgnn.fit.budget import fit_within
from gistgnn.fit.fit import Fit
from gistgnn.fit.identity import Fingerprint, fingerprint_of
from gistgnn.fit.prepare import FitArguments, Setup, prepare
from gistgnn.fit.result import Result
from gistgnn.fit.saving import Saving
from gistgnn.global_model import GlobalModel
from gistgnn.graphs import Graph
from gistgnn.runners.registry import Runner, RunnerName
from gistgnn.sampling import Sampling, named_sampling
from gistgnn.sampling.registry import SamplerName
from gistgnn.settings import Training
from gistgnn.utils.checks import check_kind, did_you_mean
from gistgnn.utils.denormals import denormals_as_zero
from gistgnn.utils.machine import require_usual_torch

if TYPE_CHECKING:
    from torch_geometric.data import Data, HeteroData


def train(gist: GlobalModel, run: Fit) -> None:
    """Algorithm 1, from the round at which `gist` stands.

    Args:
        gist: Θ and the partition.
        run: the sampler (Cluster in the algorithm; with c = 1 a batch is the whole graph), the
            runner, and the schedule with T and ζ.

    Raises:
        DivergedError: a loss or parameter is not finite; Θ is as it was before that round.
    """
    while not run.is_over:
        steps = run.schedule.steps_of(gist.next_round)
        with run.seconds("take"):
            round_ = gist.take_round(keeps_moments=run.training.keeps_moments)  # subGCNs
        with run.seconds("train"):
            numbers = run.runner(round_, run.sampler, run.training, steps, gist.seed)  # subTrain
        with run.seconds("merge"):
            means = round_.aggregate(numbers)  # subAgg
        run.after_round(means)


def run_to_end(setup: Setup, runner: Runner | None = None) -> Result:
    """Train by Algorithm 1, and return the result.

    Args:
        setup: what is trained, on what, and how.
        runner: what trains the sub-GCNs of a round. Defaults to the runner that the setup names.
    """
    with Fit(setup, runner) as run:
        train(setup.gist, run)
    return run.end()


class GIST(GlobalModel):
    """Trains a graph neural network by graph independent subnetwork training.

    Args:
        build: returns the model at given widths: `build(widths)` with a tuple of one width per
            axis. If `widths` is a single integer: `build(width)`, with one axis that all layers
            share (PyG's own models, residual nets). The model's forward takes (x, edge_index), (x,
            adj) or (x), and edge data by name; see `gistgnn.sampling.arguments`.
        widths: the full model's widths, d_l in the paper.
        sub_gcns: m; 1 is the baseline, ordinary training of the full model. Defaults to so many
            that sub-GCNs are 512 features wide, at most 8.
        input_axis: the axis whose width is the number of input features, to partition d_0 as in
            Table 1; usually None.
        whole: axes that are not partitioned.
        partition: "balanced" or "categorical" (see `Partition`).
        seed: initial parameters, blocks and dropout follow from it.
        device: where the sub-GCNs train.
        store: where Θ is: "memory", "host", "sharded" (in memory, by rows over the ranks), or a
            `Store`.
        ranks: the processes that train the model together (see docs/how-to/workers.md). Defaults
            to this one alone.
        axis_names: the names of the axes in messages about the partition. Defaults to axis 0, axis
            1, ...
        regression: whether a training loop of your own predicts numbers. Then the full model is the
            mean of its sub-GCNs, not their sum, as in `fit`, which sees from the graph what is
            predicted.
        width_scaling: "mup" gives every tensor the learning rate and the initial values that suit
            its width, so that one learning rate serves every width and every m; "none" gives all
            tensors the same. The attribute of this name is the `WidthScaling`, or None. In a loop
            of your own, `parameter_groups` has the rates.
        base_width: the width at which the learning rate was chosen.

    Raises:
        InputError: a value is out of range, or the model's layout fails the check (see
            `infer_layout`).
    """

    def fit(
        self,
        graph: "Graph | Data | HeteroData",
        training: Training | Literal["split", "each"] | None = None,
        *,
        sampler: "Sampling | SamplerName | Iterable[Data] | None" = "auto",
        runner: RunnerName = "auto",
        inductive: bool = False,
        evaluation: Evaluation | None = None,
        progress: bool = True,
        callbacks: Sequence[object] = (),
        init: nn.Module | Mapping[str, Tensor] | None = None,
        max_seconds: float | None = None,
        saving: Saving | None = None,
        standardise: bool | None = None,
        **settings: Any,
    ) -> Result:
        """Train on a graph from scratch, and return the model of the best validation score.

        Settings of training are given as a `Training`, or as keywords with the names of its fields,
        which it documents: `fit(graph, epochs=800, lr=0.02)`. Those that are not given are the same
        either way and on the command line: 100 epochs for each sub-GCN, the cosine schedule,
        carried moments, a learning rate of 0.01.

        Args:
            graph: a `Graph`, or a PyG `Data` with train_mask, val_mask and perhaps test_mask; or a
                `HeteroData`, which `gistgnn.graphs.from_hetero` joins to a `Data`.
            training: all settings; or "split" or "each", the keyword of that name.
            sampler: how batches are made of the graph: settings of `gistgnn.sampling`, or a name
                for their defaults, such as "clusters". "auto" takes the whole graph in every step
                up to 2,000 nodes, and clusters above; None always takes the whole graph. It may
                also be a loader of PyG's, a list of `Data`, or anything else that yields `Data`
                (see `gistgnn.sampling.FromLoader`).
            runner: "in-turn": one sub-GCN after another; "fused": all in one pass over each batch;
                "auto": on a CPU the result of "in-turn", bit for bit, but each batch is made once;
                on a GPU "fused", where a model can be.
            inductive: train on the subgraph of the training nodes; scores are those of the whole
                graph.
            evaluation: how models are run on the whole graph between rounds. Defaults to
                `Evaluation()`.
            progress: show a progress bar on standard error.
            callbacks: objects with methods of `Callback`, called in order; they may end the run.
            init: a trained model of the full widths, or its `state_dict()`, with which Θ begins; of
                a narrower model so many copies as have these widths together (see `widen`).
                Defaults to the initial values of the seed.
            max_seconds: the run ends within this time, with the best model so far; it trains at
                least one round. A resumed run has the same time again.
            saving: where and how often the state is saved, and whether to resume.
            standardise: scale every feature to mean 0 and deviation 1 over the training nodes. The
                result's model does so by itself, and is called with the features as they are.
                Defaults to doing so unless the features are words (few in each row, and never
                negative), or as in the model of `init`.
            settings: fields of `Training`; None stands for the default.

        Raises:
            InputError: a setting is out of range, the graph is unusable, or a checkpoint is of
                another run.
            DivergedError: training diverged; `self.theta` holds the parameters from before that
                round.
            TypeError: there is no argument of a name.
        """
        require_usual_torch()
        check_kind(
            "training", training, (Training, str), "a Training, 'split' or 'each'", none=True
        )
        complete_settings = self._complete_settings(training, settings)
        # Also where the caller has turned gradients off.
        with denormals_as_zero(), torch.inference_mode(False), torch.enable_grad(), self._run():
            arguments = FitArguments(
                sampling=named_sampling(sampler),
                runner=runner,
                inductive=inductive,
                evaluation=Evaluation() if evaluation is None else evaluation,
                progress=progress,
                callbacks=callbacks,
                saving=saving,
                init=init,
                max_seconds=max_seconds,
                standardise=standardise,
            )
            return self._train(prepare(self, graph, complete_settings, arguments))

    def _train(self, setup: Setup) -> Result:
        """Train, and return the result.

        Methods that do not follow Algorithm 1 have a way of their own.
        """
        if setup.settings.budget is not None:
            return fit_within(setup, run_to_end)
        return run_to_end(setup)

    def fingerprint(self, graph: Graph, training: Training, **options: Any) -> Fingerprint:
        """Return the fingerprint of the run that `fit` would make.

        Args:
            graph: the graph.
            training: the settings, complete.
            options: other arguments of `fit`.
        """
        sampling = named_sampling(options.pop("sampler", "auto"))
        evaluation = options.pop("evaluation", None) or Evaluation()
        arguments = FitArguments(sampling=sampling, evaluation=evaluation, **options)
        return fingerprint_of(prepare(self, graph, training, arguments))

    def _complete_settings(
        self, training: Training | str | None, settings: Mapping[str, Any]
    ) -> Training:
        """Return the complete settings of a run, which were given as a `Training` or one by one."""
        names = {field.name for field in fields(Training)}
        if unknown := sorted(settings.keys() - names):
            arguments = inspect.signature(self.fit).parameters.keys() - {"settings"}
            hint = did_you_mean(unknown[0], names | arguments)
            raise TypeError(f"fit() got an unexpected keyword argument '{unknown[0]}'{hint}")
        chosen = {name: value for name, value in settings.items() if value is not None}
        if isinstance(training, Training):
            if chosen:
                raise InputError(
                    f"{next(iter(chosen))} is given beside a Training: set it in the Training"
                )
        else:
            if training is not None:
                chosen["training"] = training
            training = Training(**chosen)
        rates_follow_m = self.width_scaling is None and self.sub_gcns > 1
        return complete(training, self.workers, self.split_widths if rates_follow_m else ())
