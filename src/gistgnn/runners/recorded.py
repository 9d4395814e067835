"""Steps that are recorded once on a GPU and started as a whole, as a CUDA graph.

A step of narrow sub-GCNs has a hundred small kernels. Starting them one by one takes the host
longer than the GPU needs to run them. A recorded step is started at once. Its shapes are fixed, so
a batch is copied into tensors of a fixed size: nodes and edges are added that nothing else is
connected with, and their losses do not count.
"""

import logging
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from gistgnn.errors import reason
from gistgnn.graphs import CSR
from gistgnn.nn.adjacency import Operator
from gistgnn.nn.gnn import as_gnn, only_reads
from gistgnn.sampling import Batch, FullGraph, Sampler
from gistgnn.settings import Training

log = logging.getLogger(__name__)

SIZES = 64  # The numbers of nodes and edges of a fixed batch are multiples of this.
# Steps before a recording, in which libraries prepare themselves and optimisers make their states.
STEPS_BEFORE = 3


class FixedBatch:
    """A batch of a fixed size, whose tensors keep their places while batches are copied into them.

    What a smaller batch leaves over are spare nodes: they have no loss, and the spare edges lead
    from one spare node to another.

    Args:
        batch: the first one.
        nodes, edges: of all batches; at least two nodes more than the largest has.
    """

    def __init__(self, batch: Batch, nodes: int, edges: int) -> None:
        device = batch.x.device
        pattern = batch.adj.pattern
        self.nodes = nodes
        self.edges = edges
        self._x = batch.x.new_zeros(nodes, batch.x.shape[1])
        self._y = batch.y.new_zeros(nodes, *batch.y.shape[1:])
        self._weights = batch.x.new_zeros(nodes)
        self._rowptr = pattern.rowptr.new_zeros(nodes + 1)
        self._col = pattern.col.new_zeros(edges)
        # How many nodes and edges the batch has, which is read on the GPU.
        self._nodes = torch.zeros((), dtype=torch.int64, device=device)
        self._edges = torch.zeros((), dtype=torch.int64, device=device)
        # The products of the whole graph, for the nodes of the batch.
        self._products: dict[Operator, Tensor] = {}
        self._current: Batch | None = None

    def fits(self, batch: Batch) -> bool:
        """Whether a batch can be copied into this one."""
        edges = batch.edges
        is_copied = isinstance(edges, CSR) and edges.loops == 0 and batch.x.layout is torch.strided
        return is_copied and len(batch.x) + 2 <= self.nodes and batch.adj.num_edges <= self.edges

    def copy(self, batch: Batch) -> None:
        """Take the values of a batch."""
        nodes = len(batch.x)
        edges = batch.adj.num_edges
        self._current = batch
        self._x[:nodes].copy_(batch.x)
        self._y[:nodes].copy_(batch.y)
        self._rowptr[: nodes + 1].copy_(batch.adj.pattern.rowptr)
        self._col[:edges].copy_(batch.adj.pattern.col)
        self._nodes.fill_(nodes)
        self._edges.fill_(edges)
        self._weights.zero_()
        if batch.loss_weights is None:
            self._weights.index_fill_(0, batch.loss_nodes, 1 / len(batch.loss_nodes))
        else:
            self._weights.index_copy_(
                0, batch.loss_nodes, batch.loss_weights.to(self._weights.dtype)
            )
        for operator in self._products:
            self._take_product(operator)

    def batch(self) -> Batch:
        """Return the batch, with nothing computed of it."""
        assert self._current is not None
        product = self._product if self._current.product is not None else None
        all_nodes = torch.arange(self.nodes, device=self._x.device)
        return Batch(
            self._x,
            self._pattern(),
            self._y,
            all_nodes,
            product,
            sparse=False,
            loss_weights=self._weights,
        )

    def _pattern(self) -> CSR:
        """Return the edges of the batch, and the spare ones.

        Each spare node but the last has its share of the spare edges. They come from the spare node
        after it.
        """
        device = self._col.device
        owners = self.nodes - 1 - self._nodes  # How many spare nodes have edges.
        spare = self.edges - self._edges
        # The numbers of the spare nodes from 1 on; 0 and below belong to the batch.
        places = torch.arange(self.nodes + 1, device=device) - self._nodes
        ends = ((places * spare + owners - 1) // owners).minimum(spare) + self._edges
        rowptr = torch.where(places > 0, ends.to(self._rowptr.dtype), self._rowptr)
        # The numbers of the spare edges from 0 on; those below 0 belong to the batch.
        numbers = torch.arange(self.edges, device=device) - self._edges
        sources = numbers * owners // spare.clamp(min=1) + self._nodes + 1
        col = torch.where(numbers >= 0, sources.to(self._col.dtype), self._col)
        return CSR(rowptr, col, (self.nodes, self.nodes), loops=0)

    def _product(self, operator: Operator) -> Tensor:
        """Return the rows of the whole graph's product, which later batches fill anew."""
        if operator not in self._products:
            assert self._current is not None
            assert self._current.product is not None
            product = self._current.product(operator)
            self._products[operator] = product.new_zeros(self.nodes, product.shape[1])
            self._take_product(operator)
        return self._products[operator]

    def _take_product(self, operator: Operator) -> None:
        batch = self._current
        assert batch is not None
        product = batch.adj.cached_product(operator, batch.x)
        assert product is not None
        self._products[operator][: len(product)].copy_(product)


class ConstantBatch:
    """A batch that is the same in every step, such as the whole graph: nothing is copied."""

    def __init__(self, batch: Batch) -> None:
        self._batch = batch

    def fits(self, batch: Batch) -> bool:
        """Whether this is the batch."""
        return batch is self._batch

    def copy(self, batch: Batch) -> None:
        """Do nothing: the values are there."""

    def batch(self) -> Batch:
        """Return the batch; what is computed of it is kept."""
        return self._batch


class Recording:
    """What a function does on a GPU, as a CUDA graph.

    Args:
        function: takes no arguments, and does not wait for the GPU.
        stream: on which it is recorded.

    Attributes:
        result: the tensor that the function has returned; `replay` writes new values into it.

    Raises:
        RuntimeError: the function cannot be recorded.
    """

    def __init__(self, function: Callable[[], Tensor], stream: Any) -> None:
        self._graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        # Another thread makes the next batch meanwhile.
        with torch.cuda.graph(self._graph, stream=stream, capture_error_mode="thread_local"):
            self.result = function()

    def replay(self) -> None:
        """Do it again."""
        self._graph.replay()


class RecordedSteps:
    """The steps of a group of sub-GCNs, recorded once there were a few.

    All of them, also the first ones, are taken on the same `FixedBatch`. So dropout does not depend
    on which steps were recorded, and a resumed run is the unbroken one.

    Args:
        optimizer: what takes the steps. Its learning rates become tensors.
        batches: what the steps are taken on.
    """

    def __init__(self, optimizer: Optimizer, batches: FixedBatch | ConstantBatch) -> None:
        self._optimizer = optimizer
        self._batches = batches
        self._stream = torch.cuda.Stream()
        self._recording: Recording | None = None
        self._steps = 0
        self.failure: str | None = None  # Why steps cannot be recorded.
        for group in optimizer.param_groups:
            # The kernels of every step read the learning rate, so it is on the GPU.
            group["lr"] = torch.tensor(float(group["lr"]), device=group["params"][0].device)
            group["capturable"] = True

    def fits(self, batch: Batch) -> bool:
        """Whether a step can be taken on a batch."""
        return self._batches.fits(batch)

    def step(self, take_step: Callable[[Batch], Tensor], batch: Batch) -> Tensor:
        """Take a step on a batch that fits.

        Args:
            take_step: computes the losses of a batch, [m], and takes a step, without waiting for
                the GPU. It is not kept: what takes the steps has this object, and a cycle would
                keep its memory on the GPU until Python looks for cycles.
            batch: what the step is taken on.

        Returns:
            The losses, [m], which the next step overwrites.
        """
        self._batches.copy(batch)
        self._steps += 1
        if self._recording is None and self._steps > STEPS_BEFORE and self.failure is None:
            self._record(take_step)
        if self._recording is not None:
            self._recording.replay()
            return self._recording.result
        # Where a recording is made later, libraries prepare themselves on its stream.
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            losses = take_step(self._batches.batch())
        torch.cuda.current_stream().wait_stream(self._stream)
        return losses

    def _record(self, take_step: Callable[[Batch], Tensor]) -> None:
        # The recording then has memory of its own for gradients.
        self._optimizer.zero_grad(set_to_none=True)
        try:
            self._recording = Recording(lambda: take_step(self._batches.batch()), self._stream)
        except RuntimeError as error:  # There may be too little memory.
            self.failure = reason(error)
            log.info("steps are not recorded on the GPU: %s", self.failure)


def recorded_steps(
    model: nn.Module,
    batch: Batch,
    sampler: Sampler,
    training: Training,
    optimizer: Optimizer,
) -> RecordedSteps | None:
    """Return the recorded steps of a model on a sampler's batches; None if they cannot be."""
    if not can_record(model, batch, training):
        return None
    if isinstance(sampler, FullGraph):
        return RecordedSteps(optimizer, ConstantBatch(batch))
    if sampler.largest_batch is None or batch.is_sparse or batch.edge_data:
        return None
    nodes, edges = (-(-size // SIZES) * SIZES for size in sampler.largest_batch)
    return RecordedSteps(optimizer, FixedBatch(batch, nodes + SIZES, edges))


def can_record(model: nn.Module, batch: Batch, training: Training) -> bool:
    """Whether steps of a model can be recorded: it is ours, and computes nothing on the host."""
    gnn = as_gnn(model)
    return (
        batch.x.device.type == "cuda"
        and gnn is not None
        and only_reads(model)
        and gnn.norm in ("none", "layer")  # Other norms depend on all nodes, also on spare ones.
        and not any(True for _ in model.buffers())
        and training.loss is None
        and training.schedule_changes_rate_alone
    )
