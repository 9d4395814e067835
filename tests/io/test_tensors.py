import json
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save_file

from gistgnn.io import tensors as tensor_files
from gistgnn.io.tensors import DTYPES, TensorFile, find_tensors, row_pieces, shards_of
from tests.helpers.refusals import refused
from tests.nn.strategies import examples


def numbers(shape: list[int], dtype: torch.dtype) -> torch.Tensor:
    return (torch.randn(shape) * 50).to(dtype)


@examples
@given(st.data(), st.sampled_from([1, 4096]))
def test_what_was_saved_is_found_and_read(data: st.DataObject, page: int) -> None:
    shapes = st.lists(st.integers(0, 5), max_size=3)
    kinds = st.tuples(shapes, st.sampled_from(list(DTYPES.values())))
    saved = {f"t{i}": numbers(*kind) for i, kind in enumerate(data.draw(st.lists(kinds, min_size=1, max_size=5)))}
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(tensor_files, "_PAGE", page)
        path = Path(folder) / "t.safetensors"
        save_file(saved, path)
        places, file = find_tensors(path), TensorFile(path)
        assert places.keys() == saved.keys()
        for name, expected in saved.items():
            assert places[name].nbytes == expected.nbytes
            assert torch.equal(file.read(places[name]), expected)
            if expected.dim():
                rows = slice(*sorted(data.draw(st.tuples(*2 * [st.integers(0, len(expected))]))))
                assert torch.equal(file.read(places[name], rows), expected[rows])
            if expected.dim() == 2:
                columns = slice(*sorted(data.draw(st.tuples(*2 * [st.integers(0, expected.shape[1])]))))
                assert torch.equal(file.read(places[name], rows, columns), expected[rows, columns])


def test_a_file_that_is_replaced_stays_readable(tmp_path: Path) -> None:
    path = tmp_path / "t.safetensors"
    save_file({"t": torch.ones(3)}, path)
    place, file = find_tensors(path)["t"], TensorFile(path)
    save_file({"t": torch.zeros(3)}, tmp_path / "other")
    (tmp_path / "other").replace(path)
    assert file.read(place).tolist() == [1, 1, 1]


def written(path: Path, header: object, data: bytes = b"") -> Path:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)
    return path


def entry(begin: int, end: int, *shape: int, dtype: str = "F32") -> dict[str, object]:
    return {"dtype": dtype, "shape": list(shape), "data_offsets": [begin, end]}


@pytest.mark.parametrize(
    ("header", "size", "said"),
    [
        (b"{torn", 0, "JSONDecodeError"),
        (b"[1]", 0, "TypeError"),
        ({"t": entry(0, 8, 2)}, 7, "its tensors take"),
        ({"t": entry(0, 8, 2)}, 9, "its tensors take"),
        ({"t": entry(0, 8, 3)}, 8, "'t' [3] has 8 bytes"),
        ({"t": entry(0, 8, -2, -1)}, 8, "'t' [-2, -1] has 8 bytes"),
        ({"t": entry(4, 12, 2)}, 12, "a gap at byte 0"),
        ({"t": entry(0, 8, 2), "u": entry(4, 12, 2)}, 12, "a gap at byte 8"),
        ({"t": entry(0, 8, 2, dtype="F8")}, 8, "KeyError: 'F8'"),
        ({"t": {"dtype": "F32"}}, 8, "KeyError"),
    ],
)
def test_damaged_files(tmp_path: Path, header: object, size: int, said: str) -> None:
    path = written(tmp_path / "t.safetensors", header, bytes(size))
    with refused(f"{path} cannot be loaded", said, "make it again"):
        find_tensors(path)


def test_files_that_are_none(tmp_path: Path) -> None:
    with refused("missing cannot be loaded (FileNotFoundError"):
        find_tensors(tmp_path / "missing")
    with refused("missing cannot be opened (No such file"):
        TensorFile(tmp_path / "missing")
    for content in (b"", b"torn", (2**60).to_bytes(8, "little") + b"{}"):
        (tmp_path / "t").write_bytes(content)
        with refused(f"it has {len(content)} bytes, and no header"):
            find_tensors(tmp_path / "t")


def test_a_file_that_is_cut_short_later(tmp_path: Path) -> None:
    path = tmp_path / "t.safetensors"
    save_file({"t": torch.ones(100)}, path)
    place, file = find_tensors(path)["t"], TensorFile(path)
    with path.open("r+b") as opened:
        opened.truncate(path.stat().st_size - 4)
    with refused(f"{path} cannot be read (it is cut short)"):
        file.read(place)


@given(st.integers(0, 30), st.integers(0, 9), st.integers(1, 40))
def test_row_pieces(rows: int, row_bytes: int, most: int) -> None:
    pieces = list(row_pieces(rows, row_bytes, most))
    assert [row for piece in pieces for row in range(rows)[piece]] == list(range(rows))
    assert all(piece.stop - piece.start == 1 or (piece.stop - piece.start) * row_bytes <= most for piece in pieces)


def test_shards_are_filled_in_order() -> None:
    sizes = dict(zip("abcdef", (4, 30, 5, 2, 8, 11), strict=True))
    assert shards_of(sizes, 10) == [["a", "c"], ["d", "e"], ["b"], ["f"]]
    assert shards_of(sizes, 60) == [list("abcdef")]
    assert shards_of({"b": 30}, 10) == [["b"]]
