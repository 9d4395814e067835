"""The registry of samplers: light to import, and complete."""

import subprocess
import sys
from pathlib import Path

import gistgnn.sampling as sampling
from gistgnn.sampling import Sampling
from gistgnn.sampling.registry import SAMPLERS


def test_the_registry_is_read_without_torch() -> None:
    code = "import sys, gistgnn.sampling.registry; sys.exit('torch' in sys.modules or 'numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_names_are_those_of_the_classes() -> None:
    for name in SAMPLERS:
        assert issubclass(SAMPLERS[name], Sampling)
        assert SAMPLERS[name].name == name


def test_every_settings_class_is_registered() -> None:
    folder = Path(sampling.__file__).parent
    files = [path.read_text(encoding="utf-8") for path in folder.rglob("*.py")]
    named = [line for text in files for line in text.splitlines() if line.startswith('    name = "')]
    assert sorted(line.split('"')[1] for line in named) == sorted(SAMPLERS)


def test_a_new_sampler_is_planned_for_as_large_as_the_graph() -> None:
    from gistgnn.graphs.sizes import GraphSizes
    from gistgnn.sampling.sampler import Expected

    sizes = GraphSizes(100, 500, 40)
    assert Sampling.expected(SAMPLERS["clusters"](10), sizes, 3) == Expected.whole(sizes)
