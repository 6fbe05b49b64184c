"""VTK files of scalar fields."""

from __future__ import annotations

from typing import Any


def write_vtk(scalar_field: Any, filename: str) -> None:
    """Writes a 2-D or 3-D scalar field as an image data file.

    Args:
        scalar_field: the field.
        filename: path without extension.

    Raises:
        RuntimeError: the package pyevtk is missing, or the field is not 2-D or 3-D.
    """
    try:
        from pyevtk.hl import gridToVTK
    except ImportError:
        raise RuntimeError(
            "write_vtk needs the package pyevtk: python3 -m pip install pyevtk"
        ) from None
    import numpy as np

    values = scalar_field.to_numpy()
    if values.ndim not in (2, 3):
        raise RuntimeError(f"write_vtk takes 2-D and 3-D fields, got {values.ndim}-D")
    if values.ndim == 2:
        values = values[:, :, np.newaxis]
    axes = [np.arange(n + 1) for n in values.shape]
    gridToVTK(filename, *axes, cellData={filename: np.ascontiguousarray(values)})
