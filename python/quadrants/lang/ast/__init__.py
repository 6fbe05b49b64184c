"""Re-exports of the compatibility room."""

from quadrants._compat.symbols import ASTResolver, transform_tree

__all__ = ["ASTResolver", "transform_tree"]
