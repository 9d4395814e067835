"""Sub-GCNs of equal widths as one module whose parameters are stacked."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.optim import Optimizer

from gistgnn.sampling import Batch, arguments, multiplying


class Stack:
    """Runs k modules of equal shapes in one pass over a batch: every matrix product is a batched one.

    Args:
        subs: the modules. Their parameters and buffers are copied; `write_back` copies them back.
    """

    def __init__(self, subs: Sequence[nn.Module]) -> None:
        self.subs = subs
        self.parameters = {
            name: torch.stack([sub.get_parameter(name).detach() for sub in subs]).requires_grad_(first.requires_grad)
            for name, first in subs[0].named_parameters()
        }
        self.buffers = {
            name: torch.stack([sub.get_buffer(name) for sub in subs]) for name, _ in subs[0].named_buffers()
        }

    def logits(self, batch: Batch) -> Tensor:
        """Return the outputs of all modules, [k, N, C]. Dropout differs between modules."""
        model, given = self.subs[0], arguments(self.subs[0], batch)

        def one(parameters: dict[str, Tensor], buffers: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
            state = {**parameters, **buffers}
            out = functional_call(model, state, given.positional, given.by_name)  # leaves changed buffers in `state`
            return out, {name: state[name].detach() for name in buffers}

        out: Tensor
        with multiplying(model, batch, given):
            out, self.buffers = vmap(one, randomness="different")(self.parameters, self.buffers)
        return out

    def clip_gradients(self, largest: float) -> None:
        """Clip the gradient of every module to this norm, as `nn.utils.clip_grad_norm_` does for one module."""
        gradients = [p.grad for p in self.parameters.values() if p.grad is not None]
        squares = torch.stack([g.reshape(len(g), -1).square().sum(dim=1) for g in gradients])
        scale = (largest / (squares.sum(dim=0).sqrt() + 1e-6)).clamp(max=1.0)
        for g in gradients:
            g.mul_(scale.view(-1, *[1] * (g.dim() - 1)))

    def take_states(self, optimizer: Optimizer, carried: Optimizer) -> None:
        """Stack the states that an optimiser has of the modules into the optimiser of the stack."""
        for name, stacked in self.parameters.items():
            states = [carried.state[sub.get_parameter(name)] for sub in self.subs]
            for key, first in states[0].items():
                # All modules have taken the same steps, so one count serves all.
                together = first.clone() if key == "step" else torch.stack([state[key] for state in states])
                optimizer.state[stacked][key] = together

    def write_back(self) -> None:
        """Copy parameters and buffers into the modules."""
        with torch.no_grad():
            for i, sub in enumerate(self.subs):
                for name, stacked in self.parameters.items():
                    sub.get_parameter(name).copy_(stacked[i])
                for name, stacked in self.buffers.items():
                    sub.get_buffer(name).copy_(stacked[i])

    def give_states(self, optimizer: Optimizer, carried: Optimizer) -> None:
        """Copy the state of the stack's optimiser into that of the modules."""
        for name, stacked in self.parameters.items():
            for key, value in optimizer.state.get(stacked, {}).items():
                for i, sub in enumerate(self.subs if isinstance(value, Tensor) else ()):
                    carried.state[sub.get_parameter(name)][key] = value[i] if value.dim() else value
