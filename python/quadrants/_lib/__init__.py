"""Native side of the package."""

from typing import Any

from quadrants._lazy import load

_MODULES = ("core", "utils")


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return load(f"{__name__}.{name}")
