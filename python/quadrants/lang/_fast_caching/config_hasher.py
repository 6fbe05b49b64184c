"""Re-exports of the compatibility room."""

from quadrants._compat.side_files import (
    hash_compile_config,
    hash_device_caps,
)

__all__ = [
    "hash_compile_config",
    "hash_device_caps",
]
