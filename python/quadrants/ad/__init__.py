"""Automatic differentiation: tapes, forward mode, custom gradients.

PYTEST_DONT_REWRITE (its imports would show in `dir`)
"""

from quadrants._lazy import lazy_names as _lazy_names

_NAMES = "FwdMode Tape clear_all_gradients grad_for grad_replaced no_grad"
__getattr__, __dir__ = _lazy_names(
    __name__,
    globals(),
    {
        "_ad": "quadrants.ad._ad",
        **{name: f"quadrants.ad._ad:{name}" for name in _NAMES.split()},
    },
)
