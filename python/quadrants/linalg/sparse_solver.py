"""Re-exports of `quadrants.linalg._solvers`."""

from quadrants.linalg._solvers import SparseSolver

__all__ = ["SparseSolver"]
