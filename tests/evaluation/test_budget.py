import subprocess
import sys

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gistgnn.evaluation.budget import (
    Budget,
    layer_costs,
    least_bytes,
    plan_layers,
    whole_graph_bytes,
)
from gistgnn.graphs.csr import row_chunks
from gistgnn.nn import MODELS
from gistgnn.sampling import Batch, forward
from gistgnn.utils.process_memory import PeakBytes
from tests.helpers.refusals import refused
from tests.nn.strategies import examples, widths

from .cases import random_batch, random_model


@given(
    st.lists(st.integers(0, 9), min_size=1, max_size=20),
    st.integers(1, 25),
    st.none() | st.integers(0, 30),
)
def test_row_chunks_cover_all_rows_and_are_not_too_large(
    degrees: list[int], rows: int, entries: int | None
) -> None:
    chunks = list(row_chunks(torch.tensor([0, *degrees]).cumsum(0), rows, entries))
    nodes = list(range(len(degrees)))
    assert [node for chunk in chunks for node in nodes[chunk]] == nodes
    for chunk in chunks:
        size = chunk.stop - chunk.start
        assert 1 <= size <= rows
        assert entries is None or size == 1 or sum(degrees[chunk]) <= entries


@examples
@given(st.sampled_from(sorted(MODELS)), widths, st.booleans(), st.integers(0, 10**6))
def test_the_stated_memory_suffices(name: str, widths: list[int], sparse: bool, extra: int) -> None:
    batch = random_batch(sparse=sparse)
    model = random_model(name, widths)
    least = least_bytes(layer_costs(model, batch), batch)
    with refused("layer by layer this model needs"):
        plan_layers(layer_costs(model, batch, Budget(least - 1)), batch, Budget(least - 1))
    on_gpu = least_bytes(layer_costs(model, batch, Budget(0, 0)), batch)
    for budget in (Budget(least + extra), Budget(extra, on_gpu)):
        plan = plan_layers(layer_costs(model, batch, budget), batch, budget)
        assert plan.work > 0
        assert plan.memory <= budget.compute
        assert plan.in_file == (plan.disk > 0)


MEASURE = """
import sys, threading, time, torch
from gistgnn.evaluation import Evaluation
from gistgnn.utils.process_memory import held_bytes
from gistgnn.nn import MODELS
from gistgnn.sampling import Batch
from torch_geometric.nn.models import GAT
torch.set_num_threads(1)
name, budget = sys.argv[1], int(sys.argv[2])
nodes, options = 30_000, {"heads": 2} if "gat" in name else {}
x, edge_index = torch.randn(nodes, 16), torch.randint(nodes, (2, 80_000))
batch = Batch(x, edge_index, torch.zeros(nodes), torch.arange(0))
width = 256 if "gat" in name else 512
def build(*widths):
    if name == "PyG's gat":
        return GAT(16, widths[0], len(widths) + 1, 8, norm="batch", **options).eval()
    return MODELS[name](16, widths, 8, norm="layer", **options).eval()
model = build(width, width)
most = 0
finished = False
def watch():
    global most
    while not finished:
        most = max(most, held_bytes())
        time.sleep(0.001)
threading.Thread(target=watch, daemon=True).start()
with torch.no_grad():
    small = build(4)
    Evaluation("layers").prepare(small, batch).logits(small)
    before = held_bytes()
    for method, limit in (("auto", budget), ("whole", None)):  # the one that takes less comes first
        most = 0
        inference = Evaluation(method, limit).prepare(model, batch)
        inference.logits(model)
        print(most - before, *inference.describe().values())
finished = True
"""


@pytest.mark.one_in(4)
@pytest.mark.parametrize(
    ("name", "share"), [("graphsage", 0.5), ("gat", 0.5), ("gatv2", 2.1), ("PyG's gat", 0.5)]
)
def test_the_budget_is_kept(name: str, share: float) -> None:
    """Pages of the temporary file are the system's.

    GATv2 holds the messages as sources and as targets.
    """
    one_layer = 30_000 * 512 * 4
    budget = int(share * one_layer)
    line = [sys.executable, "-c", MEASURE, name, str(budget)]
    completed = subprocess.run(line, capture_output=True, text=True, check=True)
    by_layers, by_whole_graph = completed.stdout.splitlines()
    grown, description = by_layers.split(maxsplit=1)
    assert description.startswith("layers True")
    assert int(grown) < budget + 2**25
    assert int(by_whole_graph.split()[0]) > (share + 1.5) * one_layer


@pytest.mark.parametrize("name", ["gcn", "graphsage", "gin"])
@pytest.mark.parametrize("width", [4, 128])
def test_the_first_pass_over_the_whole_graph_fits_the_estimate(name: str, width: int) -> None:
    rng = torch.Generator().manual_seed(0)
    x = torch.randn(2000, 128, generator=rng)
    edge_index = torch.randint(2000, (2, 6000), generator=rng)
    batch = Batch(x, edge_index, torch.zeros(2000, dtype=torch.long), torch.arange(0))
    model = MODELS[name](128, (width, width), 4).eval()
    estimated = whole_graph_bytes(model, batch)
    with torch.no_grad(), PeakBytes() as counted:
        forward(model, batch)
    assert counted.peak <= estimated < 2.2 * counted.peak
