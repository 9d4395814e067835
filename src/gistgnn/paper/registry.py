"""The experiments of the paper.

A new one is a file in this folder and an entry here. This module imports no torch.
"""

from dataclasses import dataclass

SCALES = ("small", "full")


@dataclass(frozen=True)
class Entry:
    """An experiment of the paper, as the command line knows it."""

    location: str  # "module:Class" in `gistgnn.paper`
    help: str  # its title
    options: tuple[str, ...] = ()  # one that ends with "+" takes several values
    devices: bool = True  # whether it may run on a GPU
    ranks: bool = False  # whether torchrun may start it


BATCHES = ("local_steps", "clusters", "clusters_per_batch")

EXPERIMENTS = {
    "table1": Entry(
        "table1:Table1", "Table 1: which dimensions to partition, GCN 256-256 on small graphs"
    ),
    "depth-width": Entry(
        "small_graphs:DepthWidth",
        "Figure 4: depth and width on one device",
        ("layers+", "widths+"),
    ),
    "local-iterations": Entry(
        "small_graphs:LocalIterations",
        "Figure 5: how often sub-GCNs are merged",
        ("local_steps+", "sub_gcns+"),
    ),
    "reddit": Entry(
        "table2:Table2",
        "Table 2: GraphSAGE and GAT on Reddit",
        ("layers+", "widths+", *BATCHES, "models+"),
        ranks=True,
    ),
    "amazon2m": Entry(
        "table2:Table2",
        "Table 2: GraphSAGE on Amazon2M",
        ("layers+", "widths+", *BATCHES),
        ranks=True,
    ),
    "ultrawide": Entry(
        "table3:UltraWide",
        "Table 3: widths that do not fit on one device",
        ("layers+", "widths+", "sub_gcns+", "local_steps", "clusters", "store", "device_memory"),
        ranks=True,
    ),
    "ladies": Entry(
        "table4:Ladies",
        "Table 4: GIST with layer sampling",
        ("layers+", "local_steps"),
        ranks=True,
    ),
    "local-sgd": Entry(
        "appendix_b:AppendixB", "Table 6: GIST against local SGD", BATCHES, ranks=True
    ),
    "ensemble": Entry(
        "appendix_b:AppendixB",
        "Table 7: GIST against ensembles of sub-GCNs",
        BATCHES,
        ranks=True,
    ),
    "theory": Entry(
        "theory_bounds:Theory",
        "Section 4: training against the bounds, in float64 on the CPU",
        ("widths+", "sub_gcns+", "local_steps+", "nodes"),
        devices=False,
    ),
}
