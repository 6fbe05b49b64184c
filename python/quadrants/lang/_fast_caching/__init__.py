"""Re-exports of the compatibility room."""

from quadrants._compat.side_files import FIELD_METADATA_CACHE_VALUE

__all__ = ["FIELD_METADATA_CACHE_VALUE"]
