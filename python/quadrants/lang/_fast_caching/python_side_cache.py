"""Re-exports of the compatibility room."""

from quadrants._compat.fast_caching import (
    PythonSideCache,
)

__all__ = [
    "PythonSideCache",
]
