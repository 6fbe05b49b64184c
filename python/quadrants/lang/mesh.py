"""Meshes."""

from quadrants.lang._unavailable import declare as _declare
from quadrants.lang._unavailable import declare_methods as _declare_methods

_declare(globals(), "", "Mesh MeshInstance _TetMesh _TriMesh")
_declare_methods(globals()["Mesh"], "load_meta generate_meta")
