"""Sorting within tiles of a subgroup."""

from quadrants.lang.simt.subgroup import bitonic_sort_kv, bitonic_sort_kv_tiled

__all__ = ["bitonic_sort_kv", "bitonic_sort_kv_tiled"]
