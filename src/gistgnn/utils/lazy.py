"""Packages that import their public names at the first use, so that light modules in them import nothing slow."""

import importlib
from collections.abc import Callable, Mapping
from typing import Any


def lazy_exports(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """Return a module-level `__getattr__` for a package.

    Args:
        package: its `__name__`.
        homes: public name -> the module in the package that defines it.
    """

    def load(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module '{package}' has no attribute '{name}'")
        return getattr(importlib.import_module(f"{package}.{homes[name]}"), name)

    return load
