"""Writers of mesh and volume files."""

from typing import Any as _Any

from quadrants._lazy import load as _load
from quadrants.tools.ply import PLYWriter
from quadrants.tools.vtk import write_vtk

__all__ = ["PLYWriter", "write_vtk"]


def __getattr__(name: str) -> _Any:
    if name != "diagnose":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _load(f"{__name__}.{name}")
