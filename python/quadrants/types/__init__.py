"""Types: element types, compound types and annotations.

PYTEST_DONT_REWRITE (its imports would show in `dir`)
"""

from quadrants.types import (
    annotations,
    buffer_view_type,
    compound_types,
    enums,
    ndarray_type,
    primitive_types,
    utils,
)
from quadrants.types.annotations import Template, sparse_matrix_builder, template
from quadrants.types.buffer_view_type import BufferViewType
from quadrants.types.compound_types import matrix, struct, vector
from quadrants.types.ndarray_type import NDArray, ndarray
from quadrants.types.primitive_types import (
    f16,
    f32,
    f64,
    float16,
    float32,
    float64,
    i8,
    i16,
    i32,
    i64,
    int8,
    int16,
    int32,
    int64,
    ref,
    u1,
    u8,
    u16,
    u32,
    u64,
    uint1,
    uint8,
    uint16,
    uint32,
    uint64,
)
from quadrants.types.utils import is_integral, is_real, is_signed, is_tensor

_PUBLIC = [name for name in globals() if not name.startswith("_")] + ["quant"]


def __getattr__(name: str) -> object:
    if name == "quant":
        from importlib import import_module

        return import_module("quadrants.types.quant")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return _PUBLIC + [name for name in globals() if name.startswith("_")]
