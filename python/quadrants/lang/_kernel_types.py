"""Re-exports of the compatibility room."""

from quadrants._compat.observations import (
    FeLlCacheObservations,
    KernelBatchedArgType,
    LaunchObservations,
    LaunchStats,
    SrcLlCacheObservations,
)

__all__ = [
    "FeLlCacheObservations",
    "KernelBatchedArgType",
    "LaunchObservations",
    "LaunchStats",
    "SrcLlCacheObservations",
]
