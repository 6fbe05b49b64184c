"""Re-exports of `quadrants.linalg._matrix_free`."""

from quadrants.linalg._matrix_free import LinearOperator, MatrixFreeBICGSTAB, MatrixFreeCG

__all__ = ["LinearOperator", "MatrixFreeBICGSTAB", "MatrixFreeCG"]
