"""Damaged and hostile graph files: changed bytes, headers, arrays and attributes."""

import contextlib
import io
import json
import math
import os
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch

from benchmarks.attack.case import Outcome, Report, Workspace, run_command
from benchmarks.attack.damage import Change, put_special
from benchmarks.attack.valid import arrays, data
from gistgnn.errors import InputError
from gistgnn.graphs import Graph, load, load_nodes

_ODD_NAMES = ["$x_{$", "a\nb", "\x1b[31m", os.fsdecode(b"\xff\xfe"), "-x", "a" * 200]
_ODD_NAMES += ["ü", "\u202eabc", "%s{}", "..."]
_SHAPES = ["(-1,)", f"({2**62},)", f"({10**30}, 2)", "()", "(0,)", "(2, 0)", "40"]
_SHAPES += ["(1, 1, 1, 1, 1)", "(None,)", "(" * 3000, "(" + "1, " * 70 + ")"]
_SHAPES += ["(True,)", "(1.5,)", "('a',)", f"({2**32}, {2**32})"]
_DTYPES = ["<f4", ">i8", "|O", "<U4", "|S3", "<c16", "<M8[ns]", "|V8", "<f2", "|b1", "<u8"]
_DTYPES += ["<f16", "x", "<i99", "[('a', '<f4')]"]
_CASTS = ["f4", "f8", "i8", "u8", "i1", "f2", "?", "c8", "U5", "S3", "M8[s]", "f16"]
_NUMBERS = [np.nan, np.inf, -1, 2**62, 2**31, 0, 1e30, -(2**63), 40, 39]
_HEADS = [b"", b"PK\x03\x04", b"PK\x05\x06" + b"\0" * 18, b"\x93NUMPY\x01\x00"]
_HEADS += [b"\x80\x02", b"\x80\x02}q\x00.", b"{}", b"\0" * 64]
_TRAIN = "--hidden 8 --sub-gcns 2 --epochs 2 --device cpu --out out"


def files(rng: Random, workspace: Workspace) -> Report:
    """Run a command on a graph file that was changed in one way, or that is no file at all."""
    name, change = rng.choice(list(_CHANGES.items()))
    suffix = rng.choice([".npz", ".pt"])
    odd_name = rng.choice(_ODD_NAMES)
    stem = rng.choice(["g", "g", "g", odd_name])
    path = workspace.folder / f"{stem}{suffix}"
    note = change(rng, path, workspace.valid / f"own{suffix}")
    describe = ["datasets", path.name, "--json"]
    partition = ["partition", "--dataset", path.name, "--clusters", "2"]
    words = rng.choice([describe, partition])
    if rng.random() < 0.2:
        words = ["train", "--dataset", path.name, *_TRAIN.split()]
    if rng.random() < 0.2:
        words = [
            "predict",
            str(workspace.valid / "run"),
            "--dataset",
            path.name,
            "--output",
            "out.csv",
        ]

    def judge(outcome: Outcome) -> str:
        if outcome.status == 0 and name in ("flips", "cut") and path.exists() and not _same(path):
            return "accepts a damaged file, and reads other values"
        return "accepts what cannot be a graph" if outcome.status == 0 and name in _NEVER else ""

    return run_command(workspace, words, judge, f"{name}: {note}")


def _same(path: Path) -> bool:
    """Whether a file, as far as it can be read, holds the values of the valid graph."""
    graph = Graph.build(**arrays())
    other = {**graph.tensors, "edge_index": graph.edge_index}
    try:
        read = load(path)
        values = {**read.tensors, "edge_index": read.edge_index}
    except InputError:  # The command reads features and edges alone.
        x, edge_index, *_ = load_nodes(path)
        values = {"x": x, "edge_index": edge_index}
    return all(np.array_equal(value.numpy(), other[name].numpy()) for name, value in values.items())


def _flips(rng: Random, path: Path, valid: Path) -> str:
    content = bytearray(valid.read_bytes())
    offsets = [rng.randrange(len(content)) for _ in range(rng.choice([1, 1, 2, 8, 64]))]
    for offset in offsets:
        content[offset] ^= rng.choice([1, 128, 255, rng.randrange(1, 256)])
    path.write_bytes(content)
    return f"bytes {offsets[:4]}"


def _cut(rng: Random, path: Path, valid: Path) -> str:
    content = valid.read_bytes()
    begin, end = sorted(rng.sample(range(len(content) + 1), 2))
    path.write_bytes(rng.choice([content[:end], content[begin:], content[:begin] + content[end:]]))
    return f"{path.stat().st_size} of {len(content)} bytes"


def _rubbish(rng: Random, path: Path, valid: Path) -> str:
    path.write_bytes(rng.choice(_HEADS) + rng.randbytes(rng.choice([0, 1, 100, 5000])))
    return f"{path.stat().st_size} bytes"


