"""Batches: what a sub-GCN sees in one step of subTrain.

A file for each way to make them, over `sampler` (what they have in common) and `batch` (what a step
sees). `registry` lists them. Names are imported at their first use, so that the command line can
read the registry without torch.
"""

from typing import TYPE_CHECKING

from gistgnn.utils.lazy import lazy_attributes

if TYPE_CHECKING:
    from gistgnn.sampling.batch import Batch, training_subgraph, whole_graph
    from gistgnn.sampling.call import arguments, calling, check_fits, forward
    from gistgnn.sampling.clusters import (
        AutoSampling,
        ClusterBatches,
        ClusterSampling,
        chosen_sampling,
    )
    from gistgnn.sampling.ladies_fastgcn import FastGCNSampling, LadiesSampling
    from gistgnn.sampling.layered import NeighborSampling
    from gistgnn.sampling.loaders import FromLoader
    from gistgnn.sampling.registry import SAMPLERS, describe, from_description, named_sampling
    from gistgnn.sampling.saint import SaintEdgeSampling, SaintNodeSampling, SaintWalkSampling
    from gistgnn.sampling.sampler import FullGraph, RandomBatches, Sampler, Sampling, expected_batch

__all__ = ["AutoSampling", "Batch", "ClusterBatches", "ClusterSampling", "FastGCNSampling"]
__all__ += ["SAMPLERS", "FromLoader", "FullGraph", "LadiesSampling", "NeighborSampling"]
__all__ += ["RandomBatches", "SaintEdgeSampling", "SaintNodeSampling", "SaintWalkSampling"]
__all__ += ["Sampler", "Sampling", "arguments", "calling", "check_fits", "chosen_sampling"]
__all__ += ["describe", "expected_batch", "forward", "from_description", "named_sampling"]
__all__ += ["training_subgraph", "whole_graph"]

__getattr__ = lazy_attributes(
    __name__,
    {
        "gistgnn.sampling.batch": ("Batch", "training_subgraph", "whole_graph"),
        "gistgnn.sampling.call": ("arguments", "calling", "check_fits", "forward"),
        "gistgnn.sampling.clusters": (
            "AutoSampling",
            "ClusterBatches",
            "ClusterSampling",
            "chosen_sampling",
        ),
        "gistgnn.sampling.ladies_fastgcn": ("FastGCNSampling", "LadiesSampling"),
        "gistgnn.sampling.layered": ("NeighborSampling",),
        "gistgnn.sampling.loaders": ("FromLoader",),
        "gistgnn.sampling.registry": ("SAMPLERS", "describe", "from_description", "named_sampling"),
        "gistgnn.sampling.saint": ("SaintEdgeSampling", "SaintNodeSampling", "SaintWalkSampling"),
        "gistgnn.sampling.sampler": (
            "FullGraph",
            "RandomBatches",
            "Sampler",
            "Sampling",
            "expected_batch",
        ),
    },
)
