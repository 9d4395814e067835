"""Names that are imported when they are first used, so that the command line can list them without importing torch."""

import ast
import sys
from collections import UserDict
from collections.abc import Callable
from functools import cache
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Registry(UserDict[str, Any], Generic[T]):
    """A dictionary from names to objects of modules, "module:object". A lookup imports; listing names does not."""

    def __getitem__(self, name: str) -> T:
        found: T = resolve_name(self.data[name])
        return found


def lazy_attributes(package: str) -> Callable[[str], Any]:
    """Return a package's ``__getattr__``: the imports of its ``if TYPE_CHECKING`` happen when a name is first used."""

    @cache
    def homes() -> dict[str, str | None]:
        source = Path(str(sys.modules[package].__file__)).read_text(encoding="utf-8")
        imports = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ImportFrom))
        return {each.name: node.module for node in imports for each in node.names}

    def get(name: str) -> Any:
        if name.startswith("__") or name not in homes():
            raise AttributeError(f"module '{package}' has no attribute '{name}'")
        return resolve_name(f"{homes()[name]}:{name}")

    return get
