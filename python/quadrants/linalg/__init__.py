"""Sparse matrices, and solvers for linear systems.

PYTEST_DONT_REWRITE (its imports would show in `dir`)
"""

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


def __dir__() -> list[str]:
    return [*__all__, *(n for n in [*globals()] if n.startswith("_"))]
