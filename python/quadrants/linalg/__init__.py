"""Sparse matrices, and solvers for linear systems.

PYTEST_DONT_REWRITE (its imports would show in `dir`)
"""

from quadrants._lazy import lazy_names as _lazy_names
from quadrants.linalg._matrix_free import LinearOperator, MatrixFreeBICGSTAB, MatrixFreeCG
from quadrants.linalg._solvers import SparseCG, SparseSolver
from quadrants.linalg._sparse_matrix import SparseMatrix, SparseMatrixBuilder

__all__ = [
    "LinearOperator",
    "MatrixFreeBICGSTAB",
    "MatrixFreeCG",
    "SparseCG",
    "SparseMatrix",
    "SparseMatrixBuilder",
    "SparseSolver",
]

_ALSO = "matrixfree_cg sparse_cg sparse_matrix sparse_solver"
__getattr__, _ = _lazy_names(__name__, globals(), {n: f"{__name__}.{n}" for n in _ALSO.split()})


def __dir__() -> list[str]:
    return [*__all__, *(n for n in [*globals()] if n.startswith("_"))]
