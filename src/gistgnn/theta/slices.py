"""The slice of Θ that belongs to a sub-GCN: of every tensor, and of the optimiser's moments.

The tensors of a sub-GCN, of Θ and of its files have the same keys: theta/NAME is a parameter or
buffer, moments/NAME/KEY is the optimiser's state KEY of a parameter, best/NAME is a tensor of the
best Θ.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from gistgnn.layout.axes import Layout, Widths, named_tensors
from gistgnn.partition import Blocks
from gistgnn.storage.checkpoints import Checkpoint, Part
from gistgnn.theta.model_spec import check_shapes
from gistgnn.utils.tensors import TensorSpec, to_device

THETA = "theta/"
BEST = "best/"
MOMENTS = "moments/"
_MERGED_AT_ONCE = 2**18  # entries of a tensor

# For every dimension the chosen positions, ascending. None stands for all positions.
Cut = tuple[Tensor | None, ...]
# The indices of a tensor's first dimensions. None stands for a whole dimension, and dimensions
# without an index are whole as well.
Index = tuple[Tensor | None, ...]
Trained = dict[str, Tensor]  # the tensors of a sub-GCN and its moments, by key
ByKey = dict[str, list[Tensor]]  # a tensor of each sub-GCN, by key


class Share(NamedTuple):
    """Which of how many shares of the rows of every tensor a rank holds."""

    number: int = 0
    total: int = 1


ALL_ROWS = Share()


@dataclass(frozen=True)
class Piece:
    """The part of a sub-GCN's slice of a tensor that lies in one share of the rows."""

    rows: slice  # of the sub-GCN's slice
    cut: Cut  # the same entries as a cut of the share
    shape: torch.Size


class StackedSlices:
    """The slices of several sub-GCNs, stacked, where they have the same shape.

    On a GPU one operation takes them all.

    Args:
        cuts: of each of these sub-GCNs, by the tensors' names.
        device: where the tensors are.
    """

    def __init__(self, cuts: Sequence[Mapping[str, Cut]], device: torch.device) -> None:
        self._indices: dict[str, Index] = {}
        positions: dict[str, list[Tensor | None]] = {}
        for name in cuts[0] if len(cuts) > 1 else ():
            by_dim = list(zip(*(sub_cuts[name] for sub_cuts in cuts), strict=True))
            if any(_differ(dim) for dim in by_dim) or all(dim[0] is None for dim in by_dim):
                continue
            positions[name] = [None if dim[0] is None else torch.stack(dim) for dim in by_dim]
        # One copy to the device for all of them.
        all_positions = [
            chosen for dims in positions.values() for chosen in dims if chosen is not None
        ]
        if all_positions:
            moved = to_device(torch.cat([chosen.view(-1) for chosen in all_positions]), device)
            views = iter(moved.split([chosen.numel() for chosen in all_positions]))
            for name, dims in positions.items():
                placed = [
                    None if chosen is None else next(views).view(chosen.shape) for chosen in dims
                ]
                self._indices[name] = _stack_index(placed)

    def has(self, name: str) -> bool:
        """Whether the slices of a tensor can be stacked."""
        return name in self._indices

    def gather(self, name: str, tensor: Tensor) -> Tensor:
        """Return the slices of a tensor: [sub-GCNs, ...]."""
        return tensor[self._build_index(name, tensor)]

    def scatter(self, name: str, tensor: Tensor, values: Sequence[Tensor]) -> None:
        """Set the slices of a tensor, whose entries belong to one sub-GCN each."""
        tensor[self._build_index(name, tensor)] = torch.stack(list(values)).to(
            tensor.device, tensor.dtype
        )

    def _build_index(self, name: str, tensor: Tensor) -> tuple[Tensor, ...]:
        """Return the index of a tensor's slices.

        A dimension that is whole has all of its positions.
        """
        index = self._indices[name]
        indices = []
        for dim, positions in enumerate(index):
            if positions is None:
                all_positions = torch.arange(tensor.shape[dim], device=tensor.device)
                positions = all_positions.view(-1, *[1] * (len(index) - 1 - dim))
            indices.append(positions)
        return tuple(indices)


