"""Re-exports of the compatibility room."""

from quadrants._compat.fast_caching import (
    HashedFunctionSourceInfo,
)

__all__ = [
    "HashedFunctionSourceInfo",
]
