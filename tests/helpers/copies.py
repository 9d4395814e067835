"""m copies of a narrow model side by side, made without the code under test."""

from collections.abc import Collection, Sequence

import torch
from torch import Tensor, nn

from gistgnn.layout.axes import Dim, Layout, named_tensors
from gistgnn.sampling import Batch, forward
from tests.helpers.models import Case, F


def dimension_map(dim: Dim, features: Sequence[int], split: Collection[int], m: int) -> tuple[Tensor, Tensor]:
    """For every position of the full dimension: its position in the narrow one, and its block (-1: every block)."""
    sources, blocks, offset = [], [], 0
    for segment in dim:
        n = segment.fixed if segment.axis is None else features[segment.axis]
        copies = m if segment.axis in split else 1
        sources.append(offset + torch.arange(n).repeat(copies))
        blocks.append(torch.arange(m).repeat_interleave(n) if segment.axis in split else torch.full((n,), -1))
        offset += n
    return torch.cat(sources), torch.cat(blocks)


def beside_itself(
    value: Tensor, dims: Sequence[Dim], features: Sequence[int], split: Collection[int], m: int
) -> Tensor:
    """The full tensor of m copies side by side, with zeros between them."""
    full, kept = value, torch.ones((), dtype=torch.bool)
    seen = torch.full((), -1)  # the block of every entry
    for i, dim in enumerate(dims):
        source, block = dimension_map(dim, features, split, m)
        full = full.index_select(i, source)
        kept, seen = kept.unsqueeze(-1), seen.unsqueeze(-1)
        kept = kept & ((seen == block) | (seen < 0) | (block < 0))
        seen = torch.maximum(seen, block)
    return torch.where(kept, full, torch.zeros_like(full))


def fill(model: nn.Module) -> None:
    """Give parameters random values, and running statistics positive ones."""
    parameters = dict(model.named_parameters())
    for name, tensor in named_tensors(model).items():
        if tensor.is_floating_point():
            tensor.detach().normal_(0, 0.7) if name in parameters else tensor.detach().uniform_(0.5, 1.5)


def distance(
    case: Case,
    layout: Layout,
    features: Sequence[int],
    m: int,
    readout: Collection[str],
    split: Collection[int],
    input_axis: int | None = None,
) -> float:
    """How far the output of m copies side by side, with the readout divided by m, is from one copy's output."""
    build, given_widths = case
    wide = [n * m if axis in split else n for axis, n in enumerate(features)]
    narrow, full = (
        build(sizes[0] if isinstance(given_widths, int) else sizes).double().eval()
        for sizes in (layout.widths(features), layout.widths(wide))
    )
    fill(narrow)
    tensors = named_tensors(full)
    with torch.no_grad():
        for name, value in named_tensors(narrow).items():
            copies = beside_itself(value, layout.dims[name], features, split, m)
            tensors[name].copy_(copies / m if name in readout else copies)
        nodes = 9
        x = torch.randn(nodes, F if input_axis is None else features[input_axis], dtype=torch.float64)
        edges, label = torch.randint(nodes, (2, 25)), torch.arange(nodes)
        expected = forward(narrow, Batch(x, edges, label, label))
        out = forward(full, Batch(x.repeat(1, m) if input_axis in split else x, edges, label, label))
    return float((out - expected).abs().max() / expected.abs().max().clamp(min=1))
