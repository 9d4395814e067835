"""What a container, a batch system or ulimit leaves to this process.

The kernel ends a process of a cgroup that takes more than its limit, whatever is free on the
machine. So the smaller of both counts. Files of cgroups:
https://docs.kernel.org/admin-guide/cgroup-v2.html, and cgroup-v1/memory.html.
"""

import math
import os
import sys
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import NamedTuple

_ROOT = Path("/")
_NO_LIMIT = 2**60  # version 1 writes the largest multiple of a page, 2^63 or so
_PROCESS = "/proc/self"
# Pages of files count as taken until the system needs their room.
_DROPPED = ("inactive_file", "active_file")


class MemoryLimit(NamedTuple):
    """A limit of memory, in bytes."""

    limit: int
    left: int  # the part that is free, with the pages of files that the system can drop


def memory_limits(root: Path = _ROOT) -> list[MemoryLimit]:
    """Return the limits of this process's cgroups and of ulimit, in any order.

    ``root`` is where /proc and /sys are.
    """
    limits = [_ulimit("RLIMIT_AS", "VmSize", root), _ulimit("RLIMIT_DATA", "VmData", root)]
    for kind, folder in _cgroups("memory", root):
        limits.append(
            _unified_limit(folder, root) if kind == "cgroup2" else _version_1_limit(folder, root)
        )
    return [limit for limit in limits if limit is not None]


def smallest_limit(root: Path = _ROOT) -> MemoryLimit | None:
    """Return the limit of which least is left, or None if there is no limit."""
    return min(memory_limits(root), key=lambda limit: limit.left, default=None)


def usable_cpus(root: Path = _ROOT) -> int:
    """Return how many processors this process may use.

    These are the ones that it may run on, and no more than its quota of time.
    """
    if hasattr(os, "sched_getaffinity"):
        allowed = len(os.sched_getaffinity(0))
    else:
        allowed = os.cpu_count() or 1
    quotas = [allowed]
    for kind, folder in _cgroups("cpu", root):
        if kind == "cgroup2":
            quota, _, period = _text(folder / "cpu.max").strip().partition(" ")
        else:
            quota = _text(folder / "cpu.cfs_quota_us").strip()
            period = _text(folder / "cpu.cfs_period_us").strip()
        if quota.isdecimal() and period.isdecimal() and int(period):
            quotas.append(math.ceil(int(quota) / int(period)))
    return max(min(quotas), 1)


def _cgroups(controller: str, root: Path) -> Iterator[tuple[str, Path]]:
    """Yield the cgroups that this process is in, from the innermost.

    Each is "cgroup2" or "cgroup", and its folder. A container may see its own cgroup as the root,
    or the path on the host without the folders that lead to it.
    """
    mounted = _mounts(controller, root)
    for line in _text(_under(root, f"{_PROCESS}/cgroup")).splitlines():
        number, _, controllers_and_path = line.partition(":")
        controllers, _, path = controllers_and_path.partition(":")
        kind = "cgroup2" if number == "0" and not controllers else "cgroup"
        if kind == "cgroup" and controller not in controllers.split(","):
            continue
        for mount, base in mounted.get(kind, []):
            inner = PurePosixPath(path)
            inner = inner.relative_to(base) if inner.is_relative_to(base) else PurePosixPath()
            folder = mount / inner
            folder = folder if ".." not in inner.parts and folder.is_dir() else mount
            for cgroup in (folder, *folder.parents):
                if cgroup.is_relative_to(mount):
                    yield kind, cgroup


def _mounts(controller: str, root: Path) -> dict[str, list[tuple[Path, str]]]:
    """Return where the hierarchies of cgroups are mounted that may limit by a controller.

    Returns:
        By "cgroup2" or "cgroup", the folder of each mount, and which cgroup lies there.
    """
    mounts: dict[str, list[tuple[Path, str]]] = {}
    for line in _text(_under(root, f"{_PROCESS}/mountinfo")).splitlines():
        fields, _, described = line.partition(" - ")
        kind, _, options = described.partition(" ")
        words = fields.split()
        if len(words) > 4 and (
            kind == "cgroup2" or (kind == "cgroup" and controller in options.split()[-1].split(","))
        ):
            mounts.setdefault(kind, []).append((_under(root, words[4]), words[3]))
    if not mounts:
        usual = _under(root, "/sys/fs/cgroup")
        mounts = {"cgroup2": [(usual, "/")], "cgroup": [(usual / controller, "/")]}
    return mounts


def _unified_limit(folder: Path, root: Path) -> MemoryLimit | None:
    # Above memory.high the process is not killed, but hardly gets on.
    limits = [_number(folder / name) for name in ("memory.max", "memory.high")]
    return _limit(limits, _number(folder / "memory.current"), folder, "", root)


def _version_1_limit(folder: Path, root: Path) -> MemoryLimit | None:
    limits = [_number(folder / "memory.limit_in_bytes")]
    return _limit(limits, _number(folder / "memory.usage_in_bytes"), folder, "total_", root)


def _limit(
    limits: list[int | None], used: int | None, folder: Path, prefix: str, root: Path
) -> MemoryLimit | None:
    limit = min((limit for limit in limits if limit is not None), default=_NO_LIMIT)
    if limit >= _NO_LIMIT:
        return None
    if used is None:  # no file says what other processes take
        used = _status_bytes("RssAnon", root) or 0
    else:
        used -= sum(_entries(folder / "memory.stat").get(f"{prefix}{name}", 0) for name in _DROPPED)
    return MemoryLimit(limit, max(limit - max(used, 0), 0))


def _ulimit(name: str, entry: str, root: Path) -> MemoryLimit | None:
    if sys.platform != "linux":
        return None
    import resource

    limit, _ = resource.getrlimit(getattr(resource, name))
    used = _status_bytes(entry, root)
    if limit in (resource.RLIM_INFINITY, -1) or used is None:
        return None
    return MemoryLimit(limit, max(limit - used, 0))


def _status_bytes(name: str, root: Path) -> int | None:
    for line in _text(_under(root, f"{_PROCESS}/status")).splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    return None


def _entries(path: Path) -> dict[str, int]:
    pairs = (line.split() for line in _text(path).splitlines())
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdecimal()}


def _number(path: Path) -> int | None:
    """Return the number in a file.

    Returns None if there is no such file, if it cannot be read, or if it says "max".
    """
    text = _text(path).strip()
    return int(text) if text.isdecimal() else None


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _under(root: Path, path: str) -> Path:
    return root / path.replace("\\040", " ").lstrip("/")
