"""`Case`: one model at one width and precision on one machine."""

import functools
from dataclasses import dataclass, replace

import torch
from torch import nn

from benchmarks.graphs import communities
from gistgnn.graphs import load
from gistgnn.nn import MODELS
from gistgnn.sampling import Batch, ClusterBatches, ClusterSampling, whole_graph
from gistgnn.settings import Training

DROPOUT = 0.2  # as in the paper on the large graphs
LR = 1e-3


@dataclass(frozen=True)
class Case:
    """The settings that all contenders share.

    Args:
        model: "graphsage", "gcn" or "gat".
        hidden: width of every hidden layer; of every head, for gat.
        features: features of a node.
        classes: number of classes.
        heads: attention heads of gat.
        nodes: nodes of a batch.
        edges: edges of a batch, both directions counted. Nodes and edges are of random graphs.
        per_batch: q, clusters in a batch.
        clusters: c, clusters of the graph.
        precision: "float32", "tf32" (float32 whose products a GPU may compute in TF32) or "bf16".
        device: the models' device.
        threads: torch's threads on the host.
        local_steps: ζ; the time for Θ is divided by it.
        precompute: our first layer uses ĀX of the whole graph; otherwise of the batch, as in PyG.
        dataset: a named data set, in METIS clusters; "": a random graph of communities.
        data_root: folder of the data sets.
    """

    model: str
    hidden: tuple[int, ...]
    features: int
    classes: int
    heads: int
    nodes: int
    edges: int
    per_batch: int
    clusters: int
    precision: str
    device: str
    threads: int
    local_steps: int
    precompute: bool
    dataset: str = ""
    data_root: str = "data"

    def set_precision(self) -> None:
        """Let torch compute products of float32 as the case says, in this process."""
        torch.set_float32_matmul_precision("high" if self.precision == "tf32" else "highest")

    def sampler(self) -> ClusterBatches:
        """Return a sampler with its batches on the device; in one process, equal random graphs have one sampler."""
        if self.dataset:
            given = on_device(whole_graph(load(self.dataset, self.data_root)), self.device)
            return ClusterSampling(self.clusters, self.per_batch, precompute=self.precompute).sampler(given, seed=0)
        sizes = {name: getattr(self, name) for name in ("nodes", "edges", "per_batch", "clusters")}
        return _sampler(self.device, self.precompute, features=self.features, classes=self.classes, **sizes)

    def build(self, widths: tuple[int, ...]) -> nn.Module:
        """Build our model with these widths."""
        options = {"heads": self.heads} if self.model == "gat" else {}
        model: nn.Module = MODELS[self.model](
            self.features, widths, self.classes, dropout=DROPOUT, norm="layer", **options
        )
        return model

    def training(self) -> Training:
        """Return Adam, as in the paper."""
        precision = "bf16" if self.precision == "bf16" else "float32"
        return Training(epochs=1, local_steps=self.local_steps, lr=LR, precision=precision)


@functools.lru_cache(maxsize=1)
def _sampler(device: str, precompute: bool, **sizes: int) -> ClusterBatches:
    whole, clusters = communities(**sizes)
    return ClusterBatches(on_device(whole, device), clusters, sizes["per_batch"], precompute=precompute)


def on_device(batch: Batch, device: str) -> Batch:
    """Move features and labels to the device. The structure stays where batches are cut from it."""
    return replace(batch, x=batch.x.to(device), y=batch.y.to(device), loss_nodes=batch.loss_nodes.to(device))
