"""Re-exports of the compatibility room."""

from quadrants._compat.side_files import (
    PythonSideCache,
)

__all__ = [
    "PythonSideCache",
]
