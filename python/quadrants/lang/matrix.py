"""Host vectors and matrices.

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
from quadrants.lang._values.entries import cast_alone, entries_of
from quadrants.lang._values.swizzle import all_swizzles
from quadrants.lang._values.swizzle import generate_patterns as _generate_swizzle_patterns
from quadrants.lang.exception import (
    QuadrantsCompilationError,
    QuadrantsTypeError,
)
from quadrants.lang.util import real_numbers, to_numpy_type
from quadrants.types.primitive_types import by_name

__all__ = [
    "Matrix",
    "Vector",
    "_generate_swizzle_patterns",
]

# Classes that live elsewhere; clients look for them here.
__getattr__, _ = lazy_names(
    __name__,
    globals(),
    {
        "MatrixType": "quadrants.lang._values.matrix_types:MatrixType",
        "UnpackedVectorType": "quadrants.lang._values.matrix_types:UnpackedVectorType",
        "VectorType": "quadrants.lang._values.matrix_types:VectorType",
        "MatrixField": "quadrants.lang.field:MatrixField",
        "MatrixNdarray": "quadrants.lang._ndarray:MatrixNdarray",
        "VectorNdarray": "quadrants.lang._ndarray:VectorNdarray",
        "Field": "quadrants.lang.field:Field",
        "Ndarray": "quadrants.lang._ndarray:Ndarray",
        "ScalarField": "quadrants.lang.field:ScalarField",
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
    if isinstance(x, (list, tuple)):
        return NotImplemented if _has_symbolic(x) else entries_of(x)
    if isinstance(x, (int, float)):
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


def _factory(name: str, *args: Any) -> Any:
    """A matrix made by the kernel language: traced in kernels, an error on the host."""
    if impl.inside_kernel():
        return core.trace_op(f"Matrix.{name}", args)
    if impl.is_python_backend():
        return _python_factory(name, *args)
    raise AssertionError(f"{name} cannot be called in Python-scope")


def _python_factory(name: str, *args: Any) -> Any:
    from quadrants.lang._python_backend import factory

    return factory(name, *args)


def _different_shapes(a: Any, b: Any) -> QuadrantsCompilationError:
    return QuadrantsCompilationError(
        f"required shapes to be the same, got shapes {[a.shape, b.shape]}"
    )


def _sum(entries: Any) -> Any:
    """The sum in the type of the entries, as in kernels; NumPy's is of 64 bits. Truths are counted."""
    dtype = entries.dtype
    return np.add.reduce(entries, None, None if dtype.kind == "b" else dtype)


def _elements(x: Matrix) -> Any:
    """The entries of a matrix; numbers in storage are Python's, as `x[0]` gives them."""
    return x.entries.astype(object) if x.is_host_access else x.entries


def _root(square: Any, eps: Any) -> Any:
    """sqrt(square + eps); of integers in f64, as NumPy's is of half precision for 8 bits."""
    return np.sqrt((square if square.dtype.kind == "f" else np.float64(square)) + eps)


def _adjugate(a: Any) -> Any:
    """The inverse times the determinant, of two or three rows."""
    if len(a) == 2:
        return np.array([[a[1, 1], 0 - a[0, 1]], [0 - a[1, 0], a[0, 0]]])
    return np.array([np.cross(a[i - 2], a[i - 1]) for i in range(3)]).T


