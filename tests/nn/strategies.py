"""Random graphs for the tests of gistgnn.nn."""

import torch
from hypothesis import settings
from hypothesis import strategies as st
from torch import Tensor


def random_graph(nodes: int, edges: int, seed: int) -> Tensor:
    """A directed multigraph: self-loops, repeated edges, and the last node isolated if there are others."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(max(nodes - 1, 1), (2, edges), generator=generator)


@st.composite
def graphs(draw: st.DrawFn) -> tuple[Tensor, int]:
    """(edge_index, num_nodes)."""
    nodes = draw(st.integers(1, 12))
    return random_graph(nodes, draw(st.integers(0, 40)), draw(st.integers(0, 2**16))), nodes


widths = st.lists(st.integers(1, 6), min_size=1, max_size=3)

examples = settings(max_examples=50, deadline=None)  # the first call of a product can be slow
