"""The global parameters Θ: what sub-GCNs take from it (subGCNs) and give back to it (subAgg)."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from gistgnn.axes import Dim, Layout, Widths, named_tensors
from gistgnn.errors import InputError
from gistgnn.partition import Blocks

Index = tuple[Tensor | slice, ...]


class Theta:
    """The parameters and buffers of the global model, and the optimiser's moments where they are carried.

    Every tensor is cut by the same indices: the entries of a parameter, of a buffer and of a parameter's moments that
    belong to a sub-GCN are those whose every dimension lies in the sub-GCN's blocks.

    Args:
        layout: how the model's tensors lie along the hidden axes.
        widths: the full widths.
        tensors: every parameter and buffer of the full model, by name. They are held, not copied.
    """

    def __init__(self, layout: Layout, widths: Sequence[int], tensors: Mapping[str, Tensor]) -> None:
        self.layout = layout
        self.features: Widths = layout.features(widths)
        self.tensors = dict(tensors)
        self.moments: dict[str, dict[str, Tensor]] = {}

    def take(self, blocks: Blocks, sub: nn.Module) -> None:
        """Copy the slice of Θ that belongs to the blocks into a module of the blocks' widths.

        Raises:
            InputError: the module's parameters do not have the slice's names or shapes.
        """
        own = named_tensors(sub)
        if differing := sorted(own.keys() ^ self.tensors.keys()):
            raise InputError(f"parameter '{differing[0]}' is not in both the sub-GCN and the global model")
        with torch.no_grad():
            for name, target in own.items():
                source = self.tensors[name][self._index(name, blocks)]
                if source.shape != target.shape:
                    raise InputError(
                        f"parameter '{name}' of a sub-GCN is {tuple(target.shape)}, its slice {tuple(source.shape)}: "
                        "build the same layers at every width"
                    )
                target.copy_(source)

    def put(self, blocks: Sequence[Blocks], subs: Sequence[nn.Module]) -> None:
        """Write the sub-GCNs of one round back (subAgg): entries that several hold are averaged over them.

        Args:
            blocks: the round's blocks, one tuple for each sub-GCN.
            subs: the sub-GCNs, in the same order.
        """
        held = [named_tensors(sub) for sub in subs]
        for name, target in self.tensors.items():
            self._merge(name, target, blocks, [tensors[name] for tensors in held])

    def take_moments(self, blocks: Blocks, sub: nn.Module, optimizer: Optimizer) -> None:
        """Give an optimiser of the sub-GCN the moments that were put back for its entries, if there are any."""
        for name, parameter in sub.named_parameters():
            if name in self.moments:
                fused = any(group.get("fused") for group in optimizer.param_groups)  # counts steps on the GPU too
                counter_device = parameter.device if fused else torch.device("cpu")
                optimizer.state[parameter] = {
                    key: value.to(counter_device, copy=True)
                    if _is_counter(key, [value], self.tensors[name])
                    else value[self._index(name, blocks)].clone()
                    for key, value in self.moments[name].items()
                }

    def put_moments(self, blocks: Sequence[Blocks], subs: Sequence[nn.Module], optimizers: Sequence[Optimizer]) -> None:
        """Write the optimisers' per-parameter state back, by the indices of the parameters.

        Step counts are merged by maximum; an optimiser that has no state yet counts as one whose moments are zero.
        """
        held = [dict(sub.named_parameters()) for sub in subs]
        for name in held[0]:
            states = [opt.state.get(own[name], {}) for own, opt in zip(held, optimizers, strict=True)]
            store = self.moments.setdefault(name, {})
            for key in dict.fromkeys(key for state in states for key in state):
                found = [state.get(key) for state in states]
                if not any(isinstance(value, Tensor) for value in found):
                    continue  # SGD without momentum keeps an empty momentum buffer
                if _is_counter(key, found, self.tensors[name]):
                    store[key] = torch.stack([value for value in found if value is not None]).max()
                    continue
                values = [torch.zeros_like(own[name]) if v is None else v for own, v in zip(held, found, strict=True)]
                target = store.setdefault(key, torch.zeros_like(self.tensors[name]))
                self._merge(name, target, blocks, values)

    def load_into(self, module: nn.Module) -> None:
        """Copy all of Θ into a module of the full widths."""
        self.take(tuple(torch.arange(d) for d in self.features), module)

    def copy(self) -> dict[str, Tensor]:
        """Return a copy of every parameter and buffer."""
        return {name: tensor.clone() for name, tensor in self.tensors.items()}

    def _merge(self, name: str, target: Tensor, blocks: Sequence[Blocks], values: Sequence[Tensor]) -> None:
        indices = [self._index(name, own) for own in blocks]
        with torch.no_grad():
            if target.dtype == torch.bool:  # a flag has no average, and training does not change it
                target[indices[0]] = values[0]
            elif self._disjoint(name, blocks):
                for index, value in zip(indices, values, strict=True):
                    target[index] = value.to(target.dtype)
            else:
                _average(target, indices, values)

    def _index(self, name: str, blocks: Blocks) -> Index:
        """Return the index of a tensor's entries in the blocks; dimensions that are kept whole are slices."""
        dims = self.layout.dims[name]
        cut = [i for i, dim in enumerate(dims) if not self._is_whole(dim, blocks)]
        index: list[Tensor | slice] = [slice(None)] * len(dims)
        for i in range(cut[0], cut[-1] + 1) if cut else ():  # a slice between index tensors would move dimensions
            positions = self.layout.positions(dims[i], blocks, self.features)
            index[i] = positions.to(self.tensors[name].device).view(-1, *[1] * (cut[-1] - i))
        return tuple(index)

    def _is_whole(self, dim: Dim, blocks: Blocks) -> bool:
        return all(s.axis is None or len(blocks[s.axis]) == self.features[s.axis] for s in dim)

    def _disjoint(self, name: str, blocks: Sequence[Blocks]) -> bool:
        """Say whether no entry is held by two sub-GCNs: some dimension is made of partitioned axes alone."""
        return len(blocks) == 1 or any(
            all(s.axis is not None and len(blocks[0][s.axis]) < self.features[s.axis] for s in dim)
            for dim in self.layout.dims[name]
            if dim
        )


def _is_counter(key: str, values: Sequence[object], parameter: Tensor) -> bool:
    """Say whether an optimiser's state is one number for a whole parameter, such as its steps, and not cut with it."""
    first = next(value for value in values if isinstance(value, Tensor))
    return key == "step" or (first.dim() == 0 and parameter.dim() > 0)


def _average(target: Tensor, indices: Sequence[Index], values: Sequence[Tensor]) -> None:
    """Move each entry by the mean change of those who hold it, in place.

    Averaging the changes rather than the values leaves entries that nobody changed as they are, bit for bit; an entry
    that one alone holds takes its value.
    """
    change = torch.zeros_like(target)
    holders = torch.zeros_like(target, dtype=torch.long)
    for index, value in zip(indices, values, strict=True):
        change[index] += value - target[index]
        holders[index] += 1
    alone = holders == 1
    holders.clamp_(min=1)
    target += change / holders if target.is_floating_point() else change // holders
    for index, value in zip(indices, values, strict=True):  # t + (v - t) is v but for rounding
        target[index] = torch.where(alone[index], value.to(target.dtype), target[index])