class Matrix:
    """A vector or matrix of numbers.

    In kernels a value of fixed shape in registers, on the host a NumPy array. More than 144 elements
    bring a warning.

    Args:
        arr: list or tuple, nested for matrices, or NumPy array of one or two dimensions.
        dt: element type; by default NumPy decides on the host. In kernels integer literals count as
            the default integer, float literals as the default float, and all elements are promoted to
            one type.

    Attributes:
        n: number of rows or components.
        m: number of columns, 1 for vectors.
        ndim: 1 or 2.
        entries: the elements as a NumPy array.

    Raises:
        QuadrantsTypeError: arr is no array, or in kernels an element is no number.
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
        self: Any = object.__new__(cls)
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
        value = value.entries if isinstance(value, Matrix) else value
        if self.is_host_access:
            numbers = real_numbers(np.asarray(value, object))  # as they are: storage casts
            if [*map(min, numbers.shape, self.get_shape())] != [*self.get_shape()]:
                self._check_assigned(numbers)  # more than fit are cut off
            for where in np.ndindex(*self.get_shape()):
                number = numbers[where if numbers.shape else ()]
                self._access.set(number.item() if hasattr(number, "item") else number, *where)
        else:
            array = real_numbers(np.asarray(value))
            if array.dtype.kind in "fO" and self.entries.dtype.kind in "iu":
                array = cast_alone(self.entries.dtype, value)
            self._check_assigned(array)
            self.entries[...] = array

    def _check_assigned(self, array: Any) -> None:
        """Raises `ValueError`, as NumPy words it, unless it is a number or of this shape."""
        if array.shape and array.shape != self.get_shape():
            given, own = (str(shape).replace(" ", "") for shape in (array.shape, self.get_shape()))
            raise ValueError(f"could not broadcast input array from shape {given} into shape {own}")

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
        """The elements as a NumPy array, of shape (n,) or (n, m)."""
        return self.entries

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return np.array(self.entries, dtype=dtype)

    def fill(self, val: Any) -> None:
        """Sets every element to val."""
        val = np.asarray(val, object) if isinstance(val, (list, tuple)) else val
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
        if other is None or isinstance(other, (str, bytes)):
            return Matrix(np.zeros(self.get_shape(), bool))
        other = _operand(other)
        return (
            NotImplemented if other is NotImplemented else Matrix(np.asarray(self.entries == other))
        )

    def __ne__(self, other: Any) -> Any:
        if other is None or isinstance(other, (str, bytes)):
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
        """Sum of all elements, a scalar of their type."""
        return _sum(_elements(self))

    def max(self) -> Any:
        """Largest element, a scalar."""
        return self.entries.max()

    def min(self) -> Any:
        """Smallest element, a scalar."""
        return self.entries.min()

    def any(self) -> bool:
        """Whether an element is not zero."""
        return bool((self.entries != 0).any())

    def all(self) -> bool:
        """Whether no element is zero."""
        return bool((self.entries != 0).all())

    def norm_sqr(self) -> Any:
        """Sum of the squares, a scalar."""
        a = self.entries
        return _sum(a * a)

    def norm(self, eps: Any = 0) -> Any:
        """Euclidean or Frobenius norm: sqrt(sum of squares + eps), a float."""
        if core.is_expr(eps):
            return core.trace_op("Matrix.norm", (self, eps))
        return _root(self.norm_sqr(), eps)

    def norm_inv(self, eps: Any = 0) -> Any:
        """1 / norm(eps), a float."""
        if core.is_expr(eps):
            return core.trace_op("Matrix.norm_inv", (self, eps))
        return 1 / _root(self.norm_sqr(), eps)

    def normalized(self, eps: Any = 0) -> Any:
        """The vector divided by norm() + eps; NaN for zeros and eps = 0.

        Raises:
            QuadrantsCompilationError: this is a matrix.
        """
        if self.ndim != 1:
            raise QuadrantsCompilationError(f"expected a vector, got {type(self)}")
        return self / (self.norm() + eps)

    def dot(self, other: Any) -> Any:
        """Scalar product with another vector.

        Args:
            other: vector of the same length.

        Raises:
            QuadrantsCompilationError: an operand is no vector, or the lengths differ.
        """
        if _has_symbolic(other):
            return core.trace_op("Matrix.dot", (self, other))
        a, b = self._two_vectors(other, "dot")
        if a.shape != b.shape:
            raise _different_shapes(a, b)
        return _sum(a * b)

    def _two_vectors(self, other: Any, operation: str) -> tuple[Any, Any]:
        a, b = self.entries, entries_of(other.entries if isinstance(other, Matrix) else other)
        for side, entries in (("lhs", a), ("rhs", b)):
            if entries.ndim != 1:
                raise QuadrantsCompilationError(f"{side} for {operation} is not a vector")
        return a, b

    def cross(self, other: Any) -> Any:
        """Vector product with another vector.

        Args:
            other: vector of the same length.

        Returns:
            A vector in 3-D; in 2-D a scalar, the third component of the product.

        Raises:
            QuadrantsCompilationError: an operand is no vector of 2 or 3 components, or they differ.
        """
        if _has_symbolic(other):
            return core.trace_op("Matrix.cross", (self, other))
        a, b = self._two_vectors(other, "cross")
        if a.shape != b.shape:
            raise _different_shapes(a, b)
        if self.n not in (2, 3):
            raise QuadrantsCompilationError(f"only dimension < 4 is supported, got shape {a.shape}")
        if self.n == 2:
            if self.is_host_access and getattr(other, "is_host_access", False):
                a, b = _elements(self), _elements(other)
            return a[0] * b[1] - a[1] * b[0]
        return Vector(np.cross(a, b))

    def outer_product(self, other: Any) -> Any:
        """The matrix of all products: row i, column j holds self[i] * other[j].

        Args:
            other: vector of any length.

        Raises:
            QuadrantsCompilationError: an operand is no vector.
        """
        if _has_symbolic(other):
            return core.trace_op("Matrix.outer_product", (self, other))
        return Matrix(np.outer(*self._two_vectors(other, "outer_product")))

    def frobenius_inner(self, other: Any) -> Any:
        """Sum of the element-wise products.

        Args:
            other: vector or matrix of the same shape.

        Raises:
            QuadrantsCompilationError: the shapes differ.
        """
        if _has_symbolic(other):
            return core.trace_op("Matrix.frobenius_inner", (self, other))
        a, b = self.entries, entries_of(other.entries if isinstance(other, Matrix) else other)
        if a.shape != b.shape:
            raise _different_shapes(a, b)
        return _sum(a * b)

    def transpose(self) -> Any:
        """The matrix mirrored at its diagonal: n x m becomes m x n.

        Raises:
            QuadrantsCompilationError: this is a vector.
        """
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
        """Sum of the diagonal of a square matrix.

        Raises:
            QuadrantsCompilationError: the matrix is not square.
        """
        self._check_square()
        return _sum(_elements(self).diagonal())

    def inverse(self) -> Any:
        """The inverse of a square matrix of at most 12 rows, as floats.

        In kernels by cofactors up to 4 rows, above by Gauss-Jordan elimination with partial pivoting
        (Golub and Van Loan, "Matrix Computations", chapter 3). A singular matrix gives infinities or
        NaN.

        Raises:
            QuadrantsCompilationError: the matrix is not square or too large.
        """
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
        """Determinant of a square matrix of at most 4 rows, by cofactors; in kernels only.

        Raises:
            AssertionError: called outside a kernel.
            QuadrantsCompilationError: the matrix is not square or too large.
        """
        if impl.inside_kernel():
            return core.trace_op("Matrix.determinant", (self,))
        raise AssertionError("determinant cannot be called in Python-scope")

    def cast(self, dtype: Any) -> Any:
        """Element-wise conversion; in kernels only. See `qd.cast`.

        Args:
            dtype: `qd.i32` and so on; `int` and `float` mean the defaults.

        Raises:
            AssertionError: called outside a kernel.
        """
        if impl.inside_kernel():
            return core.trace_op("Matrix.cast", (self, dtype))
        raise AssertionError("cast cannot be called in Python-scope")

    # --- factories ---

    @staticmethod
    def zero(dt: Any, n: int, m: int | None = None) -> Any:
        """All zeros, in kernels.

        Args:
            dt: element type.
            n: number of rows or components.
            m: number of columns; None makes a vector.

        Raises:
            AssertionError: called outside a kernel.
        """
        return _factory("zero", dt, n, m)

    @staticmethod
    def one(dt: Any, n: int, m: int | None = None) -> Any:
        """All ones, in kernels.

        Args:
            dt: element type.
            n: number of rows or components.
            m: number of columns; None makes a vector.

        Raises:
            AssertionError: called outside a kernel.
        """
        return _factory("one", dt, n, m)

    @staticmethod
    def identity(dt: Any, n: int) -> Any:
        """The n x n identity, in kernels.

        Args:
            dt: element type.
            n: number of rows.

        Raises:
            AssertionError: called outside a kernel.
        """
        return _factory("identity", dt, n)

    @staticmethod
    def unit(n: int, i: int, dt: Any = None) -> Any:
        """The i-th of the n basis vectors, in kernels.

        Args:
            n: number of components.
            i: position of the 1, from 0.
            dt: element type, the default integer if None.

        Raises:
            AssertionError: called outside a kernel.
            QuadrantsCompilationError: i is not in [0, n).
        """
        return _factory("unit", n, i, dt)

    @staticmethod
    def diag(dim: int, val: Any) -> Any:
        """The dim x dim matrix with val on the diagonal and 0 elsewhere.

        Args:
            dim: compile-time number of rows.
            val: number, whose type the matrix has.

        Raises:
            QuadrantsCompilationError: dim is no integer, or known only at run time.
        """
        if _has_symbolic(val) or impl.inside_kernel():
            return core.trace_op("Matrix.diag", (dim, val))
        if impl.is_python_backend():
            return _python_factory("diag", dim, val)
        if not hasattr(type(dim), "__index__"):
            raise QuadrantsCompilationError(f"not an integer: {dim} of type {type(dim).__name__}")
        return Matrix(np.diag(np.full(dim, val)))

    @staticmethod
    def rows(rows: Any) -> Any:
        """The matrix with these rows.

        Args:
            rows: list of lists or vectors of one length.

        Raises:
            QuadrantsCompilationError: the lengths differ.
        """
        return _stacked("rows", rows, False)

    @staticmethod
    def cols(cols: Any) -> Any:
        """The matrix with these columns.

        Args:
            cols: list of lists or vectors of one length.

        Raises:
            QuadrantsCompilationError: the lengths differ.
        """
        return _stacked("cols", cols, True)

    # --- storage ---

    @classmethod
    @impl.host_only
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
        """A field of matrices.

        Args:
            n: number of rows.
            m: number of columns.
            dtype: element type; for quantised elements a list of n lists of m types.
            shape: extents, an integer or a tuple; None leaves placing to the program.
            order: nesting of the axes in memory, outermost first, such as "ji".
            name: appears in messages.
            offset: index of the first element along each axis.
            needs_grad: allocate adjoints.
            needs_dual: allocate duals.
            layout: `Layout.AOS` keeps the components of an element together, `Layout.SOA` apart.
            ndim: 1 makes vectors; m must be 1 then.

        Raises:
            QuadrantsSyntaxError: shape, order and offset do not fit together.
        """
        from quadrants.lang.field import create_matrix_field

        ndim = 2 if ndim is None else ndim
        return create_matrix_field(
            n, m, ndim, dtype, shape, order, name, offset, needs_grad, needs_dual, layout
        )

    @classmethod
    @impl.host_only
    def ndarray(cls, n: int, m: int, dtype: Any, shape: Any, needs_grad: bool = False) -> Any:
        """An ndarray of matrices.

        Args:
            n: number of rows.
            m: number of columns.
            dtype: element type.
            shape: extents, an integer or a tuple.
            needs_grad: allocate adjoints.
        """
        from quadrants.lang._ndarray import create_matrix_ndarray

        return create_matrix_ndarray(n, m, 2, dtype, shape, needs_grad)

    @classmethod
    def tensor(cls, n: int, m: int, dtype: Any, shape: Any, **kwargs: Any) -> Any:
        """A tensor of matrices: a field or an ndarray.

        Args:
            n: number of rows.
            m: number of columns.
            dtype: element type.
            shape: extents, an integer or a tuple.
            **kwargs: those of `qd.tensor`.
        """
        from quadrants._tensor import create_matrix_tensor

        return create_matrix_tensor(n, m, 2, dtype, shape, **kwargs)

    vars().update(all_swizzles())  # names of the class body


for _name in ("zero", "one", "identity", "unit", "diag", "rows", "cols"):
    getattr(Matrix, _name)._qd_op = f"Matrix.{_name}"


def _numbers(name: str, part: Any) -> np.ndarray:
    """A row or column as an array of one dimension."""
    try:
        array = np.asarray(part)
    except ValueError:  # lists of unequal depth
        array = None
    if array is None or array.ndim != 1 or (array.size and array.dtype.kind not in "biuf"):
        raise QuadrantsCompilationError(
            f"Matrix.{name} takes a list of lists or vectors of numbers, got {part!r} in it"
        )
    return array


def _stacked(name: str, parts: Any, as_columns: bool) -> Any:
    if (
        _has_symbolic(list(parts))
        or builtins.any(_has_symbolic(p) for p in parts)
        or impl.inside_kernel()
    ):
        return core.trace_op(f"Matrix.{name}", (parts,))
    if impl.is_python_backend():
        return _python_factory(name, parts)
    arrays = [_numbers(name, p) for p in parts]
    if not arrays:
        raise QuadrantsCompilationError(f"Matrix.{name} takes at least one list or vector")
    shapes = [a.shape for a in arrays]
    if builtins.any(s != shapes[0] for s in shapes):
        raise QuadrantsCompilationError(f"required shapes to be the same, got shapes {shapes}")
    return Matrix(np.stack(arrays, axis=1 if as_columns else 0))


class Vector(Matrix):
    """A vector of numbers: a `Matrix` with one dimension.

    Args:
        arr: list, tuple or NumPy array of one dimension.
        dt: element type, as for `Matrix`.

    Raises:
        QuadrantsTypeError: arr is no array, or in kernels an element is no number.
    """

    @classmethod
    @impl.host_only
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
        """A field of vectors.

        Args:
            n: number of components.
            dtype: element type; for quantised elements a list of n types.
            shape: extents, an integer or a tuple; None leaves placing to the program.
            order: nesting of the axes in memory, outermost first, such as "ji".
            name: appears in messages.
            offset: index of the first element along each axis.
            needs_grad: allocate adjoints.
            needs_dual: allocate duals.
            layout: `Layout.AOS` keeps the components of an element together, `Layout.SOA` apart.

        Raises:
            QuadrantsSyntaxError: shape, order and offset do not fit together.
        """
        return Matrix.field(
            n, 1, dtype, shape, order, name, offset, needs_grad, needs_dual, layout, ndim=1
        )

    @classmethod
    @impl.host_only
    def ndarray(cls, n: int, dtype: Any, shape: Any, needs_grad: bool = False) -> Any:  # type: ignore[override]
        """An ndarray of vectors.

        Args:
            n: number of components.
            dtype: element type.
            shape: extents, an integer or a tuple.
            needs_grad: allocate adjoints.
        """
        from quadrants.lang._ndarray import create_matrix_ndarray

        return create_matrix_ndarray(n, 1, 1, dtype, shape, needs_grad)

    @classmethod
    def tensor(cls, n: int, dtype: Any, shape: Any, **kwargs: Any) -> Any:  # type: ignore[override]
        """A tensor of vectors: a field or an ndarray.

        Args:
            n: number of components.
            dtype: element type.
            shape: extents, an integer or a tuple.
            **kwargs: those of `qd.tensor`.
        """
        from quadrants._tensor import create_matrix_tensor

        return create_matrix_tensor(n, 1, 1, dtype, shape, **kwargs)


def _from_kernel(entries: list[Any], dtype: str) -> Any:
    """What a kernel returns: a vector or matrix of the dtype of that name."""
    array = np.array(entries, dtype=to_numpy_type(by_name(dtype)))
    return (Vector if array.ndim == 1 else Matrix)(array)
