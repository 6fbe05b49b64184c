"""Host vectors and matrices, and their types.

A host `Matrix` wraps a NumPy array. One that stands for an element of a field or ndarray is live: it
has an `access` object instead of an array, reads storage whenever it is looked at and writes through.
An access object offers `get(*indices)`, `set(value, *indices)` and `array()`, a fresh NumPy copy.
Inside kernels vectors are native values; constructing one from symbolic elements traces it.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterator
from typing import Any

from quadrants._lazy import LazyNumpy, lazy_names
from quadrants._lib import core
from quadrants._lib.core import Layout
from quadrants.lang import impl
from quadrants.lang._swizzle import all_swizzles
from quadrants.lang._swizzle import generate_patterns as _generate_swizzle_patterns
from quadrants.lang.exception import (
    QuadrantsCompilationError,
    QuadrantsSyntaxError,
    QuadrantsTypeError,
)
from quadrants.lang.util import check_element_shape, cook_dtype, to_numpy_type
from quadrants.types.annotations import optional
from quadrants.types.primitive_types import DataType, TensorType, by_name

__all__ = [
    "Matrix",
    "MatrixType",
    "UnpackedVectorType",
    "Vector",
    "VectorType",
    "_generate_swizzle_patterns",
]

# Classes that live elsewhere; clients look for them here.
__getattr__, _ = lazy_names(
    __name__,
    globals(),
    {
        "MatrixField": "quadrants.lang.field:MatrixField",
        "MatrixNdarray": "quadrants.lang._ndarray:MatrixNdarray",
        "VectorNdarray": "quadrants.lang._ndarray:VectorNdarray",
    },
)
np: Any = LazyNumpy(globals())
_MAX_ENTRIES = 144


def _has_symbolic(x: Any) -> bool:
    if isinstance(x, (list, tuple)):
        return builtins.any(_has_symbolic(e) for e in x)
    return type(x) not in (int, float, bool) and core.is_expr(x)


def _operand(x: Any) -> Any:
    """What NumPy computes with; NotImplemented for things that are not host values."""
    if isinstance(x, Matrix):
        return x.entries
    if isinstance(x, (int, float, list, tuple)):
        return NotImplemented if _has_symbolic(x) else x
    return x if isinstance(x, (np.ndarray, np.generic)) else NotImplemented


def _binary(compute: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def method(self: Any, other: Any) -> Any:
        other = _operand(other)
        return NotImplemented if other is NotImplemented else Matrix(compute(self.entries, other))

    return method


def _reflected(compute: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    return _binary(lambda a, b: compute(b, a))


def _unary(compute: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda self: Matrix(compute(self.entries))


def _factory(name: str, doc: str) -> Any:
    """A static method of the kernel language: traced in kernels, an error on the host."""

    def fn(*args: Any, **kwargs: Any) -> Any:
        if impl.inside_kernel():
            return core.trace_op(f"Matrix.{name}", args, **kwargs)
        if impl.is_python_backend():
            return _python_factory(name, *args, **kwargs)
        raise AssertionError(f"{name} cannot be called in Python-scope")

    fn.__name__ = fn.__qualname__ = name
    fn.__doc__ = doc
    fn._qd_op = f"Matrix.{name}"  # type: ignore[attr-defined]
    return staticmethod(fn)


def _python_factory(name: str, *args: Any, **kwargs: Any) -> Any:
    from quadrants.lang._python_backend import factory

    return factory(name, *args, **kwargs)


def _different_shapes(a: Any, b: Any) -> QuadrantsCompilationError:
    return QuadrantsCompilationError(
        f"required shapes to be the same, got shapes {[a.shape, b.shape]}"
    )


def _adjugate(a: Any) -> Any:
    """The inverse times the determinant, of two or three rows."""
    if len(a) == 2:
        return np.array([[a[1, 1], -a[0, 1]], [-a[1, 0], a[0, 0]]])
    return np.array([np.cross(a[i - 2], a[i - 1]) for i in range(3)]).T


class Matrix:
    """A vector or matrix on the host.

    Args:
        arr: list, tuple or NumPy array of numbers.
        dt: element type; by default NumPy decides.
    """

    __array_priority__ = 1000
    __hash__ = object.__hash__

    def __new__(cls, arr: Any, dt: Any = None) -> Any:
        if impl.is_python_backend():
            from quadrants.lang._python_backend import matrix

            return matrix(arr, dt)
        if isinstance(arr, (list, tuple)) and _has_symbolic(arr):
            return core.trace_op(cls.__name__, (arr, dt))
        return object.__new__(cls)

    def __init__(self, arr: Any, dt: Any = None) -> None:
        if isinstance(arr, (list, tuple)):
            if arr and isinstance(arr[0], Matrix):
                raise Exception("cols/rows required when using list of vectors")
        elif not isinstance(arr, np.ndarray):
            raise QuadrantsTypeError(
                "An Matrix/Vector can only be initialized with an array-like object"
            )
        self._set(np.array(arr, dtype=None if dt is None else to_numpy_type(dt)))

    def _set(self, entries: Any) -> None:
        self.entries = entries
        self._describe(entries.shape)
        self.is_host_access = False
        if entries.size > _MAX_ENTRIES:
            import warnings

            warnings.warn(
                f"{self.n}x{self.m} matrices/vectors with > {_MAX_ENTRIES} entries are not suggested: "
                "matrices/vectors are unrolled at compile time, which may take long. "
                "Use a field or an ndarray instead, e.g. `qd.field(dtype, shape)`.",
                UserWarning,
                stacklevel=4,
            )

    def _describe(self, shape: tuple[int, ...]) -> None:
        self.ndim = len(shape)
        self.n = shape[0] if shape else 1
        self.m = shape[1] if len(shape) > 1 else 1

    @classmethod
    def _live(cls, access: Any, shape: tuple[int, ...]) -> Any:
        """The vector or matrix that stands for an element in storage."""
        self = object.__new__(cls)
        self._access = access
        self._describe(shape)
        self.is_host_access = True
        return self

    def __getattr__(self, name: str) -> Any:
        if name == "entries":  # live only: others have it as an attribute
            return self._access.array()
        raise AttributeError(f"'{type(self).__name__}' object has no attribute {name!r}")

    # --- elements ---

    def _indices(self, indices: Any) -> tuple[Any, ...]:
        if isinstance(indices, Matrix):
            indices = indices.to_list()
        indices = tuple(indices) if isinstance(indices, (tuple, list)) else (indices,)
        if len(indices) != self.ndim:
            raise AssertionError(f"Expected {self.ndim} indices, got {len(indices)}")
        return indices

    def __getitem__(self, indices: Any) -> Any:
        if not isinstance(indices, tuple) and _has_symbolic(indices):
            return core.trace_op("subscript", (self, indices))
        where = self._indices(indices)
        return self._access.get(*where) if self.is_host_access else self.entries[where]

    def __setitem__(self, indices: Any, value: Any) -> None:
        where = self._indices(indices)
        if self.is_host_access:
            self._access.set(value, *where)
        else:
            self.entries[where] = value

    def _assign(self, value: Any) -> None:
        """Element-wise assignment from anything of the same shape."""
        value = np.asarray(value.entries if isinstance(value, Matrix) else value)
        if self.is_host_access:
            for where in np.ndindex(*self.get_shape()):
                self._access.set(value[where].item() if value.shape else value.item(), *where)
        else:
            self.entries[...] = value

    def __len__(self) -> int:
        return self.n

    def __iter__(self) -> Iterator[Any]:
        if self.ndim == 1:
            return iter([self[i] for i in range(self.n)])
        return iter([[self[i, j] for j in range(self.m)] for i in range(self.n)])

    def get_shape(self) -> tuple[int, ...]:
        """(n,) or (n, m)."""
        return (self.n,) if self.ndim == 1 else (self.n, self.m)

    def to_list(self) -> list[Any]:
        """The elements, nested for matrices."""
        return self.entries.tolist()

    def to_numpy(self) -> Any:
        """The elements as a NumPy array."""
        return self.entries

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return np.array(self.entries, dtype=dtype)

    def fill(self, val: Any) -> None:
        """Sets every element."""
        self._assign(np.full(self.get_shape(), val))

    def __str__(self) -> str:
        return str(self.entries)

    def __repr__(self) -> str:
        return str(self.entries)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.entries,)

    # --- operators ---

    __add__, __radd__ = _binary(lambda a, b: a + b), _reflected(lambda a, b: a + b)
    __sub__, __rsub__ = _binary(lambda a, b: a - b), _reflected(lambda a, b: a - b)
    __mul__, __rmul__ = _binary(lambda a, b: a * b), _reflected(lambda a, b: a * b)
    __truediv__, __rtruediv__ = _binary(lambda a, b: a / b), _reflected(lambda a, b: a / b)
    __floordiv__, __rfloordiv__ = _binary(lambda a, b: a // b), _reflected(lambda a, b: a // b)
    __mod__, __rmod__ = _binary(lambda a, b: a % b), _reflected(lambda a, b: a % b)
    __pow__, __rpow__ = _binary(lambda a, b: a**b), _reflected(lambda a, b: a**b)
    __and__, __rand__ = _binary(lambda a, b: a & b), _reflected(lambda a, b: a & b)
    __or__, __ror__ = _binary(lambda a, b: a | b), _reflected(lambda a, b: a | b)
    __xor__, __rxor__ = _binary(lambda a, b: a ^ b), _reflected(lambda a, b: a ^ b)
    __lshift__, __rlshift__ = _binary(lambda a, b: a << b), _reflected(lambda a, b: a << b)
    __rshift__, __rrshift__ = _binary(lambda a, b: a >> b), _reflected(lambda a, b: a >> b)
    __lt__, __le__ = _binary(lambda a, b: a < b), _binary(lambda a, b: a <= b)
    __gt__, __ge__ = _binary(lambda a, b: a > b), _binary(lambda a, b: a >= b)
    __neg__, __pos__ = _unary(lambda a: -a), _unary(lambda a: +a)
    __invert__, __abs__ = _unary(lambda a: ~a), _unary(builtins.abs)

    def __eq__(self, other: Any) -> Any:
        if other is None:
            return Matrix(np.zeros(self.get_shape(), bool))
        other = _operand(other)
        return (
            NotImplemented if other is NotImplemented else Matrix(np.asarray(self.entries == other))
        )

    def __ne__(self, other: Any) -> Any:
        if other is None:
            return Matrix(np.ones(self.get_shape(), bool))
        other = _operand(other)
        return (
            NotImplemented if other is NotImplemented else Matrix(np.asarray(self.entries != other))
        )

    def __matmul__(self, other: Any) -> Any:
        if core.is_expr(other):
            return NotImplemented
        if not isinstance(other, Matrix):
            other = Matrix(list(other) if not isinstance(other, np.ndarray) else other)
        a, b = self.get_shape(), other.get_shape()
        if a[-1] != b[0]:
            raise QuadrantsCompilationError(
                f"dimension mismatch between {a} and {b} for matrix multiplication"
            )
        product = self.entries @ other.entries
        if product.ndim == 0:
            return product
        return Vector(product) if product.ndim == 1 else Matrix(product)

    def __rmatmul__(self, other: Any) -> Any:
        return (
            Matrix(np.asarray(other)) @ self
            if isinstance(other, (list, tuple, np.ndarray))
            else NotImplemented
        )

    # --- methods: with a symbolic argument they are traced ---

    def sum(self) -> Any:
        """Sum of all elements."""
        return self.entries.sum()

    def max(self) -> Any:
        """Largest element."""
        return self.entries.max()

    def min(self) -> Any:
        """Smallest element."""
        return self.entries.min()

    def any(self) -> bool:
        """Whether an element is not zero."""
        return bool((self.entries != 0).any())

    def all(self) -> bool:
        """Whether no element is zero."""
        return bool((self.entries != 0).all())

    def norm_sqr(self) -> Any:
        """Sum of the squares."""
        return (self.entries * self.entries).sum()

    def norm(self, eps: Any = 0) -> Any:
        """sqrt(sum of squares + eps)."""
        if core.is_expr(eps):
            return core.trace_op("Matrix.norm", (self, eps))
        return np.sqrt(self.norm_sqr() + eps)

    def norm_inv(self, eps: Any = 0) -> Any:
        """1 / norm(eps)."""
        if core.is_expr(eps):
            return core.trace_op("Matrix.norm_inv", (self, eps))
        return 1 / np.sqrt(self.norm_sqr() + eps)

    def normalized(self, eps: Any = 0) -> Any:
        """The vector divided by norm() + eps."""
        if self.ndim != 1:
            raise QuadrantsCompilationError(f"expected a vector, got {type(self)}")
        return self / (self.norm() + eps)

    def dot(self, other: Any) -> Any:
        """Scalar product of two vectors."""
        if _has_symbolic(other):
            return core.trace_op("Matrix.dot", (self, other))
        a, b = self._two_vectors(other, "dot")
        if a.shape != b.shape:
            raise _different_shapes(a, b)
        return (a * b).sum()

    def _two_vectors(self, other: Any, operation: str) -> tuple[Any, Any]:
        a, b = self.entries, np.asarray(other)
        for side, entries in (("lhs", a), ("rhs", b)):
            if entries.ndim != 1:
                raise QuadrantsCompilationError(f"{side} for {operation} is not a vector")
        return a, b

    def cross(self, other: Any) -> Any:
        """Vector product in 3-D, its third component in 2-D."""
        if _has_symbolic(other):
            return core.trace_op("Matrix.cross", (self, other))
        a, b = self._two_vectors(other, "cross")
        if a.shape != b.shape:
            raise _different_shapes(a, b)
        if self.n not in (2, 3):
            raise QuadrantsCompilationError(f"only dimension < 4 is supported, got shape {a.shape}")
        if self.n == 2:
            return a[0] * b[1] - a[1] * b[0]
        return Vector(np.cross(a, b))

    def outer_product(self, other: Any) -> Any:
        """The matrix of all products."""
        if _has_symbolic(other):
            return core.trace_op("Matrix.outer_product", (self, other))
        return Matrix(np.outer(*self._two_vectors(other, "outer_product")))

    def frobenius_inner(self, other: Any) -> Any:
        """Sum of the element-wise products."""
        if _has_symbolic(other):
            return core.trace_op("Matrix.frobenius_inner", (self, other))
        a, b = self.entries, np.asarray(other)
        if a.shape != b.shape:
            raise _different_shapes(a, b)
        return (a * b).sum()

    def transpose(self) -> Any:
        """The matrix mirrored at its diagonal."""
        if self.ndim == 1:
            raise QuadrantsCompilationError(
                "`transpose()` cannot apply to a vector. If you want something like `a @ b.transpose()`, "
                "write `a.outer_product(b)` instead."
            )
        return Matrix(self.entries.T)

    def _check_square(self) -> None:
        if self.ndim != 2 or self.n != self.m:
            raise QuadrantsCompilationError(
                f"expected a square matrix, got shape {self.get_shape()}"
            )

    def trace(self) -> Any:
        """Sum of the diagonal."""
        self._check_square()
        return np.trace(self.entries)

    def inverse(self) -> Any:
        """The inverse of a square matrix of at most 12 rows."""
        self._check_square()
        if self.n > 12:
            raise QuadrantsCompilationError(
                f"only dimension < 13 is supported, got shape {self.get_shape()}"
            )
        a = self.entries / 1  # integers become floats
        if self.n in (2, 3):  # in closed form the inverse of a simple matrix is exact
            b = _adjugate(a)
            with np.errstate(all="ignore"):
                return Matrix(b / (a[0] @ b[:, 0]))
        try:
            return Matrix(np.linalg.inv(a))
        except np.linalg.LinAlgError:
            return Matrix(np.full(self.get_shape(), np.inf))

    def determinant(self) -> Any:
        """The determinant; in kernels only."""
        if impl.inside_kernel():
            return core.trace_op("Matrix.determinant", (self,))
        raise AssertionError("determinant cannot be called in Python-scope")

    def cast(self, dtype: Any) -> Any:
        """Element-wise conversion; in kernels only."""
        if impl.inside_kernel():
            return core.trace_op("Matrix.cast", (self, dtype))
        raise AssertionError("cast cannot be called in Python-scope")

    # --- factories ---

    zero = _factory("zero", "All zeros: (dt, n) a vector, (dt, n, m) a matrix.")
    one = _factory("one", "All ones: (dt, n) a vector, (dt, n, m) a matrix.")
    identity = _factory("identity", "(dt, n): the n x n identity.")
    unit = _factory("unit", "(n, i, dt=None): the i-th basis vector.")

    @staticmethod
    def diag(dim: int, val: Any) -> Any:
        """The dim x dim matrix with val on the diagonal."""
        if _has_symbolic(val) or impl.inside_kernel():
            return core.trace_op("Matrix.diag", (dim, val))
        if impl.is_python_backend():
            return _python_factory("diag", dim, val)
        return Matrix(np.diag(np.full(dim, val)))

    @staticmethod
    def rows(rows: Any) -> Any:
        """The matrix with these rows."""
        return _stacked("rows", rows, False)

    @staticmethod
    def cols(cols: Any) -> Any:
        """The matrix with these columns."""
        return _stacked("cols", cols, True)

    # --- storage ---

    @classmethod
    def field(
        cls,
        n: int,
        m: int,
        dtype: Any,
        shape: Any = None,
        order: str | None = None,
        name: str = "",
        offset: Any = None,
        needs_grad: bool = False,
        needs_dual: bool = False,
        layout: Layout = Layout.AOS,
        ndim: int | None = None,
    ) -> Any:
        """A field of matrices; see `qd.field` for the arguments after dtype."""
        from quadrants.lang.field import create_matrix_field

        ndim = 2 if ndim is None else ndim
        return create_matrix_field(
            n, m, ndim, dtype, shape, order, name, offset, needs_grad, needs_dual, layout
        )

    @classmethod
    def ndarray(cls, n: int, m: int, dtype: Any, shape: Any, needs_grad: bool = False) -> Any:
        """An ndarray of matrices."""
        from quadrants.lang._ndarray import create_matrix_ndarray

        return create_matrix_ndarray(n, m, 2, dtype, shape, needs_grad)

    @classmethod
    def tensor(cls, n: int, m: int, dtype: Any, shape: Any, **kwargs: Any) -> Any:
        """A tensor of matrices."""
        from quadrants._tensor import create_matrix_tensor

        return create_matrix_tensor(n, m, 2, dtype, shape, **kwargs)

    vars().update(all_swizzles())  # names of the class body


for _name in ("diag", "rows", "cols"):
    getattr(Matrix, _name)._qd_op = f"Matrix.{_name}"


def _stacked(name: str, parts: Any, as_columns: bool) -> Any:
    if (
        _has_symbolic(list(parts))
        or builtins.any(_has_symbolic(p) for p in parts)
        or impl.inside_kernel()
    ):
        return core.trace_op(f"Matrix.{name}", (parts,))
    if impl.is_python_backend():
        return _python_factory(name, parts)
    arrays = [np.asarray(p) for p in parts]
    shapes = [a.shape for a in arrays]
    if builtins.any(s != shapes[0] for s in shapes):
        raise QuadrantsCompilationError(f"required shapes to be the same, got shapes {shapes}")
    return Matrix(np.stack(arrays, axis=1 if as_columns else 0))


class Vector(Matrix):
    """A vector on the host."""

    @classmethod
    def field(  # type: ignore[override]
        cls,
        n: int,
        dtype: Any,
        shape: Any = None,
        order: str | None = None,
        name: str = "",
        offset: Any = None,
        needs_grad: bool = False,
        needs_dual: bool = False,
        layout: Layout = Layout.AOS,
    ) -> Any:
        """A field of vectors; see `qd.field` for the arguments after dtype."""
        return Matrix.field(
            n, 1, dtype, shape, order, name, offset, needs_grad, needs_dual, layout, ndim=1
        )

    @classmethod
    def ndarray(cls, n: int, dtype: Any, shape: Any, needs_grad: bool = False) -> Any:  # type: ignore[override]
        """An ndarray of vectors."""
        from quadrants.lang._ndarray import create_matrix_ndarray

        return create_matrix_ndarray(n, 1, 1, dtype, shape, needs_grad)

    @classmethod
    def tensor(cls, n: int, dtype: Any, shape: Any, **kwargs: Any) -> Any:  # type: ignore[override]
        """A tensor of vectors."""
        from quadrants._tensor import create_matrix_tensor

        return create_matrix_tensor(n, 1, 1, dtype, shape, **kwargs)


def _from_kernel(entries: list[Any], dtype: str) -> Any:
    """What a kernel returns: a vector or matrix of the dtype of that name."""
    array = np.array(entries, dtype=to_numpy_type(by_name(dtype)))
    return (Vector if array.ndim == 1 else Matrix)(array)


# --- types ---


def _flattened(args: tuple[Any, ...]) -> list[Any]:
    values: list[Any] = []
    for a in args:
        if isinstance(a, Matrix):
            a = a.entries
        if isinstance(a, np.ndarray):
            values.extend(a.ravel().tolist())
        elif isinstance(a, (list, tuple)):
            values.extend(_flattened(tuple(a)))
        else:
            values.append(a)
    return values


class MatrixType:
    """Type of matrices: `qd.types.matrix(n, m, dtype)`. None stands for any size or dtype."""

    _qd_annotation = True

    def __init__(self, n: int | None, m: int | None, ndim: int, dtype: Any) -> None:
        check_element_shape(*((n,) if ndim == 1 else (n, m)))
        self.n = n
        self.m = m
        self.ndim = ndim
        self._declared = dtype  # float, int and bool mean the defaults of the runtime in place
        if dtype is not None:
            cook_dtype(dtype)

    @property
    def dtype(self) -> DataType | None:
        return None if self._declared is None else cook_dtype(self._declared)

    @property
    def tensor_type(self) -> TensorType | None:
        """The element type of arrays of these; None with wildcards."""
        shape = self.get_shape()
        if self.dtype is None or None in shape:
            return None
        return TensorType(shape, self.dtype)

    def get_shape(self) -> tuple[Any, ...]:
        """(n,) or (n, m)."""
        return (self.n,) if self.ndim == 1 else (self.n, self.m)

    def to_string(self) -> str:
        return f"MatrixType[{self.n},{self.m}, {self.dtype}]"

    def check_matched(self, other: Any) -> bool:
        """Whether an array's element type fits."""
        shape = tuple(other.shape())
        if len(shape) != self.ndim:
            return False
        if builtins.any(w is not None and w != s for w, s in zip(self.get_shape(), shape)):
            return False
        return self.dtype is None or self.dtype is other.element_type()

    def _numpy_type(self) -> Any:
        return to_numpy_type(float if self._declared is None else self._declared)

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
        count = self.n * (self.m if self.ndim == 2 else 1)  # type: ignore[operator]
        values = _flattened(args)
        if len(args) == 1 and not isinstance(args[0], (list, tuple, Matrix, np.ndarray)):
            values = values * count
        if builtins.any(v is None for v in values):
            raise TypeError(f"{self.to_string()} takes numbers, got None")
        if len(values) < count:
            raise IndexError(f"{self.to_string()} needs {count} components, got {len(values)}")
        entries = np.array(values[:count]).astype(self._numpy_type()).reshape(self.get_shape())
        return (Vector if self.ndim == 1 else Matrix)(entries)

    def cast(self, value: Any) -> Any:
        """A value of this type from anything with enough components."""
        return self(value)

    def filled_with_scalar(self, value: Any) -> Any:
        """All components the same."""
        return self(value)

    def field(self, **kwargs: Any) -> Any:
        """A field of these; the keywords are those of `Matrix.field`."""
        return Matrix.field(self.n, self.m, dtype=self.dtype, **kwargs)  # type: ignore[arg-type]

    def ndarray(self, **kwargs: Any) -> Any:
        """An ndarray of these; the keywords are those of `Matrix.ndarray`."""
        return Matrix.ndarray(self.n, self.m, dtype=self.dtype, **kwargs)  # type: ignore[arg-type]

    def __or__(self, other: Any) -> Any:
        return optional(self, other)


