"""Raw files of data sets, as PyG and OGB have them, with one of them damaged."""

from random import Random

import numpy as np

from benchmarks.attack.case import Place, Report, run_command
from benchmarks.attack.damage import append, cut, flip, record, special
from tests.graphs import raw_layouts
from tests.graphs.raw_layouts import PYG, ogb, write

_OGB = "ogbn-arxiv"
_CHANGES = {"flips": flip, "cuts": cut, "appends": append, "changes": record, "puts something in its place:": special}


def raw(rng: Random, place: Place) -> Report:
    """Describe a named data set whose raw files are small, and of which one is damaged."""
    raw_layouts.RANDOM = np.random.default_rng(0)  # the same files in every case
    name, root = rng.choice([*PYG, _OGB]), place.own / "data"
    if name == _OGB:
        ogb(root / "ogbn_arxiv", "time", 12)
    else:
        write(name, root)
    path = rng.choice(sorted(each for each in root.rglob("*") if each.is_file()))
    what, change = rng.choice(list(_CHANGES.items()))
    note = f"{path.relative_to(root)}: {what} {change(rng, path, place.valid)}"
    return run_command(place, ["datasets", name, "--data-root", "data", "--json"], note=note)
