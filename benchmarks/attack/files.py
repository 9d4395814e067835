"""Damaged and hostile graph files: valid ones whose bytes, headers, arrays or attributes are changed."""

import contextlib
import io
import os
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from benchmarks.attack.case import Outcome, Place, Report, run_command
from benchmarks.attack.tensors import odd_tensor
from benchmarks.attack.valid import arrays, data

_SHAPES = [
    "(-1,)", f"({2**62},)", f"({10**30}, 2)", "()", "(0,)", "(2, 0)", "40", "(1, 1, 1, 1, 1)", "(None,)", "(" * 3000,
]  # fmt: skip
_SHAPES += ["(" + "1, " * 70 + ")", "(True,)", "(1.5,)", "('a',)", f"({2**32}, {2**32})"]
_DTYPES = [
    "<f4", ">i8", "|O", "<U4", "|S3", "<c16", "<M8[ns]", "|V8", "<f2", "|b1", "<u8", "<f16", "[('a', '<f4')]", "x",
    "<i99",
]  # fmt: skip
_NUMBERS = [np.nan, np.inf, -1, 2**62, 2**31, 0, 1e30, -(2**63), 40, 39]


def files(rng: Random, place: Place) -> Report:
    """Describe, partition or train on a graph file that was changed in one way, or is no file at all."""
    name, change = rng.choice(list(_CHANGES.items()))
    suffix = rng.choice([".npz", ".pt"])
    path = place.own / f"{rng.choice(['g', 'g', 'g', _odd_name(rng)])}{suffix}"
    note = change(rng, path, place.valid / f"own{suffix}")
    words = rng.choice([["datasets", path.name, "--json"], ["partition", "--dataset", path.name, "--clusters", "2"]])
    if rng.random() < 0.2:
        words = [
            "train",
            "--dataset",
            path.name,
            *["--hidden", "8", "--sub-gcns", "2", "--epochs", "2", "--device", "cpu", "--out", "out"],
        ]
    if rng.random() < 0.2:
        words = ["predict", str(place.valid / "run"), "--dataset", path.name, "--output", "out.csv"]

    def judge(outcome: Outcome) -> str:
        if outcome.status == 0 and name in ("flips", "cut") and path.exists() and not _same(path):
            return "accepts a damaged file, and reads other values"
        return "accepts what cannot be a graph" if outcome.status == 0 and name in _NEVER else ""

    return run_command(place, words, judge, f"{name}: {note}")


def _odd_name(rng: Random) -> str:
    return rng.choice(
        ["$x_{$", "a\nb", "\x1b[31m", os.fsdecode(b"\xff\xfe"), "-x", "a" * 200, "ü", "\u202eabc", "%s{}", "..."]
    )


def _flips(rng: Random, path: Path, valid: Path) -> str:
    content = bytearray(valid.read_bytes())
    places = [rng.randrange(len(content)) for _ in range(rng.choice([1, 1, 2, 8, 64]))]
    for at in places:
        content[at] ^= rng.choice([1, 128, 255, rng.randrange(1, 256)])
    path.write_bytes(content)
    return f"bytes {places[:4]}"


def _cut(rng: Random, path: Path, valid: Path) -> str:
    content = valid.read_bytes()
    begin, end = sorted(rng.sample(range(len(content) + 1), 2))
    kept = rng.choice([content[:end], content[begin:], content[:begin] + content[end:]])
    path.write_bytes(kept)
    return f"{len(kept)} of {len(content)} bytes"


def _rubbish(rng: Random, path: Path, valid: Path) -> str:
    heads = [
        b"", b"PK\x03\x04", b"PK\x05\x06" + b"\0" * 18, b"\x93NUMPY\x01\x00", b"\x80\x02", b"\x80\x02}q\x00.", b"{}",
        b"\0" * 64,
    ]  # fmt: skip
    path.write_bytes(rng.choice(heads) + rng.randbytes(rng.choice([0, 1, 100, 5000])))
    return f"{path.stat().st_size} bytes"


