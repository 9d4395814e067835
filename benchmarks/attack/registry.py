"""The kinds of cases, each with its share of all."""

from benchmarks.attack.case import Kind
from benchmarks.attack.damage import damage
from benchmarks.attack.files import files
from benchmarks.attack.folders import folders
from benchmarks.attack.kills import kills
from benchmarks.attack.options import options
from benchmarks.attack.python import python
from benchmarks.attack.ranks import ranks

KINDS: dict[str, tuple[int, Kind]] = {
    "options": (28, options),
    "files": (22, files),
    "folders": (12, folders),
    "python": (14, python),
    "damage": (16, damage),
    "ranks": (4, ranks),
    "kills": (4, kills),
}
