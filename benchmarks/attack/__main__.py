"""Attacks gistgnn, and says what it found: bad inputs, options and damaged files.

python -m benchmarks.attack --cases 3000 --seconds 3600 --seed 0
"""

import argparse
import os
import shutil
import sys
import tempfile
import time
import warnings
from collections import Counter
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from random import Random

from benchmarks.attack.case import Report, Workspace
from benchmarks.attack.registry import KINDS
from benchmarks.attack.valid import prepare

# Nothing answers at this address, so that no case downloads anything.
_NO_NETWORK = dict.fromkeys(("http_proxy", "https_proxy"), "http://127.0.0.1:9")
FRESH = 0.01  # share of the commands that are run by a new interpreter


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.attack", description=__doc__.split(":")[0]
    )
    parser.add_argument("--cases", type=int, default=3000, help="at most (default: 3000)")
    parser.add_argument("--seconds", type=float, default=3600.0, help="at most (default: 3600)")
    parser.add_argument("--seed", type=int, default=0, help="of all cases (default: 0)")
    parser.add_argument(
        "--kinds", nargs="+", choices=KINDS, help="of cases (default: all, by their shares)"
    )
    parser.add_argument(
        "--case", type=int, nargs="+", help="run these cases alone, by their numbers, and show them"
    )
    parser.add_argument(
        "--limit", type=float, default=60.0, help="seconds that a case may take (default: 60)"
    )
    options = parser.parse_args()
    os.environ.update({"OMP_NUM_THREADS": "1", "COLUMNS": "120", "NO_COLOR": "1", **_NO_NETWORK})
    # Making odd tensors warns. A case restores the filters, so that its own warnings are seen.
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory(prefix="gistgnn-attack-") as name:
        os.environ["GISTGNN_CACHE"] = f"{name}/cache"
        return _attack(options, Path(name))


def _attack(options: argparse.Namespace, folder: Path) -> int:
    _import_all()
    workspace = Workspace(folder / "valid", folder / "case", options.limit)
    prepare(workspace.valid, options.kinds or KINDS)
    begun = time.monotonic()
    counts = Counter[str]()
    failures = []
    for number in options.case or range(options.cases):
        if time.monotonic() - begun > options.seconds:
            break
        kind, report = attempt(options.seed, number, options.kinds, workspace)
        ending = {0: "accepted", 2: "refused"}.get(report.status, "ended")
        counts[f"{kind}: {ending}"] += 1
        if counts.total() % 250 == 0:
            print(f"{counts.total()} cases, {len(failures)} failures", flush=True)
        if report.wrong or options.case:
            message = report.wrong or f"status {report.status}, {report.seconds:.1f} s"
            label = "FAILURE case" if report.wrong else "case"
            print(f"{label} {number} ({kind}): {report.title}\n    {message}", flush=True)
        if report.wrong:
            failures.append(number)
    took = time.monotonic() - begun
    print(f"\n{counts.total()} cases, {len(failures)} failures, seed {options.seed}, {took:.0f} s")
    for name, count in sorted(counts.items()):
        print(f"  {name:<24} {count}")
    if failures:
        kinds = f" --kinds {' '.join(options.kinds)}" if options.kinds else ""
        cases = " ".join(map(str, failures[:20]))
        print(f"again: python -m benchmarks.attack --seed {options.seed}{kinds} --case {cases}")
    return 1 if failures else 0


def attempt(
    seed: int, number: int, kinds: list[str] | None, workspace: Workspace
) -> tuple[str, Report]:
    """Run one case, which follows from the seed, its number and the kinds alone."""
    rng = Random(f"{seed} {number}")
    workspace = replace(workspace, fresh=rng.random() < FRESH)
    shares = {name: share for name, (share, _) in KINDS.items() if not kinds or name in kinds}
    name = rng.choices(list(shares), list(shares.values()))[0]
    shutil.rmtree(workspace.folder, ignore_errors=True)
    workspace.folder.mkdir()
    for file in workspace.valid.iterdir():
        if not file.is_dir():
            os.link(file, workspace.folder / file.name)
    return name, KINDS[name][1](rng, workspace)


def _import_all() -> None:
    """Import what commands import, so that forked processes need not."""
    import torch

    import gistgnn

    ours = (module.name for module in walk_packages(gistgnn.__path__, "gistgnn."))
    for name in ("torch_geometric.nn", "torch._dynamo", *ours):
        if not name.endswith("__main__"):
            import_module(name)
    torch.set_num_threads(1)
    torch.optim.Adam([torch.nn.Parameter(torch.zeros(1))])  # The first optimiser imports modules.


if __name__ == "__main__":
    sys.exit(main())