def _differ(positions: Sequence[Tensor | None]) -> bool:
    """Whether sub-GCNs have different numbers of positions in a dimension."""
    counts = {None if chosen is None else len(chosen) for chosen in positions}
    return len(counts) > 1 or 0 in counts


def _stack_index(dims: Sequence[Tensor | None]) -> Index:
    """Return the index of stacked slices: [sub-GCNs, n_0, ...].

    It has the dimensions up to the last one that is not whole.
    """
    last = max(dim for dim, chosen in enumerate(dims) if chosen is not None)
    return tuple(
        None if chosen is None else chosen.view(len(chosen), *[1] * dim, -1, *[1] * (last - dim))
        for dim, chosen in enumerate(dims[: last + 1])
    )


class Slices:
    """The slices that blocks cut out of every tensor of a model.

    An entry belongs to a sub-GCN if its position in every dimension lies in the sub-GCN's blocks.
    Where a rank holds some rows, there are also the slices of these rows.

    Args:
        layout, widths: of the model.
        specs: of its tensors, by name; trained sub-GCNs have these types.
        share: of the rows, which the rank holds.
    """

    def __init__(
        self,
        layout: Layout,
        widths: Sequence[int],
        specs: Mapping[str, TensorSpec],
        share: Share = ALL_ROWS,
    ) -> None:
        self.layout = layout
        self.widths = widths
        self.specs = specs
        self.share = share
        self.features: Widths = layout.features(widths)
        self.open([])

    def open(self, blocks: Sequence[Blocks]) -> None:
        """Begin a round with these sub-GCNs.

        Finds their entries in the tensors, and in what the rank holds of them.
        """
        self.blocks = list(blocks)
        self.cuts = [self.cuts_of(block) for block in self.blocks]
        self.rank_cuts = self.cuts
        self._stacks: dict[tuple[int, ...], StackedSlices] = {}
        if self.share.total > 1:
            self.rank_cuts = [
                {
                    name: self.piece(name, cut, self.share.number).cut
                    for name, cut in sub_cuts.items()
                }
                for sub_cuts in self.cuts
            ]

    def cuts_of(self, blocks: Blocks) -> dict[str, Cut]:
        """The positions of the blocks in each dimension of every tensor, by name.

        None stands for all positions of the dimension.
        """
        split = self._find_split_axes(blocks)
        cuts = dict[str, Cut]()
        for name, dims in self.layout.dims.items():
            cuts[name] = tuple(
                self.layout.positions(dim, blocks, self.features)
                if any(s.axis in split for s in dim)
                else None
                for dim in dims
            )
        return cuts

    def stacks(self, members: Sequence[int], device: torch.device) -> StackedSlices | None:
        """The slices of some sub-GCNs at once, on a GPU that holds all rows.

        None elsewhere, where stacking saves nothing.
        """
        if device.type != "cuda" or self.share.total > 1:
            return None
        key = tuple(members)
        if key not in self._stacks:
            self._stacks[key] = StackedSlices([self.rank_cuts[i] for i in members], device)
        return self._stacks[key]

    def disjoint(self, name: str) -> bool:
        """Whether no two sub-GCNs hold the same entry of a tensor.

        That is so if some dimension lies along partitioned axes only.
        """
        split = self._find_split_axes(self.blocks[0])
        return len(self.blocks) == 1 or any(
            dim and all(s.axis in split for s in dim) for dim in self.layout.dims[name]
        )

    def _find_split_axes(self, blocks: Blocks) -> set[int]:
        """The axes of which a sub-GCN does not hold all features."""
        return {axis for axis, block in enumerate(blocks) if len(block) < self.features[axis]}

    def write(self, name: str, target: Tensor, values: Sequence[Tensor]) -> None:
        """Write the values of the round's sub-GCNs into the rank's rows of a tensor.

        The tensor is `disjoint`.
        """
        stacks = self.stacks(range(len(self.rank_cuts)), target.device)
        if stacks is not None and stacks.has(name):
            stacks.scatter(name, target, values)
            return
        for sub_cuts, value in zip(self.rank_cuts, values, strict=True):
            scatter(target, sub_cuts[name], value)

    def mean(self, name: str, before: Tensor, values: Sequence[Tensor]) -> Tensor:
        """The new value of a tensor that is not `disjoint`; not in half precision."""
        merged = before.float() if before.dtype == torch.bfloat16 else before.clone()
        merge_shared(merged, [sub_cuts[name] for sub_cuts in self.rank_cuts], values)
        return merged

    def rows_in_share(self, name: str, number: int) -> range:
        """The rows of a tensor in a share, as `torch.chunk` deals them.

        A single number is a row of share 0.
        """
        shape = self.specs[name].shape
        rows = shape[0] if shape else 1
        rows_per_share = -(-rows // self.share.total)
        return range(min(number * rows_per_share, rows), min((number + 1) * rows_per_share, rows))

    def rank_rows(self, name: str, tensor: Tensor) -> Tensor:
        """This rank's rows of a whole tensor, which share its memory.

        It is the tensor itself where the rank holds all of it.
        """
        if self.share.total == 1:
            return tensor
        rows = self.rows_in_share(name, self.share.number)
        return as_rows(tensor)[rows.start : rows.stop]

    def rank_specs(self, *, half: bool = False) -> dict[str, TensorSpec]:
        """The shapes and types of what this rank holds.

        `half` turns floating-point types into bfloat16.
        """
        return {
            name: TensorSpec(
                self.rank_rows(name, torch.empty(spec.shape, device="meta")).shape,
                torch.bfloat16 if half and spec.dtype.is_floating_point else spec.dtype,
            )
            for name, spec in self.specs.items()
        }

    def piece(self, name: str, cut: Cut, number: int) -> Piece:
        """The part of a sub-GCN's slice of a tensor that lies in a share."""
        shape = self.specs[name].shape
        if self.share.total == 1:
            return Piece(slice(None), cut, shape_of(shape, cut))
        share_rows = self.rows_in_share(name, number)
        # A single number is cut like a row.
        (chosen, *columns) = cut or (None,)
        if chosen is None:
            rows = slice(share_rows.start, share_rows.stop)
            row_positions = None
        else:
            first, last = torch.searchsorted(
                chosen, torch.tensor([share_rows.start, share_rows.stop], device=chosen.device)
            ).tolist()
            rows = slice(first, last)
            row_positions = chosen[first:last] - share_rows.start
        column_sizes = shape_of(shape[1:], tuple(columns))
        return Piece(
            rows, (row_positions, *columns), torch.Size((rows.stop - rows.start, *column_sizes))
        )

    def part(self, key: str, tensor: Tensor) -> Part | None:
        """What the rank writes of a tensor that it holds into a checkpoint.

        Share 0 writes the step counts.
        """
        if self.share.total == 1:
            return Part.whole(tensor)
        if not tensor.dim():
            return Part.whole(tensor) if self.share.number == 0 else None
        if not tensor.numel():
            return None
        shape = self.specs[name_of(key)].shape
        value = tensor if shape else tensor.view(())
        return Part(value, shape, self.rows_in_share(name_of(key), self.share.number).start)

    def saved_part(self, saved: Checkpoint, key: str) -> Tensor:
        """What this rank holds of a tensor in a checkpoint."""
        name = name_of(key)
        shape = saved.shapes[key]
        if self.share.total == 1:
            return saved.tensor(key)
        if is_counter(key, shape, self.specs[name].shape):
            return saved.tensor(key)
        if not shape:
            return self.rank_rows(name, saved.tensor(key))
        rows = self.rows_in_share(name, self.share.number)
        return saved.rows(key, rows.start, rows.stop)


def as_rows(tensor: Tensor) -> Tensor:
    """Return a tensor that has rows: a single number becomes one row."""
    return tensor if tensor.dim() else tensor.view(1)


def shape_of(full: torch.Size, cut: Cut) -> torch.Size:
    """Return the shape of the cut's entries of a tensor of shape `full`."""
    return torch.Size(
        size if positions is None else len(positions)
        for size, positions in zip(full, cut, strict=True)
    )


def index_of(tensor: Tensor, cut: Cut) -> tuple[Tensor | slice, ...]:
    """Return the cut as an index of a tensor.

    Whole dimensions are slices where that keeps the order of dimensions.
    """
    chosen = [i for i, positions in enumerate(cut) if positions is not None]
    index: list[Tensor | slice] = [slice(None)] * len(cut)
    # A slice between index tensors would move dimensions.
    for i in range(chosen[0], chosen[-1] + 1) if chosen else ():
        positions = cut[i]
        positions = torch.arange(tensor.shape[i]) if positions is None else positions
        index[i] = to_device(positions, tensor.device).view(-1, *[1] * (chosen[-1] - i))
    return tuple(index)


def gather(tensor: Tensor, cut: Cut) -> Tensor:
    """Return the cut's entries of a tensor; a view where the cut is the whole tensor."""
    return tensor[index_of(tensor, cut)]


def scatter(tensor: Tensor, cut: Cut, values: Tensor) -> None:
    """Set the cut's entries of a tensor."""
    tensor[index_of(tensor, cut)] = values.to(tensor.device, tensor.dtype)


def merge_shared(target: Tensor, cuts: Sequence[Cut], values: Sequence[Tensor]) -> None:
    """Change each entry of a tensor by the mean change of the sub-GCNs that hold it, in place."""
    # The mean of changes, not of values, leaves an entry that nobody has changed as it is, bit for
    # bit. An entry of which all holders have the same value takes that value. Boolean entries take
    # the value of the first sub-GCN.
    if target.dtype == torch.bool:  # a flag has no average, and training does not change it
        scatter(target, cuts[0], values[0].detach())
        return
    if target.device.type == "cuda" and all(positions is None for cut in cuts for positions in cut):
        _merge_whole(target, values)
        return
    if not target.dim():
        target = target.view(1)
        cuts = [(None,) for _ in cuts]
        values = [value.view(1) for value in values]
    # Every entry is merged by itself, so the tensor is merged in pieces along its longest
    # dimension: what is computed on the way would otherwise take five times its bytes.
    dim = max(range(target.dim()), key=lambda axis: target.shape[axis])
    length = target.shape[dim]
    step = max(_MERGED_AT_ONCE * length // max(target.numel(), 1), 1)
    for start in range(0, length, step):
        stop = min(start + step, length)
        pieces = [
            _cut_piece(dim, start, stop, cut, value)
            for cut, value in zip(cuts, values, strict=True)
        ]
        _merge_piece(target.narrow(dim, start, stop - start), pieces)


def _merge_whole(target: Tensor, values: Sequence[Tensor]) -> None:
    """Change a tensor that all sub-GCNs hold whole by the mean change, in few kernels."""
    stacked = torch.stack([value.detach().to(target.device) for value in values])
    change = (stacked - target).sum(dim=0)
    alike = (stacked == stacked[0]).all(dim=0)
    moved = target + (change / len(values) if target.is_floating_point() else change // len(values))
    target.copy_(torch.where(alike, stacked[0].to(target.dtype), moved))


def _cut_piece(dim: int, start: int, stop: int, cut: Cut, value: Tensor) -> tuple[Cut, Tensor]:
    """Cut a sub-GCN's slice of a tensor between two positions of a dimension.

    Returns the cut of that part, and its values.
    """
    positions = cut[dim]
    if positions is None:
        return cut, value.detach().narrow(dim, start, stop - start)
    first, last = torch.searchsorted(
        positions, torch.tensor([start, stop], device=positions.device)
    ).tolist()
    inside = positions[first:last] - start
    return (*cut[:dim], inside, *cut[dim + 1 :]), value.detach().narrow(dim, first, last - first)


def _merge_piece(target: Tensor, pieces: Sequence[tuple[Cut, Tensor]]) -> None:
    indices = [index_of(target, cut) for cut, _ in pieces]
    values = [value.to(target.device) for _, value in pieces]
    change = torch.zeros_like(target)
    agreed = target.clone()
    holders = torch.zeros_like(target, dtype=torch.long)
    for index, value in zip(indices, values, strict=True):
        change[index] += value - target[index]
        holders[index] += 1
        agreed[index] = value.to(target.dtype)
    alike = torch.ones_like(target, dtype=torch.bool)
    for index, value in zip(indices, values, strict=True):
        alike[index] &= value.to(target.dtype) == agreed[index]
    holders.clamp_(min=1)
    target += change / holders if target.is_floating_point() else change // holders
    target.copy_(torch.where(alike, agreed, target))  # t + (v - t) is v but for rounding


def name_of(key: str) -> str:
    """The parameter or buffer that a key belongs to."""
    name = key.split("/", 1)[1]
    return name.rsplit("/", 1)[0] if key.startswith(MOMENTS) else name


def is_counter(key: str, state: torch.Size, parameter: torch.Size) -> bool:
    """Whether a key belongs to a state that is one number for a whole parameter.

    A step count of the optimiser is one.

    Args:
        key: of the state.
        state, parameter: the shapes of both.
    """
    is_one_number = len(state) == 0 and len(parameter) > 0
    return key.startswith(MOMENTS) and (key.endswith("/step") or is_one_number)


def trained_tensors(sub: nn.Module, optimizer: Optimizer | None = None) -> Trained:
    """The tensors of a module, and the states of its optimiser, by key; they are not copied."""
    tensors = named_tensors(sub)
    trained = {f"{THETA}{name}": tensor.detach() for name, tensor in tensors.items()}
    if optimizer is None:
        return trained
    for name, tensor in tensors.items():
        states = optimizer.state.get(tensor, {})
        trained |= {
            f"{MOMENTS}{name}/{key}": value
            for key, value in states.items()
            if isinstance(value, Tensor)
        }
    return trained


def value_of(trained: Trained, key: str) -> Tensor:
    """A tensor of a sub-GCN by key; a moment that its optimiser does not have yet is zero."""
    return trained[key] if key in trained else torch.zeros_like(trained[f"{THETA}{name_of(key)}"])


def values_by_key(
    subs: Sequence[Trained], specs: Mapping[str, TensorSpec]
) -> tuple[ByKey, dict[str, Tensor]]:
    """Return the values of all sub-GCNs, and the largest step counts, both by key."""
    values = ByKey()
    counts = dict[str, Tensor]()
    for key in dict.fromkeys(chain(*subs)):
        sub_values = [sub[key] for sub in subs if key in sub]
        if is_counter(key, sub_values[0].shape, specs[name_of(key)].shape):
            counts[key] = torch.stack(sub_values).max()
        else:
            values[key] = (
                sub_values if len(sub_values) == len(subs) else [value_of(sub, key) for sub in subs]
            )
    return values, counts


def fill(module: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Copy tensors into a module's parameters and buffers of the same names.

    Tensors of other names or shapes are an InputError.
    """
    targets = named_tensors(module)
    check_shapes(
        targets, tensors, "the sub-GCN", "its slice of Θ", "build the same layers at every width"
    )
    with torch.no_grad():
        if all(tensor.device.type == "cuda" for tensor in (*targets.values(), *tensors.values())):
            # One call takes few kernels for all of them.
            torch._foreach_copy_(list(targets.values()), [tensors[name] for name in targets])
            return
        for name, target in targets.items():
            target.copy_(tensors[name], non_blocking=True)


def give_moments(sub: nn.Module, optimizer: Optimizer, moments: Mapping[str, Tensor]) -> None:
    """Set an optimiser's state of every parameter that has moments.

    The states are put on the devices that torch expects.
    """
    # A fused optimiser counts its steps on the GPU, too.
    fused = any(group.get("fused") for group in optimizer.param_groups)
    parameters = dict(sub.named_parameters())
    for key, value in moments.items():
        parameter = parameters[name_of(key)]
        if is_counter(key, value.shape, parameter.shape):
            state = value.to(parameter.device if fused else "cpu")
        else:
            state = value.to(parameter)
        optimizer.state[parameter][key.rsplit("/", 1)[1]] = state
