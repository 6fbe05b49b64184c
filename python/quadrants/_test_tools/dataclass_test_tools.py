"""Default-sized instances of dataclasses."""

import dataclasses
from typing import Any


def _member(kind: Any) -> Any:
    import quadrants as qd
    from quadrants.types.ndarray_type import NDArray
    from quadrants.types.primitive_types import all_types

    if dataclasses.is_dataclass(kind):
        return build_struct(kind)
    if isinstance(kind, NDArray) or kind is NDArray:
        ndim = kind.ndim if isinstance(kind, NDArray) and kind.ndim is not None else 1
        dtype = kind.dtype if isinstance(kind, NDArray) and kind.dtype is not None else qd.i32
        return qd.ndarray(dtype, shape=(10,) * ndim)
    if kind in all_types:
        return kind() if kind in (int, float, bool) else 0
    return qd.field(qd.i32, shape=(10,))


def build_obj_tuple_from_type_dict(types: dict[str, Any]) -> tuple[Any, ...]:
    """A default-sized object per type: arrays of extent 10, i32 fields for templates."""
    return tuple(_member(kind) for kind in types.values())


def build_struct(kind: Any) -> Any:
    """An instance of a dataclass with default-sized members."""
    return kind(**{f.name: _member(f.type) for f in dataclasses.fields(kind)})
