"""Quadrants: Python functions compiled to parallel code for CPUs and GPUs.

PYTEST_DONT_REWRITE (its imports would show in `dir`)
"""

import _imp
import _thread
import atexit as _atexit
import importlib as _importlib
import os as _os
import sys as _sys
import time as _time
import warnings as _warnings
from typing import Any as _Any

from quadrants._lazy import load as _load
from quadrants._names import NAMES as _NAMES
from quadrants._names import UNLISTED as _UNLISTED
from quadrants._version import VERSION as _VERSION

__all__ = sorted(_NAMES)
__version__ = _VERSION
__version_str__ = ".".join(map(str, _VERSION))


def _is_own(name: str) -> bool:
    """Whether a name of the package is what the package has under it."""
    if name not in globals():
        return True
    target = _NAMES.get(name) or _UNLISTED.get(name) or f"{__name__}.{name}"
    module, _, attribute = target.partition(":")
    value: _Any = _sys.modules.get(module)  # where what is in globals() came from
    return globals()[name] is (getattr(value, attribute, None) if attribute else value)


def __getattr__(name: str) -> _Any:
    if name == "cfg":  # evaluated on every access: it follows init and reset
        from quadrants.lang.impl import get_runtime

        prog = get_runtime()._prog
        return None if prog is None else prog.config()
    target = _NAMES.get(name) or _UNLISTED.get(name)
    if target is None:
        raise AttributeError(f"module 'quadrants' has no attribute {name!r}")
    module, _, attribute = target.partition(":")
    value: _Any = _load(module)
    if attribute:
        value = getattr(value, attribute)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*_NAMES, *(name for name in [*globals()] if name.startswith("_"))])


# What this package imports on first use; programs import modules of their own at their own risk.
_IMPORTED = {"quadrants", "numpy", "torch", *_sys.stdlib_module_names}


def _module_locks() -> dict[str, _Any]:
    return getattr(_importlib._bootstrap, "_module_locks", {})


def _end_imports() -> None:
    """Waits until no other thread imports what is imported on first use.

    A child has the lock of a module that is being imported, but not the thread that would free it.
    """
    locks = _module_locks()
    late = _time.monotonic() + 10
    begun = 20  # looks at a lock that is made and not taken yet
    me = _thread.get_ident()
    while _time.monotonic() < late:
        locked = [lock() for lock in [*locks.values()]]
        if _imp.lock_held() and not any(getattr(lock, "owner", None) == me for lock in locked):
            _let_go()  # another thread looks for a module
            continue
        _imp.acquire_lock()  # nobody begins amid this, nor makes `os.fork` wait for it
        try:
            known = [
                lock() for name, lock in [*locks.items()] if name.partition(".")[0] in _IMPORTED
            ]
            owners = {getattr(lock, "owner", None) for lock in known if lock} - {me}
        finally:
            _imp.release_lock()
        if not owners or owners == {None} and not begun:
            return
        begun -= owners == {None}
        _let_go()


def _let_go() -> None:
    """For a moment what a fork holds already, last first.

    A signal handler that interrupts an import may launch or declare: it would wait for the fork, and
    the fork for the import.
    """
    core = _sys.modules.get("quadrants._lib.core")
    snode = _sys.modules.get("quadrants.lang.snode")
    hooks = [getattr(core, "_fork_hooks", None), getattr(snode, "_fork_hooks", None)]
    for hook in hooks:
        if hook:
            hook[1]()
    _time.sleep(0.001)
    for hook in reversed(hooks):
        if hook:
            hook[0]()


def _begin_again() -> None:
    """In a child: what another thread has begun to import since is imported from its beginning."""
    locks = _module_locks()
    for name, lock in [*locks.items()]:
        owner = getattr(lock(), "owner", None)
        if owner in (None, _thread.get_ident()) or name.partition(".")[0] not in _IMPORTED:
            continue
        del locks[name]
        spec = getattr(_sys.modules.get(name), "__spec__", None)
        if getattr(spec, "_initializing", False):
            del _sys.modules[name]


# The first to be registered, hence the nearest to the fork: who launches may import.
if hasattr(_os, "register_at_fork"):
    _os.register_at_fork(before=_end_imports, after_in_child=_begin_again)


class _End:
    """Ends the runtime at exit once every callback has run, those from before the import included.

    They may use it, and wait for threads that do. The table of callbacks holds the one reference to
    this: when all have run, the interpreter empties it and goes on to stop other threads.
    """

    due = False

    def __del__(self) -> None:
        if self.due and (impl := _sys.modules.get("quadrants.lang.impl")):
            impl._end()


def _exits(end: _End) -> None:
    end.due = True  # else somebody has cleared the table


_atexit.register(_exits, _End())


class _OwnDeprecation:
    """Tells this package's texts among those of warnings, which point at who calls.

    It is in a rule for warnings the pattern, whose compiling would cost every import 0.1 ms.
    """

    @staticmethod
    def match(text: str) -> bool:
        own = text.startswith("qd.") and " is deprecated" in text
        return own or text.startswith("Kernel ") and "qd.Template-annotated" in text


def _show_own_deprecations() -> None:
    """Shows each once.

    What the command line and the user say of warnings stands before: only Python's own rules, by
    which modules other than `__main__` show none, come after.
    """
    rules: list[_Any] = _warnings.filters  # type: ignore[assignment]
    pythons = [
        ("default", None, DeprecationWarning, "__main__", 0),
        ("ignore", None, DeprecationWarning, None, 0),
    ]
    places = (n for n in range(len(rules)) if rules[n : n + 2] == pythons)
    rule = ("once", _OwnDeprecation, DeprecationWarning, None, 0)
    rules.insert(next(places, len(rules)), rule)


_show_own_deprecations()

from quadrants import _banner  # noqa: E402, F401  (prints)

# Variables that are read at import: a mistake in one shows now. While they are unset nothing is loaded.
for _variable, _reader in (
    ("QD_LOG_LEVEL", "_logging"),
    ("QD_PERFDISPATCH_FORCE", "lang._perf_dispatch"),
):
    if _os.environ.get(_variable):
        _importlib.import_module(f"quadrants.{_reader}")
