"""Quadrants: Python functions compiled to parallel code for CPUs and GPUs.

PYTEST_DONT_REWRITE (its imports would show in `dir`)
"""

import atexit as _atexit
import sys as _sys
import warnings as _warnings
from importlib import import_module as _import_module
from typing import Any as _Any

from quadrants._names import NAMES as _NAMES
from quadrants._names import UNLISTED as _UNLISTED
from quadrants._version import VERSION as _VERSION

__all__ = sorted(_NAMES)
__version__ = _VERSION
__version_str__ = ".".join(map(str, _VERSION))


def __getattr__(name: str) -> _Any:
    if name == "cfg":  # evaluated on every access: it follows init and reset
        from quadrants.lang.impl import get_runtime

        prog = get_runtime()._prog
        return None if prog is None else prog.config()
    target = _NAMES.get(name) or _UNLISTED.get(name)
    if target is None:
        raise AttributeError(f"module 'quadrants' has no attribute {name!r}")
    module, _, attribute = target.partition(":")
    try:
        value = _import_module(module)
    except ModuleNotFoundError as e:
        if e.name != module:
            raise
        from quadrants.lang._unavailable import unavailable_class, unavailable_function

        make = unavailable_class if attribute[:1].isupper() else unavailable_function
        value = make(module, attribute, f"qd.{name}")
    else:
        if attribute:
            value = getattr(value, attribute)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*_NAMES, *(name for name in globals() if name.startswith("_"))])


@_atexit.register
def _end() -> None:
    """Ends the runtime after what programs registered since the import: they may use it."""
    if impl := _sys.modules.get("quadrants.lang.impl"):
        impl._end()


_warnings.filterwarnings("once", category=DeprecationWarning, module=r"quadrants\.")

from quadrants import _banner  # noqa: E402, F401  (prints)
