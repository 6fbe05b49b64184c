"""Re-exports of the compatibility room."""

from quadrants._compat.fast_caching import (
    FastcacheSkip,
    dump_stats,
    hash_args,
    reset_unknown_type_warn_state,
    stringify_obj_type,
)

__all__ = [
    "FastcacheSkip",
    "dump_stats",
    "hash_args",
    "reset_unknown_type_warn_state",
    "stringify_obj_type",
]
