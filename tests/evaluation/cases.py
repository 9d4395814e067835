"""Models of gistgnn.nn with random values everywhere, and graphs for them."""

import torch
from torch import Tensor, nn

from gistgnn.nn import MODELS
from gistgnn.sampling import Batch, forward

F = 7
C = 3


def random_batch(
    nodes: int = 30, edges: int = 150, seed: int = 0, *, sparse: bool = False
) -> Batch:
    """A directed multigraph with self-loops, in double precision; operators not computed yet."""
    rng = torch.Generator().manual_seed(seed)
    x = torch.randn(nodes, F, generator=rng, dtype=torch.float64)
    if sparse:
        x = x * (torch.rand(nodes, F, generator=rng) < 0.05)
    edge_index = torch.randint(max(nodes - 1, 1), (2, edges), generator=rng)
    return Batch(x, edge_index, torch.zeros(nodes, dtype=torch.long), torch.arange(0))


def random_model(name: str, widths: list[int], norm: str = "none", seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    kind = {"activation": "elu"} if norm == "elu" else {"norm": norm}
    model = MODELS[name](F, widths, C, dropout=0.5, **kind).double()
    for parameter in model.parameters():
        parameter.data.normal_()
    for module in model.modules():
        if isinstance(module, nn.BatchNorm1d):
            module.running_mean.normal_()
            module.running_var.uniform_(0.5, 2)
    return model.eval()


def whole_graph_output(model: nn.Module, batch: Batch) -> Tensor:
    with torch.no_grad():
        return forward(model, batch)
