"""Sparse matrices, and lists of triplets that kernels make them from."""

import numbers
from dataclasses import dataclass
from operator import index
from typing import Any

import quadrants as qd
from quadrants._lazy import LazyNumpy
from quadrants.lang.exception import QuadrantsRuntimeError
from quadrants.lang.util import to_numpy_type
from quadrants.linalg import _native
from quadrants.linalg._native import Handle, call

np: Any = LazyNumpy(globals())

_FORMATS = ("col_major", "row_major")
_INTS: Any = qd.types.ndarray(qd.i32, 1)
_REALS: Any = qd.types.ndarray(ndim=1)


def _checked_dtype(dtype: Any, storage_format: str) -> Any:
    on_gpu = qd.lang.impl.current_cfg().arch not in (qd.x64, qd.arm64)
    if dtype not in ((qd.f32,) if on_gpu else (qd.f32, qd.f64)):
        raise QuadrantsRuntimeError(
            f"Unsupported sparse matrix data type: {dtype}, storage format: {storage_format}"
        )
    if storage_format not in _FORMATS:
        raise QuadrantsRuntimeError(
            f"The storage format of a sparse matrix is one of {', '.join(_FORMATS)}, not {storage_format!r}"
        )
    return dtype


def _checked_extent(n: Any, what: str) -> int:
    """Rows, columns or triplets as an int; the native side has 32 bits for them."""
    n = index(0 if n is None else n)
    if not 0 <= n < 2**31:
        raise QuadrantsRuntimeError(f"A sparse matrix has at most {2**31 - 1} {what}, not {n}")
    return n


@dataclass(init=False, repr=False, eq=False)
class SparseMatrixBuilder:
    """A list of triplets (row, column, value), which kernels add to by `A[i, j] += value`.

    Args:
        num_rows: rows of the matrix.
        num_cols: columns.
        max_num_triplets: most triplets before `build`.
        dtype: f32 or f64.
        storage_format: "col_major" or "row_major".
    """

    rows: _INTS
    columns: _INTS
    values: _REALS
    count: _INTS

    _qd_triplets = True

    def __init__(
        self,
        num_rows: int | None = None,
        num_cols: int | None = None,
        max_num_triplets: int = 0,
        dtype: Any = qd.f32,
        storage_format: str = "col_major",
    ) -> None:
        self.num_rows = _checked_extent(num_rows, "rows")
        self.num_cols = _checked_extent(num_rows if num_cols is None else num_cols, "columns")
        self.max_num_triplets = _checked_extent(max_num_triplets, "triplets")
        self.dtype = _checked_dtype(dtype, storage_format)
        self.storage_format = storage_format
        room = max(self.max_num_triplets, 1)
        self.rows, self.columns = qd.ndarray(qd.i32, room), qd.ndarray(qd.i32, room)
        self.values, self.count = qd.ndarray(dtype, room), qd.ndarray(qd.i32, 1)
        self.count.fill(0)

    def _taken(self) -> int:
        count = self.count[0]
        if count > self.max_num_triplets:
            raise QuadrantsRuntimeError(
                f"{count} triplets were added to a sparse matrix builder with room for "
                f"{self.max_num_triplets}: give it a larger max_num_triplets"
            )
        return count

    def print_triplets(self) -> None:
        """Prints the triplets that were added."""
        count = self._taken()
        print(
            f"n={self.num_rows}, m={self.num_cols}, num_triplets={count} (max={self.max_num_triplets})"
        )
        for row, column, value in zip(
            self.rows.to_numpy()[:count], self.columns.to_numpy()[:count], self.values.to_numpy()
        ):
            print(f"[{row}, {column}] = {value:g}")

    def build(self, dtype: Any = qd.f32, _format: str = "CSR") -> "SparseMatrix":
        """A matrix of the triplets, of which those of one place add up. The builder is empty then.

        Args:
            dtype: the builder's own counts.
            _format: of no effect.

        Raises:
            QuadrantsRuntimeError: too many triplets were added, or one is outside of the matrix.
        """
        try:
            count = self._taken()
        finally:
            self.count.fill(0)
        made = SparseMatrix(
            self.num_rows, self.num_cols, dtype=self.dtype, storage_format=self.storage_format
        )
        made._set(*(a.to_numpy()[:count] for a in (self.rows, self.columns, self.values)))
        return made


