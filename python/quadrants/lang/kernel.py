"""Re-exports of the compatibility room."""

from quadrants._compat.symbols import transform_tree
from quadrants.lang.kernel_impl import Kernel

__all__ = ["Kernel", "transform_tree"]