class VectorType(MatrixType):
    """Type of vectors: `qd.types.vector(n, dtype)`."""

    def __init__(self, n: int | None, dtype: Any) -> None:
        super().__init__(n, 1, 1, dtype)

    def to_string(self) -> str:
        return f"VectorType[{self.n}, {self.dtype}]"

    def field(self, **kwargs: Any) -> Any:
        """A field of these; the keywords are those of `Vector.field`."""
        return Vector.field(self.n, dtype=self.dtype, **kwargs)  # type: ignore[arg-type]

    def ndarray(self, **kwargs: Any) -> Any:
        """An ndarray of these; the keywords are those of `Vector.ndarray`."""
        return Vector.ndarray(self.n, dtype=self.dtype, **kwargs)  # type: ignore[arg-type]


class UnpackedVectorType(VectorType):
    """`vector(n, dtype, unpacked=True)`: only a member annotation of `@qd.dataclass`."""

    @staticmethod
    def misuse(action: str) -> QuadrantsSyntaxError:
        return QuadrantsSyntaxError(
            f"cannot {action} a vector declared with unpacked=True; the unpacked layout is only honored on "
            "``@qd.dataclass`` field annotations. Either drop ``unpacked=True`` or use the type in an "
            "annotation like ``r: qd.types.vector(N, dtype, unpacked=True)`` on a class decorated with "
            "@qd.dataclass."
        )

    def __call__(self, *args: Any) -> Any:
        raise self.misuse("instantiate")

    def field(self, **kwargs: Any) -> Any:
        raise self.misuse("create a field of")

    def ndarray(self, **kwargs: Any) -> Any:
        raise self.misuse("create an ndarray of")
