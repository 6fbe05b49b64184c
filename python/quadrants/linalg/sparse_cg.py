"""Re-exports of `quadrants.linalg._solvers`."""

from quadrants.linalg._solvers import SparseCG

__all__ = ["SparseCG"]
