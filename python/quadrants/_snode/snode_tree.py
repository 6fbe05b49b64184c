"""Re-exports of `quadrants.lang._data.fields_builder`."""

from quadrants.lang._data.fields_builder import SNodeTree

__all__ = ["SNodeTree"]
