"""The limits of memory and processors that a container, a batch system or ulimit sets."""

import resource
import subprocess
import sys
import weakref
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch

from gistgnn import GIST
from gistgnn.accounting import costs
from gistgnn.accounting.costs import theta_bytes
from gistgnn.errors import InputError
from gistgnn.estimate import Resources
from gistgnn.graphs.checks import check_room
from gistgnn.graphs.conversion.converting import room_within
from gistgnn.theta.theta import Theta
from gistgnn.utils import limits, process_memory
from gistgnn.utils.limits import MemoryLimit, memory_limits, smallest_limit, usable_cpus
from tests.helpers.fitting import gcn
from tests.helpers.models import tiny_graph
from tests.helpers.refusals import refused

GIB = 2**30
MIB = 2**20
UNIFIED = "30 1 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate"
MEMORY = "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory"
CPU = "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct"
NO_LIMIT = "9223372036854771712"  # what version 1 has where none is set


def system(root: Path, cgroup: str, mounts: str | None, files: Mapping[str, object]) -> Path:
    """Make a folder that looks like the root of a system.

    Files of cgroups are given by their paths under /sys/fs/cgroup.
    """
    process = root / "proc/self"
    process.mkdir(parents=True)
    (process / "cgroup").write_text(cgroup + "\n")
    (process / "status").write_text(
        "Name:\tpython\nVmSize:\t 2048 kB\nVmData:\t 1024 kB\nRssAnon:\t 512 kB\n"
    )
    if mounts is not None:
        (process / "mountinfo").write_text(mounts + "\n")
    for name, text in files.items():
        path = root / "sys/fs/cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")
    return root


def group(
    path: str, limit: object, used: int | None = 0, *, cache: int = 0, version: int = 2
) -> dict[str, object]:
    """The files of a cgroup; half of the cache is active."""
    names = ("max", "current") if version == 2 else ("limit_in_bytes", "usage_in_bytes")
    prefix = "" if version == 2 else "total_"
    files: dict[str, object] = {f"{path}memory.{names[0]}": limit}
    if used is not None:
        files[f"{path}memory.{names[1]}"] = used
        parts = f"{prefix}inactive_file {cache // 2}\n{prefix}active_file {cache // 2}"
        files[f"{path}memory.stat"] = f"anon 5\n{prefix}inactive_anon {GIB}\n{parts}"
    return files


