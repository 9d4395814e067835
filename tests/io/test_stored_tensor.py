"""What is computed with a tensor in a file is what is computed with the tensor."""

import copy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from gistgnn.io import stored_tensor as tensor
from gistgnn.io.stored_tensor import StoredTensor
from gistgnn.nn import SparseMatrix
from tests.helpers.refusals import refused
from tests.io.stored_files import stand_in
from tests.nn.strategies import examples

W = torch.randn(9, 7)
X = torch.randn(5, 7)


@pytest.fixture
def weight(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StoredTensor:
    """W in a file, read two rows at a time."""
    monkeypatch.setattr(tensor, "BLOCK", 56)
    return stand_in(W, tmp_path)


def test_a_bias_in_a_file(weight: StoredTensor, tmp_path: Path) -> None:
    bias = torch.randn(9)
    (tmp_path / "bias").mkdir()
    torch.testing.assert_close(F.linear(X, weight, stand_in(bias, tmp_path / "bias")), F.linear(X, W, bias))


@examples
@given(
    st.data(),
    st.sampled_from([torch.float32, torch.float64, torch.bfloat16, torch.float16]),
    st.sampled_from([(), (3,), (2, 3), (0,)]),
    st.booleans(),
)
def test_linear(data: st.DataObject, dtype: torch.dtype, sizes: tuple[int, ...], with_bias: bool) -> None:
    rows, columns = data.draw(st.integers(1, 9), "rows"), data.draw(st.integers(1, 9), "columns")
    full = torch.randn(rows, columns).to(dtype)
    computed = torch.float64 if dtype == torch.float64 else torch.float32
    cut = tuple(slice(*sorted(data.draw(st.tuples(*2 * [st.integers(0, size)])))) for size in (rows, columns))
    expected = full.to(computed)[cut]
    x = torch.randn(*sizes, expected.shape[1], dtype=computed)
    bias = torch.randn(expected.shape[0], dtype=computed) if with_bias else None
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(tensor, "BLOCK", data.draw(st.sampled_from([1, 40, 10**6]), "block"))
        weight = stand_in(full, Path(folder))[cut]
        assert isinstance(weight, StoredTensor)
        assert (weight.shape, weight.dtype) == (expected.shape, computed)
        torch.testing.assert_close(weight.load(), expected, rtol=0, atol=0)
        torch.testing.assert_close(F.linear(x, weight, bias), F.linear(x, expected, bias))
        torch.testing.assert_close(x @ weight.t(), x @ expected.t())


BY_BLOCKS: dict[str, Callable[[Tensor], Tensor]] = {
    "linear": lambda w: F.linear(X, w),
    "transposed": lambda w: X @ w.t(),
    "transposed twice": lambda w: F.linear(X, w.T.mT),
    "not transposed": lambda w: torch.matmul(X[:4, :1].expand(4, 9), w),
    "mm": lambda w: torch.mm(X, w.t()),
    "halves": lambda w: F.linear(X[:, :3], w[:, :3]) + F.linear(X[:, 3:], w[:, 3:]),
    "sparse": lambda w: SparseMatrix.from_dense(X.relu()) @ w.t(),
    "no sparse rows": lambda w: SparseMatrix.from_dense(X).rows(slice(0, 0)) @ w.t(),
    "moved": lambda w: F.linear(X, w.detach().cpu().to("cpu").to(X).data),
    "of another type": lambda w: F.linear(X.double(), w.to(torch.float64)),
}


@pytest.mark.parametrize("name", BY_BLOCKS)
def test_products_never_read_the_whole(name: str, weight: StoredTensor, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = BY_BLOCKS[name](W)
    monkeypatch.setattr(tensor, "_with_values", None)
    read: list[int] = []
    monkeypatch.setattr(tensor.Part, "read", lambda part, of=tensor.Part.read: read.append(part.shape[0]) or of(part))
    torch.testing.assert_close(BY_BLOCKS[name](weight), expected)
    assert max(read, default=0) <= 4
    assert bool(read) == bool(len(expected))


WHOLE: dict[str, Callable[[Tensor], object]] = {
    "sum": lambda w: w.sum(),
    "times": lambda w: 2 * w + w,
    "from the left": lambda w: w @ X.t(),
    "of itself": lambda w: F.linear(w, w),
    "concatenated": lambda w: torch.cat([w, X], dim=0),
    "row": lambda w: w[3],
    "every other row": lambda w: w[::2],
    "chosen": lambda w: w[torch.tensor([2, 0])],
    "too many brackets": lambda w: w[:, :, None],
    "shaped": lambda w: w.view(3, 3, 7).transpose(0, 1).flatten(),
    "turned and cut": lambda w: w.t()[1:3],
    "sparse from the left": lambda w: X.to_sparse() @ w.t(),
    "addmm": lambda w: torch.addmm(torch.ones(5, 9), X, w.t()),
    "embedded": lambda w: F.embedding(torch.tensor([1, 1, 8]), w),
}


@pytest.mark.parametrize("name", WHOLE)
def test_everything_else_reads_the_whole(name: str, weight: StoredTensor) -> None:
    found = WHOLE[name](weight)
    assert not isinstance(found, StoredTensor)
    torch.testing.assert_close(found, WHOLE[name](W))


@pytest.mark.parametrize("shape", [(6,), (3, 2, 4)])
def test_tensors_that_are_no_matrix(shape: tuple[int, ...], tmp_path: Path) -> None:
    full = torch.randn(shape)
    found = stand_in(full, tmp_path)
    assert torch.equal(found[1:3].load(), full[1:3])
    assert torch.equal(found + 1, full + 1)
    assert torch.equal(found[1, ...], full[1])
    assert torch.equal(torch.cat([block for _, block in found.blocks()]), full)


def test_what_it_says_of_itself(weight: StoredTensor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensor.Part, "read", None)
    assert (weight.dim(), weight.numel(), len(weight), weight.nbytes) == (2, 63, 9, 252)
    assert (weight.device.type, weight.dtype, weight.requires_grad) == ("cpu", torch.float32, False)
    assert weight.to("meta").device.type == weight.to(device="meta").device.type == "meta"
    assert repr(weight).startswith("StoredTensor(shape=(9, 7), dtype=torch.float32, file='")
    assert copy.deepcopy(weight) is weight


@pytest.mark.parametrize(
    "change",
    [lambda w: w.mul_(2), lambda w: w.__setitem__(0, 1.0), lambda w: torch.add(W, W, out=w)],
    ids=["in place", "an item", "out"],
)
def test_it_cannot_be_changed(change: Callable[[Tensor], object], weight: StoredTensor) -> None:
    with refused("changes a weight that lies in a file", "load the model into memory"):
        change(weight)


def test_other_numbers_are_computed_where_autocast_wants_it(weight: StoredTensor) -> None:
    with torch.autocast("cpu", torch.bfloat16):
        found, expected = F.linear(X, weight), F.linear(X, W)
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found, expected)


def test_gradients_of_what_goes_through_it(weight: StoredTensor) -> None:
    gradients = []
    for w in (weight, W):
        x = X.clone().requires_grad_()
        F.linear(x, w).square().sum().backward()
        gradients.append(x.grad)
    torch.testing.assert_close(*gradients)


def test_an_error_of_reading_is_the_user_s(weight: StoredTensor) -> None:
    path = weight.part.place.path
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - 8)
    with refused(f"{path} cannot be read (it is cut short)"):
        F.linear(X, weight)


