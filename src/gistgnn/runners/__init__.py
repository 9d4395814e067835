"""How the sub-GCNs of a round are trained in one process: in turn, or fused into one pass."""
