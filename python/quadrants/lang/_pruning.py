"""Re-exports of the compatibility room."""

from quadrants._compat.dataclass_trees import Pruning

__all__ = ["Pruning"]
