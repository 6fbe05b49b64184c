"""Re-exports of the compatibility room."""

from quadrants._compat.dataclass_trees import CallTransformer, FunctionDefTransformer

__all__ = ["CallTransformer", "FunctionDefTransformer"]