def _members(rng: Random, path: Path, valid: Path) -> str:
    """Write the archive with one member changed: its name, its content, or its directory entry."""
    with zipfile.ZipFile(valid) as archive:
        members = {info.filename: archive.read(info) for info in archive.infolist()}
    name = rng.choice(list(members))
    change = rng.choice(["drop", "rename", "twice", "text", "flags", "method", "size", "path"])
    with zipfile.ZipFile(path, "w") as archive:
        for member, content in members.items():
            changed = {
                "drop": [],
                "rename": [("other.npy", content)],
                "path": [(f"../../{member}", content)],
                "twice": [(member, content), (member, content[:-1])],
                "text": [(member.removesuffix(".npy"), b"text")],
            }
            entries = [(member, content)]
            if member == name:
                entries = changed.get(change, entries)
            for entry in entries:
                archive.writestr(*entry)
    if change in ("flags", "method", "size"):
        _spoil_directory(rng, path, change)
    return f"{change} {name}"


def _spoil_directory(rng: Random, path: Path, field: str) -> None:
    """Change a member's entry in the directory at the archive's end, and in front of the member."""
    content = bytearray(path.read_bytes())
    for signature, shift in ((b"PK\x01\x02", 2), (b"PK\x03\x04", 0)):
        starts = [i for i in range(len(content) - 4) if content[i : i + 4] == signature]
        start = rng.choice(starts) + shift if shift else starts[0]
        if field == "flags":
            content[start + 6] |= rng.choice([1, 64, 32])
        elif field == "method":
            content[start + 8 : start + 10] = struct.pack("<H", rng.choice([1, 9, 12, 14, 95, 8]))
        elif shift:
            sizes = [rng.choice([0, 2**31, 2**32 - 1]) for _ in range(2)]
            content[start + 18 : start + 26] = struct.pack("<II", *sizes)
    path.write_bytes(content)


def _header(rng: Random, path: Path, valid: Path) -> str:
    """Give one array another header, with a checksum that is right."""
    graph = arrays()
    name = rng.choice(list(graph))
    shape = rng.choice([repr(graph[name].shape), *_SHAPES])
    dtype = rng.choice([repr(graph[name].dtype.str), *map(repr, _DTYPES)])
    order = rng.choice(["False", "True", "7"])
    text = f"{{'descr': {dtype}, 'fortran_order': {order}, 'shape': {shape}, }}"
    broken = [text[: rng.randrange(len(text))], "{}", text + "\n" * 70000, "__import__('os')"]
    text = rng.choice([text, text, text, *broken])
    version = rng.choice([(1, 0), (1, 0), (2, 0), (3, 0), (9, 9)])
    encoded = text.encode()[:65000]
    length = rng.choice([len(encoded), len(encoded), 65535, 0])
    packed_length = struct.pack("<H" if version[0] == 1 else "<I", length)
    with zipfile.ZipFile(path, "w") as archive:
        for key, value in graph.items():
            buffer = io.BytesIO()
            np.save(buffer, value)
            head = b"\x93NUMPY" + bytes(version) + packed_length
            spoilt = head + encoded + value.tobytes()
            archive.writestr(f"{key}.npy", spoilt if key == name else buffer.getvalue())
    return f"{name} {text[:60]!r} {version}"


def _values(rng: Random, path: Path, valid: Path) -> str:
    """Change the values, the dtype or the shape of one array."""
    graph = arrays()
    name = rng.choice([*graph, "num_classes", "edge_weight", "edge_attr", "edge_type"])
    with np.errstate(all="ignore"):
        plain = graph.get(name, np.zeros(len(graph["edge_index"][0])))
        array = np.array(plain, dtype=rng.choice(_CASTS))
        # As an assignment computes its right side first, the number is drawn before the range.
        number = rng.choice(_NUMBERS)
        begin = rng.randrange(max(array.size, 1))
        end = rng.choice([1, 2, 10**6])
        with contextlib.suppress(ValueError, OverflowError, TypeError):
            array.reshape(-1)[begin:end] = number
    shapes = [array, array, array.T, array[:-1], array[:0], array[None], array.reshape(-1)]
    array = rng.choice([*shapes, np.array(7), np.array(2**62)])
    if rng.random() < 0.1:
        array = np.array([{"an": "object"}] * 40, dtype=object)
    if path.suffix == ".npz":
        np.savez(path, **{**graph, name: array})
    else:
        saved = data()
        key = f"{name}_mask" if name in ("train", "val", "test") else name
        with contextlib.suppress(TypeError, ValueError):
            saved[key] = torch.from_numpy(np.array(array))
        torch.save(saved, path)
    return f"{name} {array.dtype} {array.shape}"


