"""Imports on first use: numpy, submodules and public names.

Import time is part of every start, so a module is loaded when something in it is touched.
"""

from collections.abc import Callable
from importlib import import_module
from typing import Any


class LazyNumpy:
    """Stands for numpy in a module's globals and replaces itself there at the first use."""

    def __init__(self, namespace: dict[str, Any]) -> None:
        self._namespace = namespace

    def __getattr__(self, name: str) -> Any:
        import numpy

        self._namespace["np"] = numpy
        return getattr(numpy, name)


def lazy_names(
    module: str, namespace: dict[str, Any], where: dict[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` for a module whose names live elsewhere.

    `where` maps a name to "module" (the name is that module) or "module:attribute".
    """

    def __getattr__(name: str) -> Any:
        target = where.get(name)
        if target is None:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        path, _, attribute = target.partition(":")
        value = import_module(path)
        if attribute:
            value = getattr(value, attribute)
        namespace[name] = value
        return value

    def __dir__() -> list[str]:
        private = [n for n in namespace if n.startswith("_")]
        return sorted({*where, *private})

    return __getattr__, __dir__
