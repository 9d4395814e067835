"""Files that are written completely or not at all; safetensors files and models, read in parts."""

from gistgnn.storage.whole_files import replacing

__all__ = ["replacing"]
