"""Re-exports of the compatibility room."""

from quadrants._compat.graph_spelling import is_deprecated_spelling, matches, warn_if_deprecated

__all__ = ["is_deprecated_spelling", "matches", "warn_if_deprecated"]
