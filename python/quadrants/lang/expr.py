"""Re-exports of `quadrants._lib.core`."""

from quadrants._lib.core import Expr

__all__ = ["Expr"]