class SparseMatrix:
    """A sparse matrix of f32 or f64.

    Args:
        n: rows.
        m: columns.
        sm: a native matrix to hold.
        dtype: f32 or f64.
        storage_format: "col_major" or "row_major".

    Raises:
        QuadrantsRuntimeError: another dtype or format.
    """

    def __init__(
        self,
        n: int | None = None,
        m: int | None = None,
        sm: Any = None,
        dtype: Any = qd.f32,
        storage_format: str = "col_major",
    ) -> None:
        self.n = _checked_extent(n, "rows")
        self.m = _checked_extent(n if m is None else m, "columns")
        self.dtype = _checked_dtype(dtype, storage_format)
        self._format = storage_format
        self._kind = np.dtype(to_numpy_type(dtype))
        if sm is not None and not isinstance(sm, Handle):
            raise TypeError(f"sm is what another SparseMatrix holds, not {type(sm).__name__}")
        self._native = sm or Handle("matrix", call("matrix", dtype is qd.f64, self.n, self.m))

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return self.n, self.m

    def _of(self, n: int, m: int, address: int) -> "SparseMatrix":
        return SparseMatrix(n, m, Handle("matrix", address), self.dtype, self._format)

    def _set(self, rows: Any, columns: Any, values: Any) -> None:
        outside = ~((rows >= 0) & (rows < self.n) & (columns >= 0) & (columns < self.m))
        if outside.any():
            at = rows[outside][0], columns[outside][0]
            raise QuadrantsRuntimeError(self._out_of_bounds(*at))
        rows, columns = (np.ascontiguousarray(a, np.int32) for a in (rows, columns))
        values = np.ascontiguousarray(values, self._kind)
        call("set_triplets", self._native, len(rows), rows, columns, values)

    def _out_of_bounds(self, row: Any, column: Any) -> str:
        return f"Out of bound access to a {self.n} x {self.m} sparse matrix at [{row}, {column}]"

    def _checked(self, key: Any) -> tuple[int, int]:
        if not isinstance(key, tuple) or len(key) != 2:
            raise TypeError(f"a sparse matrix is indexed by a row and a column, got {key!r}")
        row, column = map(index, key)
        if not 0 <= row < self.n or not 0 <= column < self.m:
            raise IndexError(self._out_of_bounds(row, column))
        return row, column

    def __getitem__(self, indices: tuple[int, int]) -> float:
        return call("get", self._native, *self._checked(indices))

    def __setitem__(self, indices: tuple[int, int], value: float) -> None:
        call("set", self._native, *self._checked(indices), float(value))

    def _triplets(self) -> tuple[Any, Any, Any]:
        with _native.lock:
            count = call("nonzeros", self._native)
            rows, columns = np.empty(count, np.int32), np.empty(count, np.int32)
            values = np.empty(count, self._kind)
            call("triplets", self._native, rows, columns, values)
        return rows, columns, values

    def _combined(self, other: Any, how: int) -> "SparseMatrix":
        if not isinstance(other, SparseMatrix):
            raise QuadrantsRuntimeError(
                f"An operation of sparse matrices does not support {type(other)}"
            )
        fits = self.m == other.n if how == 3 else self.shape == other.shape
        assert fits, f"Dimension mismatch between sparse matrices {self.shape} and {other.shape}"
        if self.dtype is not other.dtype:
            raise QuadrantsRuntimeError(
                f"Dtype mismatch between sparse matrices: {self.dtype} and {other.dtype}"
            )
        made = call("combined", self._native, other._native, how)
        return self._of(self.n, other.m, made)

    def __add__(self, other: "SparseMatrix") -> "SparseMatrix":
        return self._combined(other, 0)

    def __sub__(self, other: "SparseMatrix") -> "SparseMatrix":
        return self._combined(other, 1)

    def __iadd__(self, other: "SparseMatrix") -> "SparseMatrix":
        self._native = self._combined(other, 0)._native
        return self

    def __isub__(self, other: "SparseMatrix") -> "SparseMatrix":
        self._native = self._combined(other, 1)._native
        return self

    def __mul__(self, other: Any) -> "SparseMatrix":
        """By a number, or of entries by those of another matrix."""
        if isinstance(other, numbers.Real):
            made = call("scaled", self._native, float(other))
            return self._of(self.n, self.m, made)
        return self._combined(other, 2)

    __rmul__ = __mul__

    def transpose(self) -> "SparseMatrix":
        """The transposed matrix."""
        return self._of(self.m, self.n, call("transposed", self._native))

    def __matmul__(self, other: Any) -> Any:
        """By a matrix, or by a vector: a NumPy array, a field of one axis or an ndarray."""
        if isinstance(other, SparseMatrix):
            return self._combined(other, 3)
        x = vector_of(other, self, self.m)
        if x is None:
            raise QuadrantsRuntimeError(
                f"Sparse matrix-matrix/vector multiplication does not support {type(other)} for now. "
                "Supported types are SparseMatrix, qd.field, and numpy ndarray."
            )
        y = np.empty(self.n, self._kind)
        call("multiply", self._native, x, y)
        return like(other, y, self.dtype)

    def build_from_ndarray(self, ndarray: Any) -> None:
        """Takes the triplets (row, column, value) in an ndarray of numbers or vectors.

        Raises:
            QuadrantsRuntimeError: not an ndarray, or its numbers are not whole triplets.
        """
        if not isinstance(ndarray, qd.Ndarray):
            raise QuadrantsRuntimeError(
                "Sparse matrix only supports building from [qd.ndarray, qd.Vector.ndarray, qd.Matrix.ndarray]"
            )
        all_numbers = ndarray.to_numpy().ravel()
        if len(all_numbers) % 3:
            raise QuadrantsRuntimeError(
                "The number of ndarray elements must have a length that is divisible by 3."
            )
        rows, columns, values = all_numbers.reshape(-1, 3).T
        self._set(rows, columns, values)

    def mmwrite(self, filename: str) -> None:
        """Writes the matrix in the format of Matrix Market.

        Args:
            filename: path of the file.
        """
        digits = 9 if self.dtype is qd.f32 else 17
        with open(filename, "w", encoding="ascii") as f:
            f.write("%%MatrixMarket matrix coordinate real general\n%\n")
            rows, columns, values = self._triplets()
            f.write(f"{self.n} {self.m} {len(rows)}\n")
            for row, column, value in zip(rows, columns, values):
                f.write(f"{row + 1} {column + 1} {value:.{digits}g}\n")

    def __str__(self) -> str:
        import ctypes

        with _native.lock:
            size = call("text", self._native, None, 0)
            if not size and self.n * self.m:
                raise MemoryError("there is no memory for the text of a sparse matrix")
            text = ctypes.create_string_buffer(size)
            call("text", self._native, text, size)
        return text.raw.decode()

    __repr__ = __str__


def vector_of(given: Any, matrix: "SparseMatrix", size: int) -> Any:
    """The numbers of a vector for a matrix; None if it is none.

    Raises:
        AssertionError: of another size.
        QuadrantsRuntimeError: an ndarray of another size.
        TypeError: complex numbers, or none.
    """
    is_array = isinstance(given, qd.Ndarray)
    if not is_array and not isinstance(given, (np.ndarray, qd.Field)):
        return None
    x = given if isinstance(given, np.ndarray) else given.to_numpy()
    if x.dtype.kind not in "biuf":
        raise TypeError(f"a vector for a sparse matrix has real numbers, not {x.dtype}")
    if x.shape != (size,):
        message = f"Dimension mismatch between sparse matrix {matrix.shape} and vector {x.shape}"
        raise (QuadrantsRuntimeError if is_array else AssertionError)(message)
    return np.ascontiguousarray(x, to_numpy_type(matrix.dtype))


def like(given: Any, y: Any, dtype: Any) -> Any:
    """A vector as the other one was given: an ndarray, else a NumPy array."""
    if not isinstance(given, qd.Ndarray):
        return y
    made = qd.ndarray(dtype, len(y))
    made.from_numpy(y)
    return made
