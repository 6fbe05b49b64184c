"""Trees of fields, where older programs look for them."""

from quadrants._snode import fields_builder, snode_tree
from quadrants._snode.fields_builder import FieldsBuilder

__all__ = ["FieldsBuilder", "fields_builder", "snode_tree"]
