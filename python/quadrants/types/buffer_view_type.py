"""Annotation of a BufferView parameter."""

from __future__ import annotations

from typing import Any

from quadrants.types.enums import boundary_mode


class BufferViewType:
    """`qd.BufferView[dtype]` or `qd.BufferView[dtype, "clamp"]`.

    Args:
        dtype: element type, None for any.
        boundary: "unsafe", or "clamp" to limit indices to the view.

    Raises:
        ValueError: another boundary.
    """

    def __init__(self, dtype: Any = None, boundary: str = "unsafe") -> None:
        self.dtype = dtype
        self.boundary = boundary_mode(boundary)

    def __repr__(self) -> str:
        return f"BufferViewType(dtype={self.dtype})"