CASES: dict[str, tuple[str, str | None, dict[str, object], MemoryLimit | None]] = {
    "version 2": ("0::/job", UNIFIED, group("job/", 2 * GIB, GIB), MemoryLimit(2 * GIB, GIB)),
    "pages of files": (
        "0::/job",
        UNIFIED,
        group("job/", 2 * GIB, GIB, cache=GIB // 2),
        MemoryLimit(2 * GIB, 3 * GIB // 2),
    ),
    "no limit": ("0::/job", UNIFIED, group("job/", "max", GIB), None),
    "of a parent": (
        "0::/slurm/job/step",
        UNIFIED,
        {
            **group("slurm/job/step/", "max", MIB),
            **group("slurm/job/", 3 * GIB, GIB),
            **group("slurm/", "max", 9 * GIB),
        },
        MemoryLimit(3 * GIB, 2 * GIB),
    ),
    "the least is left": (
        "0::/slurm/job",
        UNIFIED,
        {**group("slurm/job/", 2 * GIB, MIB), **group("slurm/", 8 * GIB, 7 * GIB)},
        MemoryLimit(8 * GIB, GIB),
    ),
    "beyond it": ("0::/job", UNIFIED, group("job/", GIB, 2 * GIB), MemoryLimit(GIB, 0)),
    "throttled": (
        "0::/job",
        UNIFIED,
        {**group("job/", 2 * GIB), "job/memory.high": GIB},
        MemoryLimit(GIB, GIB),
    ),
    "a container with its own root": (
        "0::/",
        UNIFIED,
        group("", 2 * GIB, GIB),
        MemoryLimit(2 * GIB, GIB),
    ),
    "a container, by the path of the host": (
        "0::/docker/abc",
        UNIFIED.replace(" / /sys", " /docker/abc /sys"),
        group("", 2 * GIB, GIB),
        MemoryLimit(2 * GIB, GIB),
    ),
    "a path that is not there": (
        "0::/kubepods/pod",
        UNIFIED,
        group("", GIB, MIB),
        MemoryLimit(GIB, GIB - MIB),
    ),
    "a path outside": ("0::/../other", UNIFIED, group("", GIB, MIB), MemoryLimit(GIB, GIB - MIB)),
    "usage that cannot be read": (
        "0::/job",
        UNIFIED,
        group("job/", GIB, None),
        MemoryLimit(GIB, GIB - 512 * 1024),
    ),
    "no list of mounts": ("0::/job", None, group("job/", GIB, MIB), MemoryLimit(GIB, GIB - MIB)),
    "nonsense": ("0::/job", UNIFIED, group("job/", "-1 x", GIB), None),
    "no cgroup": ("", "25 1 8:1 / / rw - ext4 /dev/sda1 rw", {}, None),
    "version 1": (
        "9:name=systemd:/x\n4:memory:/job\n0::/",
        f"{MEMORY}\n{CPU}",
        group("memory/job/", 2 * GIB, GIB, cache=GIB // 2, version=1),
        MemoryLimit(2 * GIB, 3 * GIB // 2),
    ),
    "version 1, of a parent": (
        "4:memory:/slurm/job",
        MEMORY,
        {
            **group("memory/slurm/job/", NO_LIMIT, MIB, version=1),
            **group("memory/slurm/", GIB, 0, version=1),
        },
        MemoryLimit(GIB, GIB),
    ),
    "version 1, no limit": ("4:memory:/", MEMORY, group("memory/", NO_LIMIT, GIB, version=1), None),
    "version 1, a container": (
        "4:memory:/docker/abc",
        MEMORY.replace(" / /sys", " /docker/abc /sys"),
        group("memory/", 2 * GIB, GIB, version=1),
        MemoryLimit(2 * GIB, GIB),
    ),
    "both versions": (
        "4:memory:/job\n0::/job",
        f"{MEMORY}\n{UNIFIED.replace('/sys/fs/cgroup rw', '/sys/fs/cgroup/unified rw')}",
        {**group("memory/job/", GIB, 0, version=1), **group("unified/job/", 2 * GIB, 0)},
        MemoryLimit(GIB, GIB),
    ),
}


@pytest.mark.parametrize(("cgroup", "mounts", "files", "expected"), CASES.values(), ids=CASES)
def test_the_limit_of_which_least_is_left(
    cgroup: str,
    mounts: str | None,
    files: dict[str, object],
    expected: MemoryLimit | None,
    tmp_path: Path,
) -> None:
    assert smallest_limit(system(tmp_path, cgroup, mounts, files)) == expected


def test_what_cannot_be_read_is_no_limit(tmp_path: Path) -> None:
    assert memory_limits(tmp_path) == []
    root = system(tmp_path, "0::/job", UNIFIED, {})
    (root / "sys/fs/cgroup/job/memory.max").mkdir(parents=True)  # reading it fails, also for root
    assert memory_limits(root) == []


def test_available_memory_is_no_more_than_a_limit_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu = torch.device("cpu")
    machine = psutil.virtual_memory().available
    for limit, most in ((None, 2 * machine), (MemoryLimit(9 * machine, 8 * machine), 2 * machine)):
        monkeypatch.setattr(process_memory, "smallest_limit", lambda limit=limit: limit)
        assert machine // 2 < process_memory.available_bytes(cpu) < most
    monkeypatch.setattr(process_memory, "smallest_limit", lambda: MemoryLimit(GIB, 77 * MIB))
    assert process_memory.available_bytes(cpu) == 77 * MIB
    monkeypatch.setattr(process_memory, "_limit", process_memory.held_bytes() + 2 * GIB)
    assert process_memory.available_bytes(cpu) == 77 * MIB
    monkeypatch.setattr(process_memory, "_limit", 1)
    assert process_memory.available_bytes(cpu) == 0


def test_a_limit_decides_what_fits_and_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_memory, "smallest_limit", lambda: MemoryLimit(3 * GIB, GIB))
    here = Resources.here("cpu")
    assert here.limit == 3 * GIB
    assert GIB < here.host < GIB + 2 * process_memory.held_bytes()
    # A run cannot have more than is free.
    assert Resources.here("cpu", memory=64 * GIB).host == pytest.approx(here.host, rel=0.1)
    assert Resources.here("cpu", memory=MIB).host == MIB
    other_machine = Resources.here("cpu", memory=64 * GIB, started=False)
    assert (other_machine.host, other_machine.limit) == (64 * GIB, None)
    wide = 40_000  # a matrix of 6 GiB
    with refused("of memory", "1 GiB are free of the limit of 3 GiB"):
        _ = GIST(gcn(), (wide, wide), 4).theta
    with refused("1 GiB are available of the limit of 3 GiB"):
        check_room(2 * GIB, "the graph")
    monkeypatch.setattr(process_memory, "smallest_limit", lambda: None)
    assert Resources.here("cpu").limit is None


def test_a_theta_that_is_replaced_makes_room_for_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    gist = GIST(gcn(), (8, 7), 1)
    needed = theta_bytes(gist.full_spec)
    monkeypatch.setattr(process_memory, "smallest_limit", lambda: MemoryLimit(GIB, needed - 1))
    with refused("are free of the limit"):
        _ = gist.theta
    monkeypatch.setattr(process_memory, "smallest_limit", lambda: MemoryLimit(GIB, needed))
    _ = gist.theta
    monkeypatch.setattr(process_memory, "smallest_limit", lambda: MemoryLimit(GIB, 0))
    gist._make_theta(gist.full_spec, anew=True)


def test_a_second_run_gives_up_the_earlier_theta_only_where_both_do_not_fit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def one_round(gist: GIST, **options: Any) -> None:
        gist.fit(tiny_graph(), epochs=1, progress=False, **options)

    def look_at(earlier: "weakref.ref[Any]", alive: list[bool]) -> Callable[..., Any]:
        make = Theta.make

        def make_and_look(*args: Any, **options: Any) -> Theta:
            alive.append(earlier() is not None)
            return make(*args, **options)

        return make_and_look

    for fits_beside in (True, False):
        gist = GIST(gcn(), (8, 7), 1)
        one_round(gist)
        alive: list[bool] = []
        with monkeypatch.context() as patch:
            patch.setattr(Theta, "make", look_at(weakref.ref(gist.theta), alive))
            left = theta_bytes(gist.full_spec) - (not fits_beside)
            patch.setattr(costs, "available_bytes", lambda device, left=left: left)
            with pytest.raises(InputError, match="metric"):
                one_round(gist, metric=lambda logits, targets: float("nan"))
            expected = gist.next_round
        assert alive == [fits_beside]
        # Without the earlier one, it stands as a new GIST does.
        assert (expected > 0) == fits_beside
        one_round(gist)


def test_a_conversion_keeps_within_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    unlimited = room_within(None)
    monkeypatch.setattr(process_memory, "smallest_limit", lambda: MemoryLimit(GIB, 300 * MIB))
    assert room_within(None) == room_within(64 * GIB) == 300 * MIB
    monkeypatch.setattr(process_memory, "smallest_limit", lambda: MemoryLimit(2**50, 2**50))
    assert room_within(None) == pytest.approx(unlimited, rel=0.1)


@pytest.mark.parametrize(("kind", "entry"), [("RLIMIT_AS", "VmSize"), ("RLIMIT_DATA", "VmData")])
def test_ulimit_is_a_limit(
    kind: str, entry: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    number = getattr(resource, kind)
    monkeypatch.setattr(
        resource,
        "getrlimit",
        lambda asked: (GIB if asked == number else resource.RLIM_INFINITY, -1),
    )
    used = {"VmSize": 2 * MIB, "VmData": MIB}[entry]
    assert smallest_limit(system(tmp_path, "", None, {})) == MemoryLimit(GIB, GIB - used)


def test_a_process_with_ulimit_can_take_what_its_limit_leaves() -> None:
    code = (
        "import resource; resource.setrlimit(resource.RLIMIT_AS, (2**30, 2**30))\n"
        "from gistgnn.utils.limits import smallest_limit; limit = smallest_limit()\n"
        "assert limit.limit == 2**30 and 2**29 < limit.left < 2**30, limit\n"
        "block = bytearray(limit.left - 2**26)\n"
        "try: bytearray(2**27)\n"
        "except MemoryError: print('as said')\n"
    )
    completed = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert completed.stdout == "as said\n", completed.stderr


QUOTAS: list[tuple[str, str, dict[str, object], int]] = [
    ("0::/job", UNIFIED, {"job/cpu.max": "150000 100000"}, 2),
    ("0::/job", UNIFIED, {"job/cpu.max": "max 100000", "cpu.max": "50000 100000"}, 1),
    ("0::/job", UNIFIED, {"job/cpu.max": "max 100000"}, 64),
    (
        "3:cpu,cpuacct:/",
        CPU,
        {"cpu,cpuacct/cpu.cfs_quota_us": 300000, "cpu,cpuacct/cpu.cfs_period_us": 100000},
        3,
    ),
    (
        "3:cpu,cpuacct:/",
        CPU,
        {"cpu,cpuacct/cpu.cfs_quota_us": -1, "cpu,cpuacct/cpu.cfs_period_us": 100000},
        64,
    ),
    ("", "", {}, 64),
]


@pytest.mark.parametrize(("cgroup", "mounts", "files", "expected"), QUOTAS)
def test_usable_processors_are_no_more_than_a_quota_allows(
    cgroup: str,
    mounts: str,
    files: dict[str, object],
    expected: int,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setattr(limits.os, "sched_getaffinity", lambda _: set(range(64)))
    assert usable_cpus(system(tmp_path, cgroup, mounts, files)) == expected
    monkeypatch.setattr(limits.os, "sched_getaffinity", lambda _: {5})
    assert usable_cpus(tmp_path) == 1
