"""Direct solvers, and conjugate gradients, for sparse matrices."""

from __future__ import annotations

from operator import index
from typing import Any, SupportsIndex

import quadrants as qd
from quadrants._lazy import LazyNumpy
from quadrants.lang.exception import QuadrantsRuntimeError
from quadrants.lang.util import to_numpy_type
from quadrants.linalg._native import Handle, call, whole
from quadrants.linalg._sparse_matrix import SparseMatrix, _checked_dtype, like, vector_of

np: Any = LazyNumpy(globals())

_TYPES, _ORDERINGS = ["LLT", "LDLT", "LU"], ["AMD", "COLAMD"]


class SparseSolver:
    """Solves A @ x = b by a factorisation of A.

    Args:
        dtype: f32 or f64, of the matrices.
        solver_type: "LLT" or "LDLT" for symmetric positive definite matrices, "LU" for any regular one.
        ordering: "AMD" or "COLAMD": how rows are permuted to keep the factors sparse.

    Raises:
        QuadrantsRuntimeError: another type, ordering or dtype.
    """

    def __init__(
        self, dtype: Any = qd.f32, solver_type: str = "LLT", ordering: str = "AMD"
    ) -> None:
        if solver_type not in _TYPES or ordering not in _ORDERINGS:
            raise QuadrantsRuntimeError(
                f"The solver type {solver_type} with {ordering} is not supported for now. "
                f"Only {_TYPES} with {_ORDERINGS} are supported."
            )
        self.dtype = _checked_dtype(dtype, "col_major")
        self.matrix: SparseMatrix | None = None
        self._is_analyzed = self._is_factorized = False
        kind, order = _TYPES.index(solver_type), _ORDERINGS.index(ordering)
        self._native = Handle("solver", call("solver", dtype is qd.f64, kind, order))

    def _take(self, matrix: Any) -> SparseMatrix:
        if not isinstance(matrix, SparseMatrix):
            raise QuadrantsRuntimeError(
                f"The parameter type: {type(matrix)} is not supported in linear solvers for now."
            )
        if matrix.dtype is not self.dtype:
            raise QuadrantsRuntimeError(
                f"The SparseSolver's dtype {self.dtype} is not consistent with the SparseMatrix's dtype "
                f"{matrix.dtype}."
            )
        if matrix.n != matrix.m:
            raise QuadrantsRuntimeError(f"A solver needs a square matrix, not {matrix.shape}")
        return matrix

    @whole
    def analyze_pattern(self, sparse_matrix: SparseMatrix) -> None:
        """Prepares for matrices with entries in the places of this one's.

        Args:
            sparse_matrix: square matrix.
        """
        matrix = self._take(sparse_matrix)
        call("analyze", self._native, matrix._native)
        self.matrix, self._is_analyzed, self._is_factorized = matrix, True, False

    @whole
    def factorize(self, sparse_matrix: SparseMatrix) -> None:
        """Factorises a matrix; one of another pattern than was analysed is analysed first.

        Args:
            sparse_matrix: square matrix.

        Raises:
            QuadrantsRuntimeError: nothing of its shape was analysed.
        """
        matrix = self._take(sparse_matrix)
        if not self._is_analyzed or self.matrix is None or matrix.shape != self.matrix.shape:
            raise QuadrantsRuntimeError("Please call analyze_pattern() before calling factorize().")
        call("factorize", self._native, matrix._native)
        self.matrix, self._is_factorized = matrix, True

    @whole
    def compute(self, sparse_matrix: SparseMatrix) -> None:
        """Both: analyses and factorises a matrix.

        Args:
            sparse_matrix: square matrix.
        """
        self.analyze_pattern(sparse_matrix)
        self.factorize(sparse_matrix)

    @whole
    def _factorized(self) -> SparseMatrix | None:
        return self.matrix if self._is_factorized else None

    def solve(self, b: Any) -> Any:
        """The solution for a right side.

        Args:
            b: NumPy array, field of one axis, or ndarray.

        Returns:
            An ndarray for an ndarray, else a NumPy array; of NaN if the factorisation failed.

        Raises:
            QuadrantsRuntimeError: another type, or nothing is factorised.
        """
        matrix = self._factorized()
        if matrix is None:
            raise QuadrantsRuntimeError("Please call compute() before calling solve().")
        right = vector_of(b, matrix, matrix.n)
        if right is None:
            raise QuadrantsRuntimeError(
                f"The parameter type: {type(b)} is not supported in linear solvers for now."
            )
        x = np.full(matrix.n, np.nan, right.dtype)  # which it stays if another thread was faster
        call("solve", self._native, right, x, len(x))
        return like(b, x, self.dtype)

    @whole
    def info(self) -> bool:
        """Whether the factorisation succeeded."""
        return self._is_factorized and call("succeeded", self._native)


class SparseCG:
    """Conjugate gradients for a symmetric positive definite sparse matrix.

    Args:
        A: the matrix.
        b: right side: a NumPy array, field of one axis, or ndarray.
        x0: first guess, zero if None.
        max_iter: most iterations.
        atol: the residual's norm, relative to that of b, at which it stops.

    Raises:
        QuadrantsRuntimeError: not a square matrix, or a vector of another type.
        TypeError: complex numbers, or a max_iter that is no integer.
        ValueError: a max_iter that is negative or beyond 2**31 - 1.
    """

    def __init__(
        self, A: SparseMatrix, b: Any, x0: Any = None, max_iter: int = 50, atol: float = 1e-6
    ) -> None:
        if not isinstance(A, SparseMatrix):
            raise QuadrantsRuntimeError(f"SparseCG takes a SparseMatrix, not {type(A)}")
        if A.n != A.m:
            raise QuadrantsRuntimeError(f"SparseCG needs a square matrix, not {A.shape}")
        if not isinstance(max_iter, SupportsIndex):
            raise TypeError(f"max_iter is an integer, got {max_iter!r}")
        if not 0 <= index(max_iter) < 2**31:
            raise ValueError(f"max_iter is at most {2**31 - 1} and not negative, got {max_iter}")
        self.A, self.max_iter, self.atol, self._given = A, index(max_iter), float(atol), b
        self.b = self._vector(b)
        self.x0 = np.zeros(A.n, to_numpy_type(A.dtype)) if x0 is None else self._vector(x0)

    def _vector(self, given: Any) -> Any:
        vector = vector_of(given, self.A, self.A.n)
        if vector is None:
            raise QuadrantsRuntimeError(
                f"The parameter type: {type(given)} is not supported in linear solvers for now."
            )
        return vector.copy()

    def solve(self) -> tuple[Any, bool]:
        """The solution, and whether it was reached."""
        x = self.x0.copy()
        address = self.A._native
        ok = call("conjugate_gradients", address, self.b, x, self.max_iter, self.atol)
        on_gpu = qd.lang.impl.current_cfg().arch not in (qd.x64, qd.arm64)
        return like(self._given, x, self.A.dtype) if on_gpu else x, ok
