"""Sparse grids.

PYTEST_DONT_REWRITE (its imports would show in `dir`)
"""

from quadrants.lang._unavailable import declare as _declare

_FUNCTIONS = "grid usage"
_declare(globals(), _FUNCTIONS, prefix="qd.sparse")


def __dir__() -> list[str]:
    return [*_FUNCTIONS.split(), *(n for n in globals() if n.startswith("_"))]
