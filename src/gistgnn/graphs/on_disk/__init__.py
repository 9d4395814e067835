"""A graph as a folder of plain arrays, which are read where they lie: docs/reference/graph-folder.md."""

from gistgnn.graphs.on_disk.manifest import MANIFEST, Manifest
from gistgnn.graphs.on_disk.opening import load_folder, open_folder
from gistgnn.graphs.on_disk.verifying import verify

__all__ = ["MANIFEST", "Manifest", "load_folder", "open_folder", "verify"]
