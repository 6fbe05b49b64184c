"""Facts about the machine, and access to the native module by function, as some tools expect them."""

import os
import platform
from types import ModuleType
from typing import Any

__all__ = [
    "compare_version",
    "get_os_name",
    "import_qd_python_core",
    "in_docker",
    "is_ci",
    "locale_encode",
    "package_root",
    "print_red_bold",
    "print_yellow_bold",
]

package_root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

_OS_NAMES = {"Linux": "linux", "Darwin": "osx", "Windows": "win"}


def import_qd_python_core() -> ModuleType:
    """The module `quadrants._lib.core`."""
    from quadrants._lib import core

    return core


def get_os_name() -> str:
    """The kind of system: "linux", "osx", "win" or "unix"."""
    return _OS_NAMES.get(platform.system(), "unix")


def in_docker() -> bool:
    """Whether QD_IN_DOCKER says so."""
    return bool(os.environ.get("QD_IN_DOCKER"))


def is_ci() -> bool:
    """Whether QD_CI says so."""
    return os.environ.get("QD_CI") == "1"


def compare_version(latest: str, current: str) -> bool:
    """Whether the first of two versions is the later one.

    Args:
        latest: integers with dots between.
        current: the same.

    Raises:
        ValueError: something else.
    """
    first, second = ([int(part) for part in v.split(".")] for v in (latest, current))
    return first > second


def locale_encode(path: str) -> bytes:
    """A path as bytes."""
    return os.fsencode(path)


def _print_bold(color: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    print(f"\033[{color}m\033[1m", end="")
    print(*args, **kwargs)
    print("\033[0m", end="")


def print_red_bold(*args: Any, **kwargs: Any) -> None:
    """`print`, in red."""
    _print_bold(31, args, kwargs)


def print_yellow_bold(*args: Any, **kwargs: Any) -> None:
    """`print`, in yellow."""
    _print_bold(33, args, kwargs)
