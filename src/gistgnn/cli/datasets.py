"""`gistgnn datasets`: list the named data sets, or describe one data set or file."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gistgnn.cli.options import add_command, add_shared, print_json
from gistgnn.errors import InputError, printable
from gistgnn.utils.formats import plural, size

if TYPE_CHECKING:
    from gistgnn.graphs import DatasetInfo, Graph
    from gistgnn.graphs.cache import KeptFile

# what the JSON of the list has of a data set
_PUBLISHED = (
    "name", "description", "nodes", "edges", "features", "classes", "train", "split",
    "row_normalised", "standardise", "reader", "nonzero", "sparse",
)  # fmt: skip


def add_parser(commands: Any) -> None:
    """Add the command's options."""
    parser = add_command(
        commands, "datasets", _run, "list the data sets, or check one",
        takes="[NAME|FILE|FOLDER]",
        description="List the named data sets; or read one of them, a file or a graph folder, and "
        "describe it, with what gistgnn keeps for it to save time.",
        example="gistgnn datasets\ngistgnn datasets mine.npz\ngistgnn datasets big --verify\n"
        "gistgnn datasets big --clear-cache",
    )  # fmt: skip
    parser.add_argument(
        "dataset", nargs="?", metavar="NAME|FILE|FOLDER", help="load this one and describe it"
    )
    parser.add_argument(
        "--verify", action="store_true", help="compare all of a graph folder with its checksums"
    )
    text = "remove what is kept to save time: for this data set, or without one all in the cache"
    text += " folder"
    parser.add_argument("--clear-cache", action="store_true", help=text)
    add_shared(parser, "--data-root", "--json")


def _run(args: argparse.Namespace) -> int:
    from gistgnn.graphs import find, load
    from gistgnn.graphs.cache import kept_for, kept_in_cache, verify_derived
    from gistgnn.graphs.doubts import note_doubts
    from gistgnn.graphs.folder import Manifest, verify
    from gistgnn.utils.console import spinner

    info = find(args.dataset) if args.dataset else None
    folder = Path(args.dataset or "").expanduser()
    stored = bool(args.dataset) and info is None and folder.is_dir()
    if args.verify and not stored:
        raise InputError(
            f"--verify is for graph folders; {args.dataset or 'no dataset'} is none: leave it out"
        )
    if args.dataset is None:
        if args.clear_cache:
            return _clear(kept_in_cache(), as_json=args.json)
        return _list(Path(args.data_root).expanduser(), as_json=args.json)
    if args.verify:
        with spinner("comparing checksums", shown=True):
            verify(folder)
            verify_derived(folder)
    graph = load(args.dataset, args.data_root)
    cached = kept_for(graph)
    if args.clear_cache:
        return _clear(cached, as_json=args.json)
    note_doubts(graph)
    facts = _facts(graph)
    if stored:
        manifest = Manifest.read(folder)
        facts |= {"x": manifest.arrays["x"].dtype, "bytes": manifest.nbytes}
    if args.verify:
        facts["checksums"] = "all fit"
    if info:
        facts |= {"about": info.description, "split": info.split}
    if args.json:
        return print_json({**facts, "kept": _as_json(cached)} if cached else facts)
    for key, value in facts.items():
        print(f"{key:>9}  {value:,}" if isinstance(value, int) else f"{key:>9}  {value}")
    if cached:
        print("\nKept to save time (--clear-cache removes it):")
    for file in cached:
        print(f"{size(file.bytes):>9}  {printable(file.path)}: {file.content}")
    return 0


def _facts(graph: "Graph") -> dict[str, Any]:
    """Return the sizes of a graph, its task, and how many nodes its splits have."""
    if graph.regression:
        task = "regression"
    else:
        task = "multi-label" if graph.multi_label else "single-label"
    return {
        "name": graph.name,
        "nodes": graph.num_nodes,
        "edges": graph.num_edges,
        "features": graph.num_features,
        "classes": graph.num_classes,
        "task": task,
        **{split: int(getattr(graph, split).sum()) for split in ("train", "val", "test")},
    }


def _bytes_in_memory(info: "DatasetInfo") -> int:
    """Return the bytes of a graph's features and edges in memory."""
    bytes_of_number = 4 if info.edges < 2**31 else 8
    return info.feature_bytes + bytes_of_number * (info.edges + info.nodes)


def _where(info: "DatasetInfo", data_root: Path) -> str:
    """Say where the files of a data set come from."""
    from gistgnn.graphs.named import is_here

    if is_here(info, data_root):
        return "here"
    return "unpack" if info.reader == "ogb" else "fetch"


def _as_json(files: "Sequence[KeptFile]") -> list[dict[str, Any]]:
    return [
        {"path": str(file.path), "bytes": file.bytes, "content": file.content} for file in files
    ]


def _clear(files: "Sequence[KeptFile]", *, as_json: bool) -> int:
    """Remove what is kept, but for what a process uses, and say what was removed."""
    from gistgnn.graphs.cache import remove_kept

    left = [file for file in files if not remove_kept(file)]
    removed = [file for file in files if file not in left]
    if as_json:
        return print_json({"removed": _as_json(removed), "left": _as_json(left)})
    for file in removed:
        print(f"removed {printable(file.path)} ({size(file.bytes)}): {file.content}")
    for file in left:
        print(
            f"left {printable(file.path)} ({size(file.bytes)}): a process uses it, or it cannot be "
            "removed"
        )
    print(f"{plural(len(removed), 'file')} removed, {size(sum(file.bytes for file in removed))}")
    return 0


def _list(data_root: Path, *, as_json: bool) -> int:
    """Print all named data sets, where their files come from, and how large they are."""
    from gistgnn.graphs import DATASETS
    from gistgnn.graphs.cache import kept_in_cache
    from gistgnn.utils.console import print_table

    if as_json:
        records = []
        for info in DATASETS.values():
            record = {key: getattr(info, key) for key in _PUBLISHED}
            record["task"] = "multi-label" if info.multi_label else "single-label"
            record["bytes"] = _bytes_in_memory(info)
            record["data"] = _where(info, data_root)
            records.append(record)
        return print_json(records)
    columns = ("name", "nodes", "edges", "features", "classes", "memory", "data")
    cells = []
    for info in DATASETS.values():
        sizes = (f"{getattr(info, key):,}" for key in columns[1:5])
        cells.append([info.name, *sizes, size(_bytes_in_memory(info)), _where(info, data_root)])
    print_table("", columns, cells, left=["name", "data"])
    print(
        f"\nhere: in {printable(data_root)} (--data-root) or made without files; fetch: PyG "
        "downloads it"
    )
    print(
        "on the first use; unpack: a file of OGB, which the first use names. Memory: x and edges."
    )
    if cached := kept_in_cache():
        total = size(sum(file.bytes for file in cached))
        print(
            f"The cache {printable(cached[0].path.parent)} has {total}; `gistgnn datasets "
            "--clear-cache` empties it."
        )
    print(
        "Edges count both directions. `gistgnn datasets NAME` describes one. Your own graph: "
        "docs/how-to/data.md"
    )
    return 0
