"""Automatic differentiation: tapes, forward mode, custom gradients.

PYTEST_DONT_REWRITE (its imports would show in `dir`)
"""

from quadrants.lang._unavailable import declare as _declare

_FUNCTIONS = "clear_all_gradients grad_for grad_replaced no_grad"
_CLASSES = "FwdMode Tape"
_declare(globals(), _FUNCTIONS, _CLASSES, prefix="qd.ad")


def __dir__() -> list[str]:
    return [*_FUNCTIONS.split(), *_CLASSES.split(), *(n for n in globals() if n.startswith("_"))]
