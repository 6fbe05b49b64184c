"""The kernel language and its containers. Submodules load when touched.

The names of `quadrants` are found here, too. Two of them are submodules as well, which are reached by
imports only.
"""

import sys as _sys
from types import ModuleType as _ModuleType
from typing import Any as _Any

from quadrants._lazy import load as _load
from quadrants._names import NAMES as _NAMES

_FUNCTIONS = ("field", "kernel")


class _Lang(_ModuleType):
    def __setattr__(self, name: str, value: _Any) -> None:
        if name not in _FUNCTIONS or not isinstance(value, _ModuleType):  # as imports set it
            super().__setattr__(name, value)


_sys.modules[__name__].__class__ = _Lang


def __getattr__(name: str) -> _Any:
    if name == "__all__":
        return [n for n in _NAMES if not n.startswith("_")]
    if name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        if name not in _FUNCTIONS:
            return _load(f"{__name__}.{name}")
    except ModuleNotFoundError as e:
        if e.name != f"{__name__}.{name}":
            raise
    import quadrants

    try:
        return getattr(quadrants, name)
    except AttributeError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None


def __dir__() -> list[str]:
    return sorted({*_NAMES, *globals()})
