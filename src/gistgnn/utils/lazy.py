"""Names that are imported when they are first used, so that the command line can list them without importing torch."""

from collections.abc import Callable, Iterator, Mapping
from pkgutil import resolve_name
from typing import Any, TypeVar

T = TypeVar("T")


class Registry(Mapping[str, T]):
    """A dictionary from names to objects of modules, "module:object". A lookup imports; listing names does not."""

    def __init__(self, homes: Mapping[str, str]) -> None:
        self._homes = homes

    def __getitem__(self, name: str) -> T:
        return resolve_name(self._homes[name])

    def __contains__(self, name: object) -> bool:
        return name in self._homes  # without an import

    def __iter__(self) -> Iterator[str]:
        return iter(self._homes)

    def __len__(self) -> int:
        return len(self._homes)


def lazy_attributes(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """Return a package's ``__getattr__`` that imports a public name at its first use; ``homes`` has its module."""

    def get(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module '{package}' has no attribute '{name}'")
        return resolve_name(f"{package}.{homes[name]}:{name}")

    return get
