"""The forms in which `gistgnn export` writes a model; this module imports nothing slow."""

from typing import TYPE_CHECKING

from gistgnn.utils.lazy import Registry

if TYPE_CHECKING:
    from gistgnn.runs.export import Form

FORMS: "Registry[Form]" = Registry(
    {
        "pyg": "gistgnn.runs.export:PYG",
        "torch": "gistgnn.runs.export:TORCH",
        "onnx": "gistgnn.runs.export:ONNX",
    }
)
"""The forms by name. ``FORMS["pyg"]`` imports torch; ``list(FORMS)`` imports nothing."""
