"""Re-exports of the compatibility room."""

from quadrants._compat.symbols import ASTResolver

__all__ = ["ASTResolver"]
