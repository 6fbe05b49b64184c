"""Re-exports of the compatibility room."""

from quadrants._compat.fast_caching import (
    hash_compile_config,
    hash_device_caps,
)

__all__ = [
    "hash_compile_config",
    "hash_device_caps",
]
