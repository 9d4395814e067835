"""The fused runner: all sub-GCNs of a round train in one pass over each batch."""

import logging
from collections.abc import Sequence
from contextlib import closing
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.optim import Optimizer

from gistgnn.errors import reason
from gistgnn.layout.axes import named_tensors
from gistgnn.round import Round
from gistgnn.runners.in_turn import InTurn
from gistgnn.runners.recorded import RecordedSteps, can_record, recorded_steps
from gistgnn.runners.registry import Numbers, Runner
from gistgnn.sampling import Batch, Sampler, arguments, calling, forward
from gistgnn.schedule import StepRange
from gistgnn.settings import Training
from gistgnn.subtrain import MeanLoss, loss_of, trains_on
from gistgnn.training.names import NAMES, named_as
from gistgnn.utils.random_streams import Stream

log = logging.getLogger(__name__)

# After a round with this reason, the next round is tried.
NO_BATCH = "the round has no batch to train on"


class Fused:
    """Trains all sub-GCNs of equal widths in one pass over each batch (see `Stack`).

    Without dropout Θ is that of the runner "in-turn" up to rounding, with dropout it is equal in
    distribution. The activations of all sub-GCNs are in memory at once.

    Args:
        otherwise: the runner of sub-GCNs that cannot be fused. Defaults to in turn, with a warning.
    """

    def __init__(self, otherwise: Runner | None = None) -> None:
        # Whether the sub-GCNs can be fused. None until a round has tried it.
        self._can_fuse: bool | None = None
        self._otherwise = otherwise
        # On a GPU the groups of the last round, as their recorded steps are used again.
        self._groups: list[Group] = []

    def __call__(
        self, round_: Round, sampler: Sampler, training: Training, steps: StepRange, seed: int
    ) -> Numbers:
        """Train the sub-GCNs of a round; see `Runner`."""
        # On a GPU a single sub-GCN gains as well, if its steps can be recorded.
        fewest = 1 if round_.device.type == "cuda" else 2
        if len(round_.members) >= fewest and self._can_fuse is None:
            sampler = sampler.for_round()
            why_not = _why_not(round_, sampler, steps, training)
            self._can_fuse = None if why_not == NO_BATCH else why_not is None
            if self._can_fuse is False and self._otherwise is None and len(round_.members) > 1:
                log.warning("the sub-GCNs train in turn, not fused: %s", why_not)
        if len(round_.members) < fewest or not self._can_fuse:
            otherwise = self._otherwise or InTurn()
            return otherwise(round_, sampler, training, steps, seed)
        groups = self._groups_of(round_, training)
        # Every rank draws dropout of its own: the key of all but rank 0 has the number of the
        # rank's first sub-GCN.
        first = round_.members[0]
        key = (round_.number, first) if first else (round_.number,)
        losses = MeanLoss()
        with (
            closing(sampler.batches(steps.first, steps.count)) as batches,
            Stream(seed, "dropout", *key, device=next(round_.subs[0].parameters()).device),
        ):
            for k, batch in enumerate(batches):
                if not self._trains_on(groups[0], batch, training):
                    continue
                by_group = [group.step(batch, steps, k, sampler) for group in groups]
                losses.add(by_group[0] if len(by_group) == 1 else torch.cat(by_group))
        for group in groups:
            group.finish()
        if (mean := losses.mean) is None:
            return {}
        members = [i for group in groups for i in group.members]
        return {i: {"loss": value} for i, value in zip(members, mean.tolist(), strict=True)}

    @staticmethod
    def _trains_on(group: "Group", batch: Batch, training: Training) -> bool:
        """Whether a step is taken on a batch; see `trains_on`."""
        # Models with batch norm are not recorded, so they need not be searched for one.
        if group.is_recorded:
            return batch.loss_nodes.numel() > 0
        return trains_on(group.first, batch, training)

    def _groups_of(self, round_: Round, training: Training) -> "list[Group]":
        """Return the groups of a round, which are those of the last round if they fit."""
        positions_of_groups = group_by_shape(round_.subs)
        same_number = len(positions_of_groups) == len(self._groups)
        if same_number and all(
            group.fits(round_, positions, training)
            for group, positions in zip(self._groups, positions_of_groups, strict=True)
        ):
            for group, positions in zip(self._groups, positions_of_groups, strict=True):
                group.load(round_, positions)
            return self._groups
        groups = [Group(round_, positions, training) for positions in positions_of_groups]
        if round_.device.type == "cuda":
            self._groups = groups
        return groups


