"""Re-exports of the compatibility room."""

from quadrants._compat.dataclass_trees import ASTTransformerFuncContext, ASTTransformerGlobalContext

__all__ = ["ASTTransformerFuncContext", "ASTTransformerGlobalContext"]
