"""The same model as a PyG user would write and run it."""

import warnings
from contextlib import closing
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch_geometric.nn import GATConv, GCNConv, SAGEConv

from benchmarks.case import DROPOUT, LR, Case
from benchmarks.clock import Clock
from gistgnn.sampling import Batch

warnings.filterwarnings("ignore", message="Sparse (CSR|invariant)")


class PyGModel(nn.Module):
    """A stack of PyG's layers. Every hidden layer is followed by norm, ReLU and dropout; the last one by nothing."""

    def __init__(self, case: Case) -> None:
        super().__init__()
        self.convs, self.norms = nn.ModuleList(), nn.ModuleList()
        features = case.features
        for width in case.hidden:
            self.convs.append(make_layer(case, features, width, last=False))
            features = width * (case.heads if case.model == "gat" else 1)
            self.norms.append(nn.LayerNorm(features, elementwise_affine=False))
        self.convs.append(make_layer(case, features, case.classes, last=True))

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Return the scores of every node: [N, C], for an edge_index [2, E] or a CSR tensor of (target, source)."""
        *hidden, last = self.convs
        for layer, norm in zip(hidden, self.norms, strict=True):
            x = F.dropout(F.relu(norm(layer(x, edge_index))), DROPOUT, self.training)
        scores: Tensor = last(x, edge_index)
        return scores


def make_layer(case: Case, features: int, width: int, *, last: bool) -> nn.Module:
    """Build PyG's layer for the model's name."""
    if case.model == "gat":
        return GATConv(features, width, heads=case.heads, concat=not last, dropout=DROPOUT)
    return SAGEConv(features, width, aggr="mean") if case.model == "graphsage" else GCNConv(features, width)


class PyGContender:
    """PyG's model on the same batches, with torch's default Adam.

    Args:
        case: the shared settings.
        layout: "edge_index": [2, E] int64; "csr": a torch CSR tensor of (target, source).
    """

    steps_per_pass = sub_gcns = 1

    def __init__(self, case: Case, layout: str) -> None:
        self._case, self._layout = case, layout
        self.sampler = case.sampler()
        torch.manual_seed(0)
        self._model = PyGModel(case).to(case.device)
        self._optimizer = torch.optim.Adam(self._model.parameters(), lr=LR)
        self._position = 0

    def prepare(self, batch: Batch) -> Any:
        """Convert the batch for PyG. This is not part of a step's time."""
        if self._layout == "edge_index":
            edges = batch.edge_index
        else:
            rowptr, col = batch.edges.rowptr.long(), batch.edges.col.long()
            ones = torch.ones(len(col), device=col.device)
            edges = torch.sparse_csr_tensor(rowptr, col, ones, batch.edges.shape, check_invariants=False)
        return batch.x, edges, batch.y, batch.loss_nodes

    def logits(self, prepared: Any) -> Tensor:
        """Return the model's output."""
        out: Tensor = self._model(*prepared[:2])
        return out

    def step(self, prepared: Any, clock: Clock) -> None:
        """Run one training step as in PyG's examples."""
        y, loss_nodes = prepared[2:]
        with clock.span("forward"):
            self._optimizer.zero_grad()
            with torch.autocast(self._case.device, torch.bfloat16, enabled=self._case.precision == "bf16"):
                loss = F.cross_entropy(self.logits(prepared)[loss_nodes].float(), y[loss_nodes])
        with clock.span("backward"):
            loss.backward()
        with clock.span("optimiser"):
            self._optimizer.step()

    def stretch(self, passes: int, clock: Clock) -> None:
        """Run steps on our sampler's batches, made in the background: PyG's sampler needs an extension for METIS."""
        with clock.span("total"), closing(self.sampler.batches(self._position, passes)) as batches:
            for _ in range(passes):
                with clock.span("batches"):
                    prepared = self.prepare(next(batches))
                self.step(prepared, Clock(self._case.device))
        self._position += passes
