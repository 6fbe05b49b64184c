"""Imports on first use: numpy, submodules and public names.

Import time is part of every start, so a module is loaded when something in it is touched.
"""

import _signal
import _thread
import gc
import sys
from collections.abc import Callable
from importlib import import_module
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import ModuleType
from typing import Any, TypeVar

# What nearly every program comes to use.
_USUAL = """
    field kernel_impl kernel_arguments matrix struct snode util _data.arguments _data.convert
    _data.fields_builder _data.struct_field _inspect.inspection _values.matrix_types
""".split()

# What is imported to report an error.
_BORROWED = {"linecache", "tokenize", "traceback"}

_FAULTS = {_signal.SIGSEGV, _signal.SIGBUS, _signal.SIGFPE, _signal.SIGILL, _signal.SIGABRT}
_T = TypeVar("_T")


def _has_handlers() -> bool:
    """Whether the program has signal handlers of its own."""
    handlers = map(_signal.getsignal, _signal.valid_signals())
    return any(callable(h) and h is not _signal.default_int_handler for h in handlers)


def _is_loading(module: ModuleType | None) -> bool:
    return getattr(getattr(module, "__spec__", None), "_initializing", False)


# One for each import that runs; the first says whether garbage was collected before.
_loading: list[bool] = []
_importing: dict[int, int] = {}  # how many of them each thread is amid


def _quietly(run: Callable[[Any], _T], argument: Any) -> _T:
    """Runs an import: finalisers and signal handlers, which would find half a module, wait.

    Signals do not if another thread of the program's own takes them.
    """
    mask = None
    me = _thread.get_ident()
    _importing[me] = _importing.get(me, 0) + 1
    _loading.append(gc.isenabled() or _loading[:1] == [True])
    try:
        gc.disable()
        if _has_handlers():
            rest = set(_signal.valid_signals()) - _FAULTS
            mask = _signal.pthread_sigmask(_signal.SIG_BLOCK, rest)
        return run(argument)
    finally:
        if _loading.pop() and not _loading:
            gc.enable()
        if mask is not None:
            _signal.pthread_sigmask(_signal.SIG_SETMASK, mask)
        if _importing[me] > 1:
            _importing[me] -= 1
        else:
            del _importing[me]


class _QuietFinder:
    """Makes the imports of our modules quiet, and those of what reports errors."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name not in _BORROWED and not name.startswith("quadrants."):
            return None
        spec = PathFinder.find_spec(name, path, target)
        # Other loaders serve many modules.
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            run = spec.loader.exec_module
            spec.loader.exec_module = lambda module: _quietly(run, module)  # type: ignore[method-assign]
        return spec


sys.meta_path.insert(0, _QuietFinder)


def load(name: str) -> ModuleType:
    """The module of that name, imported on first use."""
    module = sys.modules.get(name)
    if module and not _is_loading(module):
        return module
    run = _load_with_usual if _has_handlers() else import_module
    if _is_main_of_several():
        return _by_another_thread(run, name)
    return _quietly(run, name)


def _load_with_usual(name: str) -> ModuleType:
    ours = [m for n, m in [*sys.modules.items()] if n.partition(".")[0] == "quadrants"]
    if not any(map(_is_loading, ours)):  # else in an order that they do not expect
        for usual in _USUAL:
            import_module("quadrants.lang." + usual)
    return import_module(name)


def _is_main_of_several() -> bool:
    """Whether this is the main thread, amid no import of ours whose lock it would keep from another."""
    threading = sys.modules.get("threading")
    if threading is None or not _thread._count():
        return False
    me = _thread.get_ident()
    return bool(me == threading.main_thread().ident and me not in _importing)


def _by_another_thread(run: Callable[[str], ModuleType], name: str) -> ModuleType:
    """The same on a thread that Ctrl-C cannot come to.

    KeyboardInterrupt amid an import may leave a lock of importlib's taken for ever, for which other threads
    wait (seen with CPython 3.11).
    """
    done = _thread.allocate_lock()
    done.acquire()
    found: list[ModuleType | BaseException] = []

    def work() -> None:
        try:
            found.append(_quietly(run, name))
        except BaseException as e:
            found.append(e)
        finally:
            done.release()

    _thread.start_new_thread(work, ())
    done.acquire()  # which Ctrl-C may interrupt: the import goes on
    if isinstance(found[0], BaseException):
        raise found[0]
    return found[0]


def load_before_handlers() -> None:
    """Loads what a program's signal handlers may come to use."""
    if _has_handlers():
        load(f"quadrants.lang.{_USUAL[0]}")


class LazyNumpy:
    """Stands for numpy in a module's globals and replaces itself there at the first use."""

    def __init__(self, namespace: dict[str, Any]) -> None:
        self._namespace = namespace

    def __getattr__(self, name: str) -> Any:
        numpy = load("numpy")
        self._namespace["np"] = numpy
        return getattr(numpy, name)


def lazy_names(
    module: str, namespace: dict[str, Any], where: dict[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` for a module whose names live elsewhere.

    `where` maps a name to "module" (the name is that module) or "module:attribute". A package names
    its own modules so, too: one that imports them, on one thread, and another thread's import of such a
    module, which comes to wait for the package, are a deadlock to importlib.
    """

    if "__all__" in namespace:
        public = (n for n in where if n[0] != "_")
        namespace["__all__"] = [*dict.fromkeys([*namespace["__all__"], *public])]

    def __getattr__(name: str) -> Any:
        if name == "__all__":  # of `from module import *`
            return [n for n in {**where, **namespace} if not n.startswith("_")]
        target = where.get(name)
        if target is None:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        path, _, attribute = target.partition(":")
        value: Any = load(path)
        if attribute:
            value = getattr(value, attribute)
        namespace[name] = value
        return value

    def __dir__() -> list[str]:
        private = [n for n in [*namespace] if n.startswith("_")]
        return sorted({*where, *private})

    return __getattr__, __dir__