class Stack:
    """Runs k modules of equal shapes in one pass over a batch, on copies of their tensors."""

    def __init__(self, subs: Sequence[nn.Module]) -> None:
        self.subs = subs
        self.parameters = {
            name: torch.stack([sub.get_parameter(name).detach() for sub in subs]).requires_grad_(
                first.requires_grad
            )
            for name, first in subs[0].named_parameters()
        }
        names = [name for name, _ in subs[0].named_buffers()]
        self.buffers = {name: torch.stack([sub.get_buffer(name) for sub in subs]) for name in names}

    def load(self, subs: Sequence[nn.Module]) -> None:
        """Take the values of other modules of the same shapes, in place."""
        self.subs = subs
        with torch.no_grad():
            parameters = [dict(sub.named_parameters()) for sub in subs]
            for name, stacked in self.parameters.items():
                torch.stack([by_name[name].detach() for by_name in parameters], out=stacked)
            for name, stacked in self.buffers.items():
                stacked.copy_(torch.stack([sub.get_buffer(name) for sub in subs]))

    def logits(self, batch: Batch, nodes: Tensor | None = None) -> Tensor:
        """Return the outputs of all modules, [k, N, C], or those of ``nodes``.

        Dropout differs between modules.
        """
        model = self.subs[0]
        inputs = arguments(model, batch, nodes=nodes)

        def run_one(
            parameters: dict[str, Tensor], buffers: dict[str, Tensor]
        ) -> tuple[Tensor, dict[str, Tensor]]:
            state = {**parameters, **buffers}
            # The call leaves changed buffers in `state`.
            out = functional_call(model, state, inputs.positional, inputs.by_name)
            return out, {name: state[name].detach() for name in buffers}

        out: Tensor
        with calling(model, batch, inputs):
            out, self.buffers = vmap(run_one, randomness="different")(self.parameters, self.buffers)
        return inputs.chosen(out)


class Group:
    """Sub-GCNs of equal widths, with one optimiser for all of them.

    Args:
        round_: has the sub-GCNs.
        positions: their positions in `Round.subs`.
        training: the settings.
    """

    def __init__(self, round_: Round, positions: list[int], training: Training) -> None:
        self._training = training
        self._stack = Stack([round_.subs[k] for k in positions])
        # All members have the widths of the first, and so the same learning rates.
        factors = round_.rate_factors(self.first, training)
        self._optimizer = training.make_optimizer(self._stack.parameters.values(), factors)
        self._has_begun = False
        self._recorded: RecordedSteps | None = None
        # It has the moments of the sub-GCNs' own parameters, if they are carried.
        self._carried: Optimizer | None = None
        self._begin(round_, positions)
        for name, states in self._carried_states().items():
            self._optimizer.state[self._stack.parameters[name]] = states

    @property
    def first(self) -> nn.Module:
        """The first of the sub-GCNs."""
        return self._stack.subs[0]

    @property
    def is_recorded(self) -> bool:
        """Whether steps are recorded, or will be once there were some."""
        return self._recorded is not None

    def _begin(self, round_: Round, positions: list[int]) -> None:
        self.members = [round_.members[k] for k in positions]
        self._carried = None
        if round_.keeps_moments:
            self._carried = round_.make_optimizer(self._training, self._stack.subs)
            for i in self.members:
                round_.carry(i, self._carried)

    def _carried_states(self) -> dict[str, dict[str, Tensor]]:
        """Return the carried moments of the sub-GCNs, stacked, by the names of parameters."""
        states_by_name: dict[str, dict[str, Tensor]] = {}
        carried = self._carried
        if carried is None:
            return states_by_name
        parameters = [dict(sub.named_parameters()) for sub in self._stack.subs]
        for name in self._stack.parameters:
            states = [carried.state[by_name[name]] for by_name in parameters]
            # All sub-GCNs have taken the same steps, so one count serves all.
            states_by_name[name] = {
                key: first.clone()
                if key == "step"
                else torch.stack([state[key] for state in states])
                for key, first in states[0].items()
            }
        return states_by_name

    def fits(self, round_: Round, positions: list[int], training: Training) -> bool:
        """Whether `load` can take the sub-GCNs at some positions of a round."""
        if training is not self._training or len(positions) != len(self._stack.subs):
            return False
        first = round_.subs[positions[0]]
        shapes = [parameter.shape[1:] for parameter in self._stack.parameters.values()]
        return shapes == [parameter.shape for parameter in first.parameters()]

    def load(self, round_: Round, positions: list[int]) -> None:
        """Take the values of the sub-GCNs of another round; what is recorded stays."""
        subs = [round_.subs[k] for k in positions]
        self._stack.load(subs)
        self._begin(round_, positions)
        carried = self._carried_states()
        for name, parameter in self._stack.parameters.items():
            state = self._optimizer.state.get(parameter, {})
            if state and not carried.get(name):
                for value in state.values():
                    value.zero_()  # Moments begin anew.
            for key, value in carried.get(name, {}).items():
                if key in state:
                    state[key].copy_(value)  # A recording writes into this tensor.
                else:
                    self._optimizer.state[parameter][key] = value

    def step(self, batch: Batch, steps: StepRange, k: int, sampler: Sampler) -> Tensor:
        """Take one step of every member on a batch.

        Args:
            batch: of the sampler.
            steps: the steps of the round.
            k: which of them this is.
            sampler: says how large its batches are.

        Returns:
            The losses of the members, [members].
        """
        if not self._has_begun:
            self._has_begun = True
            self._recorded = recorded_steps(
                self.first, batch, sampler, self._training, self._optimizer
            )
        steps.follow_schedule(self._optimizer, self._training, k)
        if self._recorded is not None and self._recorded.fits(batch):
            return self._recorded.step(self._take_step, batch)
        return self._take_step(batch)

    def _take_step(self, batch: Batch) -> Tensor:
        self._optimizer.zero_grad(set_to_none=True)
        with self._training.autocast(batch.x.device):
            losses = loss_of(self._stack.logits(batch, batch.loss_nodes), batch, self._training)
        losses.sum().backward()
        if self._training.clip_norm is not None:
            self._clip_gradients(self._training.clip_norm)
        self._optimizer.step()
        return losses.detach()

    def _clip_gradients(self, most: float) -> None:
        """Clip the gradient of every sub-GCN, as `nn.utils.clip_grad_norm_` does for one."""
        gradients = [p.grad for p in self._stack.parameters.values() if p.grad is not None]
        squares = torch.stack([g.reshape(len(g), -1).square().sum(dim=1) for g in gradients])
        scale = (most / (squares.sum(dim=0).sqrt() + 1e-6)).clamp(max=1.0)
        for g in gradients:
            g.mul_(scale.view(-1, *[1] * (g.dim() - 1)))

    def finish(self) -> None:
        """Copy the trained tensors into the sub-GCNs, and the moments into their optimiser."""
        parameters = self._stack.parameters
        buffers = self._stack.buffers
        carried: dict[Tensor, Any] = self._carried.state if self._carried else {}
        trained = {
            name: stacked.detach().unbind()
            for name, stacked in (*parameters.items(), *buffers.items())
        }
        with torch.no_grad():
            for i, sub in enumerate(self._stack.subs):
                tensors = named_tensors(sub)
                torch._foreach_copy_(
                    [tensors[name] for name in trained],
                    [stacked[i] for stacked in trained.values()],
                )
                for name, stacked in parameters.items() if self._carried else ():
                    for key, value in self._optimizer.state.get(stacked, {}).items():
                        if isinstance(value, Tensor):
                            carried[tensors[name]][key] = value[i] if value.dim() else value


