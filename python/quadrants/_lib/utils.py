"""Access to the native module by function, as some tools expect it."""

from types import ModuleType


def import_qd_python_core() -> ModuleType:
    """The module `quadrants._lib.core`."""
    from quadrants._lib import core

    return core
