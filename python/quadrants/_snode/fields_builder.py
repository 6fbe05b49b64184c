"""Re-exports of `quadrants.lang._data.fields_builder`."""

from quadrants.lang._data.fields_builder import FieldsBuilder, SNodeTree

__all__ = ["FieldsBuilder", "SNodeTree"]
