"""Writers of mesh and volume files."""

from quadrants._lazy import lazy_names as _lazy_names
from quadrants.tools.np2ply import PLYWriter
from quadrants.tools.vtk import write_vtk

__all__ = ["PLYWriter", "write_vtk"]

__getattr__, _ = _lazy_names(__name__, globals(), {"diagnose": f"{__name__}.diagnose"})
