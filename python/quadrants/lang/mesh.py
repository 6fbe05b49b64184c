"""Meshes."""

from quadrants.lang._unavailable import declare as _declare

_declare(globals(), "", "Mesh MeshInstance _TetMesh _TriMesh")
