"""Re-exports of the compatibility room."""

from quadrants._compat.dataclass_trees import FunctionDefTransformer

__all__ = ["FunctionDefTransformer"]
