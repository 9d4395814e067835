"""GraphSAINT (Zeng et al., 2020): random subgraphs by nodes, edges or walks, with weights of edges and losses."""

from gistgnn.sampling.saint.edges import SaintEdgeSampling
from gistgnn.sampling.saint.nodes import SaintNodeSampling
from gistgnn.sampling.saint.walks import SaintWalkSampling

__all__ = ["SaintEdgeSampling", "SaintNodeSampling", "SaintWalkSampling"]
