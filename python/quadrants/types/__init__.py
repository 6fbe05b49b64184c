"""Types: element types, compound types and annotations. Each name loads its module when it is used.

PYTEST_DONT_REWRITE (its imports would show in `dir`)
"""

from quadrants._lazy import lazy_names as _lazy_names

_HOMES = {
    "annotations": "Template sparse_matrix_builder template",
    "buffer_view_type": "BufferViewType",
    "compound_types": "matrix struct vector",
    "enums": "",
    "ndarray_type": "NDArray ndarray",
    "primitive_types": "f16 f32 f64 float16 float32 float64 i8 i16 i32 i64 int8 int16 int32 int64 ref "
    "u1 u8 u16 u32 u64 uint1 uint8 uint16 uint32 uint64",
    "quant": "",
    "utils": "is_integral is_real is_signed is_tensor",
}
_WHERE = {home: f"{__name__}.{home}" for home in _HOMES}
_WHERE |= {n: f"{__name__}.{home}:{n}" for home, names in _HOMES.items() for n in names.split()}

__getattr__, __dir__ = _lazy_names(__name__, globals(), _WHERE)
