"""Batches: what a sub-GCN sees in one step of subTrain.

A file for each way to make them, over `sampler` (what they have in common) and `batch` (what a step sees). `registry`
lists them. Names are imported at their first use, so that the command line can read the registry without torch.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gistgnn.sampling.batch import Batch, Share, arguments, check_fits, forward, training_subgraph, whole_graph
    from gistgnn.sampling.clusters import ClusterBatches, ClusterSampling
    from gistgnn.sampling.ladies_fastgcn import FastGCNSampling, LadiesSampling
    from gistgnn.sampling.neighbor import NeighborSampling
    from gistgnn.sampling.registry import describe, from_description
    from gistgnn.sampling.saint import SaintEdgeSampling, SaintNodeSampling, SaintWalkSampling
    from gistgnn.sampling.sampler import FullGraph, RandomBatches, Sampler, Sampling, expected_batch

    SAMPLINGS: dict[str, type[Sampling]]

__all__ = ["Batch", "Share", "arguments", "check_fits", "forward", "training_subgraph", "whole_graph"]
__all__ += ["ClusterBatches", "ClusterSampling", "FastGCNSampling", "LadiesSampling", "NeighborSampling"]
__all__ += ["SAMPLINGS", "SaintEdgeSampling", "SaintNodeSampling", "SaintWalkSampling", "describe", "from_description"]
__all__ += ["FullGraph", "RandomBatches", "Sampler", "Sampling", "expected_batch"]
_MODULES = ("registry", "batch", "sampler", "clusters", "ladies_fastgcn", "neighbor", "saint")


def __getattr__(name: str) -> Any:
    """Import a public name at its first use; `SAMPLINGS` is all classes of `registry.SAMPLERS`, by name."""
    if name == "SAMPLINGS":
        from gistgnn.sampling.registry import SAMPLERS, sampling_class

        return {sampler: sampling_class(sampler) for sampler in SAMPLERS}
    if name in __all__:
        for module in map(importlib.import_module, (f"gistgnn.sampling.{name}" for name in _MODULES)):
            if hasattr(module, name):
                return getattr(module, name)
    raise AttributeError(f"module 'gistgnn.sampling' has no attribute '{name}'")