def _members(rng: Random, path: Path, valid: Path) -> str:
    """Write the archive again with one member changed: its name, its header, its content, or its flags."""
    with zipfile.ZipFile(valid) as archive:
        members = {info.filename: archive.read(info) for info in archive.infolist()}
    name, what = (
        rng.choice(list(members)),
        rng.choice(["drop", "rename", "twice", "text", "flags", "method", "size", "path"]),
    )
    with zipfile.ZipFile(path, "w") as archive:
        for member, content in members.items():
            if member != name or what in ("flags", "method", "size"):
                archive.writestr(member, content)
            elif what == "twice":
                archive.writestr(member, content)
                archive.writestr(member, content[:-1])
            elif what == "text":
                archive.writestr(member.removesuffix(".npy"), b"text")
            elif what in ("rename", "path"):
                archive.writestr({"rename": "other.npy", "path": f"../../{member}"}[what], content)
    if what in ("flags", "method", "size"):
        _spoil_directory(rng, path, what)
    return f"{what} {name}"


def _spoil_directory(rng: Random, path: Path, what: str) -> None:
    """Change a member's entry in the directory at the archive's end, and in front of the member."""
    content = bytearray(path.read_bytes())
    for signature, shift in ((b"PK\x01\x02", 2), (b"PK\x03\x04", 0)):
        starts = [i for i in range(len(content) - 4) if content[i : i + 4] == signature]
        start = starts[rng.randrange(len(starts))] + shift if shift else starts[0]
        if what == "flags":
            content[start + 6] |= rng.choice([1, 64, 32])
        elif what == "method":
            content[start + 8 : start + 10] = struct.pack("<H", rng.choice([1, 9, 12, 14, 95, 8]))
        elif shift:
            content[start + 18 : start + 26] = struct.pack("<II", *[rng.choice([0, 2**31, 2**32 - 1]) for _ in "ab"])
    path.write_bytes(content)


def _header(rng: Random, path: Path, valid: Path) -> str:
    """Give one array another header, with a checksum that is right."""
    graph, name = arrays(), rng.choice(list(arrays()))
    shape = rng.choice([repr(graph[name].shape), *_SHAPES])
    dtype = rng.choice([repr(graph[name].dtype.str), *map(repr, _DTYPES)])
    text = f"{{'descr': {dtype}, 'fortran_order': {rng.choice(['False', 'True', '7'])}, 'shape': {shape}, }}"
    text = rng.choice(
        [text, text, text, text[: rng.randrange(len(text))], "{}", text + "\n" * 70000, "__import__('os')"]
    )
    version = rng.choice([(1, 0), (1, 0), (2, 0), (3, 0), (9, 9)])
    form = "<H" if version[0] == 1 else "<I"
    encoded = text.encode()[:65000]
    length = rng.choice([len(encoded), len(encoded), 65535, 0])
    with zipfile.ZipFile(path.with_suffix(".npz"), "w") as archive:
        for key, value in graph.items():
            buffer = io.BytesIO()
            np.save(buffer, value)
            content = buffer.getvalue()
            if key == name:
                content = b"\x93NUMPY" + bytes(version) + struct.pack(form, length) + encoded + value.tobytes()
            archive.writestr(f"{key}.npy", content)
    if path.suffix != ".npz":
        path.with_suffix(".npz").rename(path)
    return f"{name} {text[:60]!r} {version}"


