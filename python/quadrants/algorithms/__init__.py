"""Scans, sorts, reductions and selection over whole arrays.

Functions for the top level of a kernel, sizes of the workspace they need, and two older functions
for the host. Each file is loaded when one of its names is asked for.

PYTEST_DONT_REWRITE (its imports would show in `dir`)
"""

from typing import Any as _Any

from quadrants._lazy import load as _load

_HOMES = {
    "_reduce": "reduce_add reduce_max reduce_min reduce_scratch_slots",
    "_scan": "exclusive_scan_add exclusive_scan_max exclusive_scan_min exclusive_scan_scratch_slots",
    "_select": "reduce_by_key_add reduce_by_key_scratch_slots select select_scratch_slots",
    "_radix_sort": "sort sort_scratch_slots",
    "_legacy": "PrefixSumExecutor parallel_sort",
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names.split()}


def __getattr__(name: str) -> _Any:
    if name == "__all__":
        return [*_HOME_OF]
    if name in _HOMES:
        return _load(f"{__name__}.{name}")
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(_load(f"{__name__}.{home}"), name)
    return value


def __dir__() -> list[str]:
    return [*_HOME_OF, *(n for n in [*globals()] if n.startswith("_"))]
