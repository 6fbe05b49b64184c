"""Writers of mesh and volume files."""

from quadrants._lazy import lazy_names as _lazy_names

__all__ = ["PLYWriter", "write_vtk"]

__getattr__, __dir__ = _lazy_names(
    __name__,
    globals(),
    {
        "PLYWriter": f"{__name__}.np2ply:PLYWriter",
        "write_vtk": f"{__name__}.vtk:write_vtk",
        **{n: f"{__name__}.{n}" for n in ("diagnose", "np2ply", "vtk")},
    },
)
