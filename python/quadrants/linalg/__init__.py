"""Sparse matrices, and solvers for linear systems.

PYTEST_DONT_REWRITE (its imports would show in `dir`)
"""

from quadrants.lang._unavailable import declare as _declare
from quadrants.linalg._matrix_free import LinearOperator, MatrixFreeBICGSTAB, MatrixFreeCG

_CLASSES = "SparseCG SparseMatrix SparseMatrixBuilder SparseSolver"
_declare(globals(), "", _CLASSES, prefix="qd.linalg")

__all__ = ["LinearOperator", "MatrixFreeBICGSTAB", "MatrixFreeCG"]


def __dir__() -> list[str]:
    return [*__all__, *_CLASSES.split(), *(n for n in globals() if n.startswith("_"))]
