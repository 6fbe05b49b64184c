"""Re-exports of the compatibility room."""

from quadrants._compat.fast_caching import FIELD_METADATA_CACHE_VALUE

__all__ = ["FIELD_METADATA_CACHE_VALUE"]
