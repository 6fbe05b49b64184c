"""The one place where Python meets the native module `quadrants_python`.

What Python can say itself (enumerations, names of architectures, sizes of dtypes, the version) is
here; every other name is fetched from the native module when it is first asked for and then kept,
so importing the package does not load it.
"""

from __future__ import annotations

import functools
import operator
import os
import sys
import types
from typing import TYPE_CHECKING, Any

from quadrants._lib.core import _enums
from quadrants._lib.core._enums import Arch, BoundaryMode, Layout, is_extension_supported
from quadrants._lib.core._errors import (
    QuadrantsAssertionError,
    QuadrantsIndexError,
    QuadrantsNameError,
    QuadrantsRuntimeError,
    QuadrantsSyntaxError,
    QuadrantsTypeError,
)
from quadrants._version import COMMIT, LLVM_VERSION, VERSION

if TYPE_CHECKING:
    from quadrants._lib.core._enums import (
        AutodiffMode,
        Extension,
        Format,
        SNodeGradType,
        SNodeType,
    )
    from quadrants._lib.core.quadrants_python import *
    from quadrants.types.primitive_types import DataType

_MAX_AXES = 12
_BY_HAND = "BinaryOpType make_const_expr_int make_binary_op_expr make_global_store_stmt".split()


def _native() -> Any:
    from quadrants._lib.core import quadrants_python

    return quadrants_python


def native_loaded() -> bool:
    """Whether the native module is in this process already."""
    return "quadrants._lib.core.quadrants_python" in sys.modules


# What happens around a fork is called without a line of Python: a signal handler that raised there
# would leave launches waiting. The native module puts its functions here; before it is loaded
# nothing launches.
_turn = types.SimpleNamespace(fork_begins=int, fork_ends=int)
_fork_hooks = (
    functools.partial(operator.methodcaller("fork_begins"), _turn),
    functools.partial(operator.methodcaller("fork_ends"), _turn),
)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_fork_hooks[0], after_in_parent=_fork_hooks[1], after_in_child=_fork_hooks[1]
    )


def __getattr__(name: str) -> Any:
    if name.startswith("__") or name == "quadrants_python":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: Any
    if name == "DeviceCapability":
        from quadrants.types import enums

        value = enums.DeviceCapability
    elif name in ("AutodiffMode", "Extension", "Format", "SNodeGradType", "SNodeType"):
        value = getattr(_enums, name)
    elif name in Arch.__members__:
        value = Arch[name]
    elif name in _BY_HAND:
        from quadrants._compat import expressions

        value = getattr(expressions, name)
    else:
        value = getattr(_native(), name)
    globals()[name] = value
    return value


def arch_name(arch: Arch) -> str:
    return arch.name


def arch_from_name(name: str) -> Arch:
    """The architecture of that name; `ValueError` if there is none."""
    try:
        return Arch[name]
    except KeyError:
        raise ValueError(
            f"Unknown arch {name!r}; known: {', '.join(a.name for a in Arch)}"
        ) from None


def host_arch() -> Arch:
    """The CPU architecture of this machine."""
    import os

    if hasattr(os, "uname"):
        machine = os.uname().machine
    else:  # Windows
        machine = os.environ.get("PROCESSOR_ARCHITECTURE", "")
    return Arch.arm64 if machine.lower() in ("arm64", "aarch64") else Arch.x64


def arch_uses_llvm(arch: Arch) -> bool:
    return arch in (Arch.x64, Arch.arm64, Arch.cuda, Arch.amdgpu)


def with_cuda() -> bool:
    return _has_device("cuda") or _tell_why_not("cuda")


def with_amdgpu() -> bool:
    return _has_device("amdgpu") or _tell_why_not("amdgpu")


def with_metal() -> bool:
    return _has_device("metal")


def with_vulkan() -> bool:
    return _has_device("vulkan")


def _has_device(name: str) -> bool:
    probe = getattr(_native(), "has_device", None)
    return bool(probe is not None and probe(name))


_told: set[str] = set()  # devices whose absence is in the log


def _tell_why_not(name: str) -> bool:
    if name not in _told:
        _told.add(name)
        from quadrants import _logging

        _logging.warn(f"{name} cannot be used: {_native().device_problem(name)}")
    return False


def get_max_num_indices() -> int:
    return _MAX_AXES


def data_type_size(dtype: DataType) -> int:
    """Bytes of one value of a primitive dtype."""
    return dtype.size


def test_threading() -> bool:
    """Starts a few threads that add up numbers; true if all of them counted."""
    import threading

    total: list[int] = []
    threads = [threading.Thread(target=total.append, args=(1,)) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return len(total) == 4


def get_repo_dir() -> str:
    """Root of the caches: `$XDG_CACHE_HOME/quadrants/` or `~/.cache/quadrants/`, as C sees these."""
    variable = _native().c_variable
    user = variable("HOME") or os.path.expanduser("~")
    home = variable("XDG_CACHE_HOME") or os.path.join(user, ".cache")
    return os.path.join(home, "quadrants") + os.sep


def get_version_major() -> int:
    return VERSION[0]


def get_version_minor() -> int:
    return VERSION[1]


def get_version_patch() -> int:
    return VERSION[2]


def get_version_string() -> str:
    return ".".join(map(str, VERSION))


def get_commit_hash() -> str:
    return COMMIT


def get_llvm_target_support() -> str:
    return LLVM_VERSION