def group_by_shape(subs: Sequence[nn.Module]) -> list[list[int]]:
    """Group the sub-GCNs by their widths; return the positions of each group."""
    groups: dict[tuple[torch.Size, ...], list[int]] = {}
    for i, sub in enumerate(subs):
        groups.setdefault(tuple(p.shape for p in sub.parameters()), []).append(i)
    return list(groups.values())


def _why_not(round_: Round, sampler: Sampler, steps: StepRange, training: Training) -> str | None:
    """Return the reason why the sub-GCNs cannot be fused, or None.

    Modules and random numbers stay as they are.
    """
    if sampler.for_sub_gcn(0) is not sampler:
        return "their batches are independent"
    if round_.input_columns(0) is not None:
        return "the input features are partitioned"
    # What another optimiser does to an entry may depend on the other entries.
    if training.optimizer not in NAMES["optimizer"]:
        return (
            f"the optimizer is {named_as(training.optimizer)}, not one of "
            f"{', '.join(NAMES['optimizer'])}"
        )
    with closing(sampler.batches(steps.first, steps.count)) as batches:
        usable = (batch for batch in batches if trains_on(round_.subs[0], batch, training))
        batch = next(usable, None)
    if batch is None:
        return NO_BATCH
    device = batch.x.device
    if len(round_.members) == 1 and not can_record(round_.subs[0], batch, training):
        return "there is one sub-GCN, whose steps cannot be recorded"
    try:
        with torch.random.fork_rng([device] if device.type == "cuda" else []):
            subs = deepcopy(round_.subs)  # A call may change a module.
            groups = [[subs[k] for k in positions] for positions in group_by_shape(subs)]
            for group in groups:
                with training.autocast(device):
                    logits = Stack(group).logits(batch)
                logits.float().square().mean().backward()
            # Without dropout, the outputs have to be those of the single modules.
            for group in groups:
                with torch.no_grad():
                    fused = Stack([sub.eval() for sub in group]).logits(batch)
                    expected = torch.stack([forward(sub, batch) for sub in group])
                if fused.shape != expected.shape:
                    return "torch.func.vmap gives this model another output"
                tolerance = 1e-3 * expected.abs().max().clamp(min=1e-6)
                if not bool(((fused - expected).abs() <= tolerance).all()):
                    return "torch.func.vmap gives this model another output"
            return None
    except Exception as error:  # It may be an error of vmap, or of the user's model inside it.
        return f"torch.func.vmap cannot run this model ({reason(error)})"
