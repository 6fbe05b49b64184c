"""Writers of mesh and volume files."""

from quadrants.lang._unavailable import declare as _declare

_declare(globals(), "write_vtk", "PLYWriter", prefix="qd.tools")
