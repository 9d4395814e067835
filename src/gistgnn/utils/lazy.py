"""Names that are imported when they are first used.

So the command line can list them without importing torch.
"""

from collections import UserDict
from collections.abc import Callable, Mapping, Sequence
from pkgutil import resolve_name
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Registry(UserDict[str, Any], Generic[T]):
    """A dictionary from names to objects of modules, "module:object".

    A lookup imports the module; listing the names does not.
    """

    def __getitem__(self, name: str) -> T:
        value: T = resolve_name(self.data[name])
        return value

    def object_name(self, name: str) -> str:
        """Return the name that an object has in its module, such as "GraphSAGE".

        Nothing is imported.
        """
        return str(self.data[name]).rpartition(":")[2]


def lazy_attributes(
    package: str, names_by_module: Mapping[str, Sequence[str]]
) -> Callable[[str], Any]:
    """Return a package's ``__getattr__``, which imports a name when it is first used.

    Args:
        package: the package's name.
        names_by_module: the names that the package takes from each module, as its ``if
            TYPE_CHECKING`` imports them for readers and type checkers; a test compares the two.
    """
    module_of = {name: module for module, names in names_by_module.items() for name in names}

    def get(name: str) -> Any:
        if name not in module_of:
            raise AttributeError(f"module '{package}' has no attribute '{name}'")
        return resolve_name(f"{module_of[name]}:{name}")

    return get
