"""The kinds of cases, each with its share of all."""

from benchmarks.attack.case import Kind
from benchmarks.attack.damage import damage
from benchmarks.attack.files import files
from benchmarks.attack.folders import folders
from benchmarks.attack.foreign import foreign
from benchmarks.attack.kills import kills
from benchmarks.attack.options import options
from benchmarks.attack.python import python
from benchmarks.attack.ranks import ranks
from benchmarks.attack.streams import streams

KINDS: dict[str, tuple[int, Kind]] = {
    "options": (26, options),
    "files": (20, files),
    "folders": (12, folders),
    "python": (13, python),
    "damage": (16, damage),
    "ranks": (4, ranks),
    "kills": (4, kills),
    "streams": (3, streams),
    "foreign": (2, foreign),
}
