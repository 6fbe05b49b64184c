"""Warnings that appear once."""

import warnings

_seen: set[str] = set()


def warn_once(message: str) -> None:
    """Warns unless the same message was given before."""
    if message not in _seen:
        _seen.add(message)
        warnings.warn(message, stacklevel=2)
