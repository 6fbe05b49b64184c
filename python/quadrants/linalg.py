"""Sparse matrices and solvers."""

from quadrants.lang._unavailable import declare as _declare

_FUNCTIONS = "MatrixFreeBICGSTAB MatrixFreeCG"
_CLASSES = "LinearOperator SparseCG SparseMatrix SparseMatrixBuilder SparseSolver"
_declare(globals(), _FUNCTIONS, _CLASSES, prefix="qd.linalg")


def __dir__() -> list[str]:
    return [*_FUNCTIONS.split(), *_CLASSES.split(), *(n for n in globals() if n.startswith("_"))]
