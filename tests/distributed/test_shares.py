"""Rows of Θ dealt to ranks."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gistgnn.distributed.ranks import pack, packed_bytes, unpack
from gistgnn.layout.axes import named_tensors
from gistgnn.partition import Partition
from gistgnn.theta.model_spec import TensorSpec
from gistgnn.theta.sharded import Shares
from gistgnn.theta.slices import Slices, gather
from tests.helpers.models import built, every_model, layout_of

NAMES = ["gcn batch 2", "graphsage layer 3", "gat none 2", "residual", "features", "jumping over x"]
TYPES = [torch.float32, torch.int64, torch.bool, torch.float64, torch.bfloat16]


@given(
    st.lists(st.tuples(st.lists(st.integers(0, 4), max_size=3), st.sampled_from(TYPES)), max_size=6),
    st.integers(0, 2**31),
)
@settings(deadline=None)
def test_what_is_packed_is_unpacked(forms: list[tuple[list[int], torch.dtype]], seed: int) -> None:
    torch.manual_seed(seed)
    tensors = [torch.randint(0, 2, shape).to(dtype) for shape, dtype in forms]
    buffer = pack(tensors, torch.device("cpu"))
    like = [(tensor.shape, tensor.dtype) for tensor in tensors]
    assert len(buffer) == packed_bytes(like)
    assert len(buffer) % 8 == 0  # so that what follows is aligned
    for tensor, found in zip(tensors, unpack(buffer, like), strict=True):
        assert torch.equal(tensor, found)


@settings(deadline=None)
@given(st.sampled_from(NAMES), st.integers(1, 5), st.integers(1, 4), st.integers(0, 2**31))
def test_pieces_of_all_ranks_make_up_a_slice(name: str, ranks: int, m: int, seed: int) -> None:
    _, widths = every_model()[name]
    features = [11] if isinstance(widths, int) else list(range(9, 9 + len(widths)))
    tensors = named_tensors(built(name, features, seed % 100))
    slices = Slices(layout_of(name), layout_of(name).widths(features))
    shares = Shares(slices, {name: TensorSpec(t.shape, t.dtype) for name, t in tensors.items()}, ranks)
    for blocks in Partition(features, m, seed=seed).blocks(0):
        whole = {key: gather(tensor, slices.cuts(blocks)[key]) for key, tensor in tensors.items()}
        found = {key: torch.zeros_like(tensor).reshape(-1, *tensor.shape[1:]) for key, tensor in whole.items()}
        times = {key: torch.zeros(len(tensor)) for key, tensor in found.items()}
        for rank in range(ranks):
            for piece in shares.pieces(blocks, rank):
                own = shares.rows(piece.name, rank)
                rows = tensors[piece.name].reshape(-1, *tensors[piece.name].shape[1:])[own.start : own.stop]
                part = gather(rows, piece.cut)
                assert (part.shape, part.dtype) == piece.spec
                found[piece.name][piece.rows] = part
                times[piece.name][piece.rows] += 1
        for key, tensor in whole.items():
            assert torch.equal(found[key].view(tensor.shape), tensor)
            assert (times[key] == 1).all()
