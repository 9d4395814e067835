"""GraphSAINT (Zeng et al., 2020): subgraphs by random nodes, edges or walks, with losses and edges weighed."""

from gistgnn.sampling.saint.edges import SaintEdgeSampling
from gistgnn.sampling.saint.nodes import SaintNodeSampling
from gistgnn.sampling.saint.walks import SaintWalkSampling

__all__ = ["SaintEdgeSampling", "SaintNodeSampling", "SaintWalkSampling"]
