"""Primitive element types.

A dtype is one object per type for the life of the process: copying or unpickling one yields the
same object. `id` is the number that native code knows it by.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from quadrants.lang.exception import QuadrantsSyntaxError


class DataType:
    """A primitive element type."""

    __slots__ = ("name", "id", "bits", "size", "is_real", "is_signed", "__weakref__")

    name: str
    id: int
    bits: int
    size: int
    is_real: bool
    is_signed: bool

    def __init__(self, name: str, number: int) -> None:
        self.name = name
        self.id = number
        self.bits = int(name[1:])
        self.size = max(1, self.bits // 8)
        self.is_real = name[0] == "f"
        self.is_signed = name[0] != "u"

    def to_string(self) -> str:
        """The short name, such as "f32"."""
        return self.name

    def shape(self) -> tuple[int, ...]:
        """Extents of an element: none."""
        return ()

    def element_type(self) -> DataType:
        """This type itself."""
        return self

    def __str__(self) -> str:
        return self.name

    __repr__ = __str__

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return _call(self, *args, **kwargs)

    def __hash__(self) -> int:
        return self.id  # not the address: sets of types have one order in every process

    def __reduce__(self) -> tuple[Any, ...]:
        return by_name, (self.name,)

    def __copy__(self) -> DataType:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> DataType:
        return self

    def __or__(self, other: Any) -> Any:
        from quadrants.types.annotations import optional

        return optional(self, other)


def stable_hash(text: str) -> int:
    """A hash that is the same in every process, which Python's own of a text is not.

    Test runners collect in several processes; what they find must come in one order.
    """
    import zlib

    return zlib.crc32(text.encode())


class TensorType:
    """Element type of an array of vectors or matrices; one object per shape and dtype."""

    __slots__ = ("_shape", "_element")
    _made: dict[tuple[tuple[int, ...], DataType], TensorType] = {}

    _shape: tuple[int, ...]
    _element: DataType

    def __new__(cls, shape: tuple[int, ...], element: DataType) -> TensorType:
        key = tuple(shape), element
        self = cls._made.get(key)
        if self is None:
            self = cls._made[key] = object.__new__(cls)
            self._shape, self._element = key
        return self

    def shape(self) -> list[int]:
        """Extents of an element: [n] or [n, m]."""
        return list(self._shape)

    def element_type(self) -> DataType:
        """The dtype of the components."""
        return self._element

    def to_string(self) -> str:
        """Such as "[Tensor (3) f32]"."""
        return f"[Tensor ({', '.join(map(str, self._shape))}) {self._element}]"

    def __str__(self) -> str:
        return self.to_string()

    __repr__ = __str__

    def __hash__(self) -> int:
        return hash((self._shape, self._element))

    def __reduce__(self) -> tuple[Any, ...]:
        return TensorType, (self._shape, self._element)


def _call(dtype: DataType, *args: Any, **kwargs: Any) -> Any:
    """What `qd.f32(x)` means outside kernels; the Python backend and traced helpers give it a value."""
    from quadrants.lang import impl

    if impl.is_python_backend():
        from quadrants.lang._python_backend import call_dtype

        return call_dtype(dtype, *args, **kwargs)
    if impl.inside_kernel():
        return impl.core.trace_op("dtype_call", (dtype, *args))
    raise QuadrantsSyntaxError("Quadrants data types cannot be called outside Quadrants kernels.")


u1 = DataType("u1", 0)
i8 = DataType("i8", 1)
i16 = DataType("i16", 2)
i32 = DataType("i32", 3)
i64 = DataType("i64", 4)
u8 = DataType("u8", 5)
u16 = DataType("u16", 6)
u32 = DataType("u32", 7)
u64 = DataType("u64", 8)
f16 = DataType("f16", 9)
f32 = DataType("f32", 10)
f64 = DataType("f64", 11)

uint1 = u1
int8, int16, int32, int64 = i8, i16, i32, i64
uint8, uint16, uint32, uint64 = u8, u16, u32, u64
float16, float32, float64 = f16, f32, f64

PRIMITIVES: tuple[DataType, ...] = (u1, i8, i16, i32, i64, u8, u16, u32, u64, f16, f32, f64)
_BY_NAME = {t.name: t for t in PRIMITIVES}


def by_name(name: str) -> DataType:
    """The dtype of that short name."""
    return _BY_NAME[name]


class RefType:
    """`qd.ref(dtype)`: a parameter of a real function passed by reference."""

    def __init__(self, tp: Any) -> None:
        self.tp = tp


def ref(tp: Any) -> RefType:
    """Annotation of a `qd.real_func` parameter that is the caller's variable, not a copy.

    Args:
        tp: dtype or struct type.
    """
    return RefType(tp)


class TypeSet(set[Any]):
    """A set that is walked in the order of its making: Python's own types hash by address."""

    def __init__(self, *types: Any) -> None:
        super().__init__(types)
        self._ordered = types

    def __iter__(self) -> Iterator[Any]:
        return iter(self._ordered)

    def __reduce__(self) -> tuple[Any, ...]:
        return TypeSet, self._ordered


real_types: set[Any] = TypeSet(f16, f32, f64, float)
integer_types: set[Any] = TypeSet(i8, i16, i32, i64, u1, u8, u16, u32, u64, int, bool)
all_types: set[Any] = TypeSet(*real_types, *integer_types)
real_type_ids = {id(t) for t in real_types}
integer_type_ids = {id(t) for t in integer_types}
type_ids = {id(t) for t in all_types}
