"""Re-exports of the compatibility room."""

from quadrants._compat.dataclass_trees import CallTransformer

__all__ = ["CallTransformer"]