def _values(rng: Random, path: Path, valid: Path) -> str:
    """Change the values, the dtype or the shape of one array."""
    graph = arrays()
    name = rng.choice([*graph, "num_classes", "edge_weight", "edge_attr", "edge_type"])
    old = graph.get(name, np.zeros(len(graph["edge_index"][0])))
    with np.errstate(all="ignore"):
        array = np.array(
            old, dtype=rng.choice(["f4", "f8", "i8", "u8", "i1", "f2", "?", "c8", "U5", "S3", "M8[s]", "f16"])
        )
        with contextlib.suppress(ValueError, OverflowError, TypeError):
            array.reshape(-1)[rng.randrange(max(array.size, 1)) : rng.choice([1, 2, 10**6])] = rng.choice(_NUMBERS)
    array = rng.choice(
        [array, array, array.T, array[:-1], array[:0], array[None], array.reshape(-1), np.array(7), np.array(2**62)]
    )
    if rng.random() < 0.1:
        array = np.array([{"an": "object"}] * 40, dtype=object)
    if path.suffix == ".npz":
        np.savez(path, **{**graph, name: array})
        return f"{name} {array.dtype} {array.shape}"
    import torch

    whole = data()
    attribute = f"{name}_mask" if name in ("train", "val", "test") else name
    with contextlib.suppress(TypeError, ValueError):
        whole[attribute] = torch.from_numpy(np.array(array))
    torch.save(whole, path)
    return f"{attribute} {array.dtype} {array.shape}"


def _attributes(rng: Random, path: Path, valid: Path) -> str:
    """Give a `Data` an attribute that is no plain tensor."""
    import torch

    whole: Any = data()
    name = rng.choice(list(whole.keys()))
    what, value = odd_tensor(rng, whole[name])
    whole[name] = value
    try:
        torch.save(rng.choice([whole] * 8 + [{"data": whole}, value, [whole], whole.to_dict()]), path)
    except Exception as error:  # torch cannot write it
        path.write_bytes(valid.read_bytes()[:100])
        return f"{what} cannot be saved: {type(error).__name__}"
    return f"{name} is {what}"


def _store(rng: Random, path: Path, valid: Path) -> str:
    """Take the store of a `Data` away, or put another thing in its place."""
    import torch

    whole = data()
    what = rng.choice(["no store", "a list", "no mapping", "a mapping of numbers", "itself"])
    if what == "no store":
        whole.__dict__.pop("_store")
    elif what == "a list":
        whole.__dict__["_store"] = [1, 2]
    elif what == "itself":
        whole.__dict__["_store"] = whole
    else:
        whole.__dict__["_store"].__dict__["_mapping"] = None if what == "no mapping" else {1: 2, None: 3, "x": 7}
    try:
        torch.save(whole, path)
    except Exception:  # torch cannot write it
        path.write_bytes(b"")
    return what


def _special(rng: Random, path: Path, valid: Path) -> str:
    """Put something in the place of the file that is no regular file."""
    what = rng.choice(["pipe", "device", "folder", "loop", "dangling", "unreadable", "empty", "terminal"])
    targets = {"device": "/dev/zero", "loop": path.name, "dangling": "nowhere", "terminal": "/dev/tty"}
    if what == "pipe":
        os.mkfifo(path)
    elif what == "folder":
        path.mkdir()
    elif what in targets:
        path.symlink_to(targets[what])
    else:
        path.write_bytes(b"" if what == "empty" else valid.read_bytes())
        path.chmod(0o600 if what == "empty" else 0)
    return what


def _sound(rng: Random, path: Path, valid: Path) -> str:
    path.write_bytes(valid.read_bytes())
    return ""


_CHANGES: dict[str, Callable[[Random, Path, Path], str]] = {
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


def _same(path: Path) -> bool:
    """Whether a file, as far as it can be read, holds the values of the valid graph."""
    from gistgnn.errors import InputError
    from gistgnn.graphs import Graph, load, load_nodes

    graph = Graph.build(**arrays())
    other = {**graph.tensors, "edge_index": graph.edge_index}
    try:
        read = load(path)
        found = {**read.tensors, "edge_index": read.edge_index}
    except InputError:  # features and edges were read alone
        x, edge_index, _ = load_nodes(path)
        found = {"x": x, "edge_index": edge_index}
    return all(np.array_equal(value.numpy(), other[name].numpy()) for name, value in found.items())
