"""The kinds of cases, each with its share of all."""

from benchmarks.attack.case import Kind
from benchmarks.attack.changed import changed
from benchmarks.attack.damage import damage, folders
from benchmarks.attack.files import files
from benchmarks.attack.models import models
from benchmarks.attack.options import options
from benchmarks.attack.python import python
from benchmarks.attack.runs import foreign, kills, ranks, streams
from benchmarks.attack.tables import tables

KINDS: dict[str, tuple[int, Kind]] = {
    "options": (18, options),
    "files": (14, files),
    "folders": (10, folders),
    "python": (10, python),
    "models": (12, models),
    "changed": (8, changed),
    "tables": (6, tables),
    "damage": (12, damage),
    "ranks": (3, ranks),
    "kills": (3, kills),
    "streams": (2, streams),
    "foreign": (2, foreign),
}
