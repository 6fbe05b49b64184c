"""Types of vectors and matrices."""

from __future__ import annotations

import builtins
from typing import Any

from quadrants._lazy import LazyNumpy
from quadrants._lib import core
from quadrants.lang import impl
from quadrants.lang._values.entries import check_range, entries_for
from quadrants.lang.exception import QuadrantsSyntaxError, QuadrantsTypeError
from quadrants.lang.matrix import Matrix, Vector, _has_symbolic
from quadrants.lang.util import check_element_shape, cook_dtype, to_numpy_type
from quadrants.types.annotations import optional
from quadrants.types.primitive_types import DataType, stable_hash

np: Any = LazyNumpy(globals())


def _flattened(args: tuple[Any, ...]) -> list[Any]:
    values: list[Any] = []
    for a in args:
        if isinstance(a, Matrix):
            a = a.entries
        if isinstance(a, np.ndarray):
            values.extend(a.ravel().tolist())
        elif isinstance(a, (list, tuple, range)):
            values.extend(_flattened(tuple(a)))
        else:
            values.append(a)
    return values


def _computed(dtype: Any) -> DataType:
    """The type in kernels; of a quantised one what it is computed in."""
    return cook_dtype(getattr(dtype, "compute", dtype))


class MatrixType:
    """Type of matrices: `qd.types.matrix(n, m, dtype)`. None stands for any size or dtype."""

    __module__ = "quadrants.lang.matrix"  # where programs find it

    _qd_annotation = "instances"

    def __init__(self, n: int | None, m: int | None, ndim: int, dtype: Any) -> None:
        check_element_shape(*((n,) if ndim == 1 else (n, m)))
        self.n = n
        self.m = m
        self.ndim = ndim
        self._declared = dtype  # float, int and bool mean the defaults of the runtime in place
        if dtype is not None:
            _computed(dtype)

    @property
    def dtype(self) -> DataType | None:
        return None if self._declared is None else _computed(self._declared)

    def __hash__(self) -> int:  # types of one name are still told apart: equality is identity
        declared = self._declared
        name = declared.__name__ if isinstance(declared, type) else str(declared)
        return stable_hash(f"{type(self).__name__} {self.get_shape()} {name}")

    def get_shape(self) -> tuple[Any, ...]:
        """(n,) or (n, m)."""
        return (self.n,) if self.ndim == 1 else (self.n, self.m)

    def is_open(self) -> bool:
        """Whether a size or the dtype is left to the array that is passed."""
        return None in (self.n, self.m, self._declared)

    def to_string(self) -> str:
        """Such as "MatrixType[2,3, f32]"."""
        return f"MatrixType[{self.n},{self.m}, {self.dtype or ''}]"

    def check_matched(self, other: Any) -> bool:
        """Whether an array's element type fits."""
        shape = tuple(other.shape())
        if len(shape) != self.ndim:
            return False
        if builtins.any(w is not None and w != s for w, s in zip(self.get_shape(), shape)):
            return False
        return self.dtype is None or self.dtype is other.element_type()

    def __call__(self, *args: Any) -> Any:
        if not args:
            raise QuadrantsSyntaxError(
                "Custom type instances need to be created with an initial value."
            )
        if impl.inside_kernel() or _has_symbolic(args):
            return core.trace_op("typed_tensor", (self, *args))
        if impl.is_python_backend():
            from quadrants.lang._python_backend import typed

            return typed(self, args)
        if self.n is None or self.m is None:
            raise QuadrantsTypeError(
                f"{self.to_string()} has open sizes, and so no values: give n and m"
            )
        count = self.n * (self.m if self.ndim == 2 else 1)
        values = _flattened(args)
        if len(values) == 1 and not isinstance(args[0], (list, tuple, range, Matrix, np.ndarray)):
            values = values * count
        if len(values) < count:
            raise IndexError(f"{self.to_string()} needs {count} components, got {len(values)}")
        dtype = self.dtype or cook_dtype(float)
        check_range(dtype, values[:count])
        entries = entries_for(dtype, values[:count]).astype(to_numpy_type(dtype))
        entries = entries.reshape(self.get_shape())
        return (Vector if self.ndim == 1 else Matrix)(entries)

    def cast(self, value: Any) -> Any:
        """A value of this type from anything with enough components."""
        return self(value)

    def filled_with_scalar(self, value: Any) -> Any:
        """All components the same."""
        return self(value)

    def field(self, **kwargs: Any) -> Any:
        """A field of these; the keywords are those of `Matrix.field`."""
        return Matrix.field(self.n, self.m, dtype=self._declared, **kwargs)  # type: ignore[arg-type]

    def ndarray(self, **kwargs: Any) -> Any:
        """An ndarray of these; the keywords are those of `Matrix.ndarray`."""
        return Matrix.ndarray(self.n, self.m, dtype=self.dtype, **kwargs)  # type: ignore[arg-type]

    def __or__(self, other: Any) -> Any:
        return optional(self, other)


class VectorType(MatrixType):
    """Type of vectors: `qd.types.vector(n, dtype)`."""

    __module__ = "quadrants.lang.matrix"  # where programs find it

    def __init__(self, n: int | None, dtype: Any) -> None:
        super().__init__(n, 1, 1, dtype)

    def to_string(self) -> str:
        """Such as "VectorType[3, f32]"."""
        return f"VectorType[{self.n}, {self.dtype or ''}]"

    def field(self, **kwargs: Any) -> Any:
        """A field of these; the keywords are those of `Vector.field`."""
        return Vector.field(self.n, dtype=self._declared, **kwargs)  # type: ignore[arg-type]

    def ndarray(self, **kwargs: Any) -> Any:
        """An ndarray of these; the keywords are those of `Vector.ndarray`."""
        return Vector.ndarray(self.n, dtype=self.dtype, **kwargs)  # type: ignore[arg-type]


class UnpackedVectorType(VectorType):
    """`vector(n, dtype, unpacked=True)`: only a member annotation of `@qd.dataclass`."""

    __module__ = "quadrants.lang.matrix"  # where programs find it

    @staticmethod
    def misuse(action: str) -> QuadrantsSyntaxError:
        return QuadrantsSyntaxError(
            f"cannot {action} a vector declared with unpacked=True; the unpacked layout is only honored on "
            "``@qd.dataclass`` field annotations. Either drop ``unpacked=True`` or use the type in an "
            "annotation like ``r: qd.types.vector(N, dtype, unpacked=True)`` on a class decorated with "
            "@qd.dataclass."
        )

    def to_string(self) -> str:
        """Such as "VectorType[3, f32, unpacked=True]"."""
        return f"VectorType[{self.n}, {self.dtype or ''}, unpacked=True]"

    def __call__(self, *args: Any) -> Any:
        raise self.misuse("instantiate")

    def field(self, **kwargs: Any) -> Any:
        raise self.misuse("create a field of")

    def ndarray(self, **kwargs: Any) -> Any:
        raise self.misuse("create an ndarray of")
