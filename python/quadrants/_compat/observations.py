"""Records of what the caches and launches of a kernel did."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from enum import IntEnum


class KernelBatchedArgType(IntEnum):
    """Kinds of arguments that are counted."""

    FLOAT = 0
    INT = 1
    UINT = 2
    QD_ARRAY = 3
    QD_ARRAY_WITH_GRAD = 4


@dataclass
class SrcLlCacheObservations:
    """What fastcache did."""

    cache_key_generated: bool = False
    cache_validated: bool = False
    cache_loaded: bool = False
    cache_stored: bool = False


@dataclass
class FeLlCacheObservations:
    """Whether compiled code was found for a kernel that the front end had read."""

    cache_hit: bool = False


@dataclass
class LaunchObservations:
    """Whether the last call found its code present."""

    found_kernel_in_materialize_cache: bool = False


@dataclass
class LaunchStats:
    """Arguments that the last launch passed, by kind."""

    kernel_args_count_by_type: defaultdict[KernelBatchedArgType, int] = field(
        default_factory=lambda: defaultdict(int)
    )


def counted(numbers: tuple[int, ...]) -> LaunchStats:
    """As native code counts them, in the order of the kinds."""
    stats = LaunchStats()
    for which, number in zip(KernelBatchedArgType, numbers):
        if number:
            stats.kernel_args_count_by_type[which] = number
    return stats
