"""Writers of mesh and volume files."""

from quadrants.tools.ply import PLYWriter
from quadrants.tools.vtk import write_vtk

__all__ = ["PLYWriter", "write_vtk"]
