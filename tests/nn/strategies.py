"""Random graphs for the tests of gistgnn.nn, and a comparison of two functions.

The comparison is of outputs and gradients, also under vmap.
"""

from collections.abc import Callable, Sequence

import torch
from hypothesis import settings
from hypothesis import strategies as st
from torch import Tensor
from torch.func import vmap


def random_graph(nodes: int, edges: int, seed: int) -> Tensor:
    """A directed multigraph with self-loops and repeated edges.

    The last node is isolated if there are others.
    """
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(max(nodes - 1, 1), (2, edges), generator=generator)


@st.composite
def graphs(draw: st.DrawFn) -> tuple[Tensor, int]:
    """(edge_index, num_nodes)."""
    nodes = draw(st.integers(1, 12))
    return random_graph(nodes, draw(st.integers(0, 40)), draw(st.integers(0, 2**16))), nodes


widths = st.lists(st.integers(1, 6), min_size=1, max_size=3)

examples = settings(max_examples=50)

K = 3  # sub-GCNs


def agree(
    ours: Callable[..., Tensor],
    plain: Callable[..., Tensor],
    sizes: Sequence[tuple[int, ...]],
    dims: Sequence[int | None],
) -> None:
    """Check that `ours` gives what the plain function does, and its gradients.

    The inputs are random and of these sizes. ``dims`` is for vmap: where the sub-GCNs are in an
    input, None where all share it. If all are None, there is no vmap.
    """
    stacked = any(dim is not None for dim in dims)
    shapes = [
        size if dim is None else (*size[:dim], K, *size[dim:])
        for size, dim in zip(sizes, dims, strict=True)
    ]
    inputs = [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes]
    out = vmap(ours, in_dims=tuple(dims))(*inputs) if stacked else ours(*inputs)
    pairs = list(zip(inputs, dims, strict=True))
    outputs = []
    for i in range(K):
        inputs_of_sub = [x if dim is None else x.select(dim, i) for x, dim in pairs]
        outputs.append(plain(*inputs_of_sub))
    expected = torch.stack(outputs) if stacked else outputs[0]
    torch.testing.assert_close(out, expected)
    grad = torch.randn_like(out)
    torch.testing.assert_close(
        torch.autograd.grad(out, inputs, grad), torch.autograd.grad(expected, inputs, grad)
    )


def places(count: int) -> st.SearchStrategy[tuple[int | None, ...]]:
    """Where the sub-GCNs are in so many matrices."""
    return st.tuples(*[st.sampled_from([None, 0, 1, 2])] * count)
