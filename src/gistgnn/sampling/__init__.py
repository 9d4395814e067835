"""Batches: what a sub-GCN sees in one step of subTrain.

A file for each way to make them, over `sampler` (what they have in common) and `batch` (what a step sees). `registry`
lists them. Names are imported at their first use, so that the command line can read the registry without torch.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gistgnn.sampling.batch import Batch as Batch
    from gistgnn.sampling.batch import Share as Share
    from gistgnn.sampling.batch import arguments as arguments
    from gistgnn.sampling.batch import check_fits as check_fits
    from gistgnn.sampling.batch import forward as forward
    from gistgnn.sampling.batch import training_subgraph as training_subgraph
    from gistgnn.sampling.batch import whole_graph as whole_graph
    from gistgnn.sampling.clusters import ClusterBatches as ClusterBatches
    from gistgnn.sampling.clusters import ClusterSampling as ClusterSampling
    from gistgnn.sampling.fastgcn import FastGCNSampling as FastGCNSampling
    from gistgnn.sampling.full import FullGraph as FullGraph
    from gistgnn.sampling.ladies import LadiesSampling as LadiesSampling
    from gistgnn.sampling.neighbor import NeighborSampling as NeighborSampling
    from gistgnn.sampling.registry import describe as describe
    from gistgnn.sampling.registry import from_description as from_description
    from gistgnn.sampling.saint import SaintEdgeSampling as SaintEdgeSampling
    from gistgnn.sampling.saint import SaintNodeSampling as SaintNodeSampling
    from gistgnn.sampling.saint import SaintWalkSampling as SaintWalkSampling
    from gistgnn.sampling.sampler import RandomBatches as RandomBatches
    from gistgnn.sampling.sampler import Sampler as Sampler
    from gistgnn.sampling.sampler import Sampling as Sampling
    from gistgnn.sampling.sampler import expected_batch as expected_batch

    SAMPLINGS: dict[str, type[Sampling]]

_NAMES = {
    "batch": ("Batch", "Share", "arguments", "check_fits", "forward", "training_subgraph", "whole_graph"),
    "clusters": ("ClusterBatches", "ClusterSampling"),
    "fastgcn": ("FastGCNSampling",),
    "full": ("FullGraph",),
    "ladies": ("LadiesSampling",),
    "neighbor": ("NeighborSampling",),
    "registry": ("describe", "from_description"),
    "saint": ("SaintEdgeSampling", "SaintNodeSampling", "SaintWalkSampling"),
    "sampler": ("RandomBatches", "Sampler", "Sampling", "expected_batch"),
}


def __getattr__(name: str) -> Any:
    """Import a public name at its first use; `SAMPLINGS` is all classes of `registry.SAMPLERS`, by name."""
    if name == "SAMPLINGS":
        from gistgnn.sampling.registry import SAMPLERS, sampling_class

        return {sampler: sampling_class(sampler) for sampler in SAMPLERS}
    for module, names in _NAMES.items():
        if name in names:
            return getattr(importlib.import_module(f"gistgnn.sampling.{module}"), name)
    raise AttributeError(f"module 'gistgnn.sampling' has no attribute '{name}'")
