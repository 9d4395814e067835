"""The kinds of cases, each with its share of all."""

from benchmarks.attack.case import Kind
from benchmarks.attack.changed import changed
from benchmarks.attack.damage import damage, folders
from benchmarks.attack.files import files
from benchmarks.attack.models import models
from benchmarks.attack.options import options
from benchmarks.attack.python import python
from benchmarks.attack.runs import foreign, kills, ranks, streams

KINDS: dict[str, tuple[int, Kind]] = {
    "options": (26, options),
    "files": (20, files),
    "folders": (12, folders),
    "python": (13, python),
    "models": (14, models),
    "changed": (8, changed),
    "damage": (16, damage),
    "ranks": (4, ranks),
    "kills": (4, kills),
    "streams": (3, streams),
    "foreign": (2, foreign),
}
