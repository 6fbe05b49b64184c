"""Scans, sorts, reductions and selection.

PYTEST_DONT_REWRITE (its imports would show in `dir`)
"""

from quadrants.lang._unavailable import declare as _declare

_FUNCTIONS = (
    "exclusive_scan_add exclusive_scan_max exclusive_scan_min exclusive_scan_scratch_slots parallel_sort "
    "reduce_add reduce_by_key_add reduce_by_key_scratch_slots reduce_max reduce_min reduce_scratch_slots "
    "select select_scratch_slots sort sort_scratch_slots"
)
_CLASSES = "PrefixSumExecutor"
_declare(globals(), _FUNCTIONS, _CLASSES, prefix="qd.algorithms")


def __dir__() -> list[str]:
    return [*_FUNCTIONS.split(), *_CLASSES.split(), *(n for n in globals() if n.startswith("_"))]
