"""Re-exports of `quadrants.lang.misc`."""

from quadrants.lang.misc import sync

__all__ = ["sync"]
