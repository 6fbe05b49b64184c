"""Sparse matrices, and solvers for linear systems.

PYTEST_DONT_REWRITE (its imports would show in `dir`)
"""

from quadrants._lazy import lazy_names as _lazy_names

_HOMES = {
    "_matrix_free": "LinearOperator MatrixFreeBICGSTAB MatrixFreeCG",
    "_solvers": "SparseCG SparseSolver",
    "_sparse_matrix": "SparseMatrix SparseMatrixBuilder",
}
_WHERE = {n: f"{__name__}.{home}:{n}" for home, names in _HOMES.items() for n in names.split()}
__all__ = sorted(_WHERE)

_ALSO = "matrixfree_cg sparse_cg sparse_matrix sparse_solver"
_MODULES = {n: f"{__name__}.{n}" for n in (*_ALSO.split(), *_HOMES)}
__getattr__, __dir__ = _lazy_names(__name__, globals(), {**_WHERE, **_MODULES})
