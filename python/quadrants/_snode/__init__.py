"""Trees of fields, where older programs look for them."""

from quadrants._lazy import lazy_names as _lazy_names

__getattr__, __dir__ = _lazy_names(
    __name__,
    globals(),
    {
        "FieldsBuilder": f"{__name__}.fields_builder:FieldsBuilder",
        **{n: f"{__name__}.{n}" for n in ("fields_builder", "snode_tree")},
    },
)
