"""The models of a run, at any widths, and which m they can be split into."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

from torch import Tensor, nn

from gistgnn.errors import InputError
from gistgnn.layout.axes import Layout, Widths, candidate_layouts
from gistgnn.partition import Blocks, Partition
from gistgnn.planning.sizes import GraphSizes
from gistgnn.runs.config import RunConfig
from gistgnn.settings import Training


class Shapes:
    """The models of a run: the full one and the sub-GCNs.

    Args:
        config: the run.
        sizes: of its graph.

    Raises:
        InputError: a partitioned dimension that the model does not have, or a value out of range.
    """

    def __init__(self, config: RunConfig, sizes: GraphSizes) -> None:
        self.config, self.sizes = config, sizes
        self.training: Training = config.training
        self.widths: Widths = (sizes.features, *config.model.hidden)
        dims = range(len(self.widths))
        if unknown := sorted(config.partitioned_dims - set(dims)):
            raise InputError(f"d_{unknown[0]} cannot be partitioned: the model has d_0 (inputs) to d_{dims[-1]}")
        self.partition = Partition(
            self.widths,
            config.sub_gcns,
            whole=set(dims) - config.partitioned_dims,
            kind=config.partition,
            seed=config.seed,
            names=[f"d_{dim}" for dim in dims],
        )

    @cached_property
    def layout(self) -> Layout:
        """The likeliest one: the order of features, which is what a proof is about, changes no size."""
        return next(candidate_layouts(self.build, self.widths, shared=False))

    @property
    def fused(self) -> bool:
        """Whether the sub-GCNs train in one pass over each batch, as far as that can be told without one."""
        shared = self.config.sampler is None or self.config.sampler.batches == "shared"
        return self.config.runner == "fused" and self.config.sub_gcns > 1 and shared and 0 in self.partition.whole

    @property
    def carries(self) -> bool:
        """Whether moments are kept from round to round."""
        return self.training.optimizer_state == "carry" or self.config.sub_gcns == 1

    def build(self, widths: Widths) -> nn.Module:
        """The model at the given numbers of features, d_0 first."""
        return self.config.model.build(widths[0], widths[1:], self.sizes.classes)

    def columns(self, blocks: Blocks) -> Tensor | None:
        """The input features that a sub-GCN sees, or None where it sees all of them."""
        return None if 0 in self.partition.whole else blocks[0]


def possible(config: RunConfig, sizes: GraphSizes, sub_gcns: tuple[int, ...]) -> list[int]:
    """Those of some m that the run's widths can be split into."""
    found = []
    for m in sub_gcns:
        try:
            Shapes(replace(config, sub_gcns=m), sizes)
        except InputError:
            continue
        found.append(m)
    return found
