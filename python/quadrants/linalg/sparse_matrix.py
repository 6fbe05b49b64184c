"""Re-exports of `quadrants.linalg._sparse_matrix`."""

from quadrants.linalg._sparse_matrix import SparseMatrix, SparseMatrixBuilder

__all__ = ["SparseMatrix", "SparseMatrixBuilder"]