def _attributes(rng: Random, path: Path, valid: Path) -> str:
    """Give a `Data` an attribute that is no plain tensor."""
    graph: Any = data()
    name = rng.choice(list(graph.keys()))
    note, value = _odd_tensor(rng, graph[name])
    graph[name] = value
    other_forms = [{"data": graph}, value, [graph], graph.to_dict()]
    return _saved(rng.choice([graph] * 8 + other_forms), path, f"{name}: {note}")


def _saved(value: Any, path: Path, note: str) -> str:
    try:
        torch.save(value, path)
    except Exception as error:  # torch cannot write it
        path.write_bytes(b"")
        return f"{note} cannot be saved: {type(error).__name__}"
    return note


def _store(rng: Random, path: Path, valid: Path) -> str:
    """Take the store of a `Data` away, or replace it by something else."""
    graph = data()
    change = rng.choice(["no store", "a list", "no mapping", "a mapping of numbers", "itself"])
    if change == "no store":
        graph.__dict__.pop("_store")
    elif change in ("a list", "itself"):
        graph.__dict__["_store"] = [1, 2] if change == "a list" else graph
    else:
        mapping = None if change == "no mapping" else {1: 2, None: 3, "x": 7}
        graph.__dict__["_store"].__dict__["_mapping"] = mapping
    return _saved(graph, path, change)


def _special(rng: Random, path: Path, valid: Path) -> str:
    kind = rng.choice(
        ["pipe", "zero", "folder", "loop", "dangling", "unreadable", "empty", "terminal"]
    )
    if kind not in ("unreadable", "empty"):
        return put_special(path, kind)
    path.write_bytes(b"" if kind == "empty" else valid.read_bytes())
    path.chmod(0o600 if kind == "empty" else 0)
    return kind


def _sound(rng: Random, path: Path, valid: Path) -> str:
    path.write_bytes(valid.read_bytes())
    return ""


_CHANGES: dict[str, Change] = {
    "flips": _flips,
    "cut": _cut,
    "rubbish": _rubbish,
    "members": _members,
    "header": _header,
    "values": _values,
    "attributes": _attributes,
    "store": _store,
    "special": _special,
    "sound": _sound,
}
_NEVER = ("rubbish", "store")


_TYPES = [torch.complex64, torch.uint16, torch.bfloat16, torch.bool]
_TYPES += [torch.int8, torch.float64, torch.float8_e4m3fn]


def _odd_tensor(rng: Random, plain: Any) -> tuple[str, Any]:
    """Return a value that takes the place of a plain tensor, after its name."""
    size = list(plain.shape)
    kind = rng.choice(_TYPES)
    ragged = [torch.zeros(2), torch.zeros(3)]
    bits = rng.choice([torch.float4_e2m1fn_x2, torch.bits8, torch.uint4])
    makers: list[Callable[[], Any]] = [
        lambda: plain.to("meta"),
        lambda: torch.empty(2**40, 2, device="meta"),
        lambda: plain[:0],
        lambda: torch.quantize_per_tensor(plain.float(), 1.0, 0, torch.qint8),
        lambda: plain.to_sparse(),
        lambda: torch.nested.nested_tensor(ragged),
        lambda: torch.nested.nested_tensor(ragged, layout=torch.jagged),
        lambda: plain.to(kind),
        lambda: plain.to(kind),
        lambda: plain.to(kind),
        lambda: torch.empty(size, dtype=bits),
        lambda: torch.zeros(1, 1).expand(2**20, 2**20),
        lambda: torch.zeros(1, dtype=plain.dtype).expand(2**45),
        lambda: plain[:1].expand(size),
        lambda: torch.eye(40).to_sparse_csr(),
        lambda: plain[None].mT,
        lambda: plain.to(torch.complex64).conj(),
        lambda: torch.nn.Parameter(plain.float()),
        lambda: torch.full(size, 2**63 - 1).view(torch.uint64),
        lambda: torch.full(size, -1).view(torch.uint64),
        lambda: torch.full(size, math.nan),
        lambda: torch.full(size, 1e300, dtype=torch.float64),
        lambda: torch.tensor(1),
        lambda: torch.stack([plain, plain], -1)[..., 0],
        lambda: plain.untyped_storage(),
        lambda: "text",
        lambda: None,
        lambda: plain.tolist(),
        lambda: [[1], [1, 2]],
        lambda: {"a": plain},
        lambda: 10**30,
        lambda: json.loads("[" * 900 + "]" * 900),
        lambda: [plain, plain],
        lambda: plain.shape,
        lambda: plain.dtype,
    ]
    number = rng.randrange(len(makers))
    return f"odd value {number} ({kind}, {bits})", makers[number]()