MEASURE = """
import json, sys, torch
from pathlib import Path
from torch import nn
from gistgnn.utils.process_memory import peak_memory_bytes
from gistgnn.io.stored_model import stored_model
from gistgnn.io.tensors import find_tensors
torch.set_num_threads(1)
def write(path, rows, columns):  # zeros that take no room on the disk
    span = {"weight": (rows, columns), "bias": (rows,)}
    header, begin = {}, 0
    for name, shape in span.items():
        end = begin + 4 * torch.Size(shape).numel()
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [begin, end]}
        begin = end
    text = json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + begin)
def run(rows, columns):
    path = Path(sys.argv[1])
    write(path, rows, columns)
    with torch.device("meta"):
        linear = nn.Linear(columns, rows)
    return stored_model(linear, find_tensors(path), above=2**24)(torch.ones(2, columns))
run(5000, 1000)
before = peak_memory_bytes(torch.device("cpu"))
assert not run(20_000, 8_000).any()
print(peak_memory_bytes(torch.device("cpu")) - before)
"""


def test_the_memory_is_that_of_a_few_blocks(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, str(tmp_path / "zeros")], capture_output=True, text=True, check=True
    )
    assert int(done.stdout) < tensor._BLOCKS * tensor.BLOCK < 20_000 * 8_000 * 4 / 2
