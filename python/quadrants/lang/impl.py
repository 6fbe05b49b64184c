"""The runtime's Python side: one `PyQuadrants` object, its life from `init` to `reset`.

It owns the config of the live runtime and the list of what must happen before a launch (fields
becoming storage) and after a reset. Numbers, launches and memory are native.
"""

from __future__ import annotations

import functools
import sys
import weakref
from _thread import RLock
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, cast

from quadrants._lazy import lazy_names
from quadrants._lib import core
from quadrants._lib.core import Arch
from quadrants._names import NAMES
from quadrants.lang._program import WatchedClass
from quadrants.lang.exception import (
    QuadrantsCompilationError,
    QuadrantsRuntimeError,
    QuadrantsSyntaxError,
    QuadrantsTypeError,
    not_initialised,
)
from quadrants.types.primitive_types import DataType, f16, f32, f64, i32, i64, u32, u64

if TYPE_CHECKING:
    from quadrants.lang._config import CompileConfig
    from quadrants.lang._program import Program

__all__ = ["QuadrantsCompilationError", "QuadrantsSyntaxError", "QuadrantsTypeError"]

_F = TypeVar("_F", bound=Callable[..., Any])
MaterializeHook = Callable[["PyQuadrants", bool], None]

_materialize_hooks: list[MaterializeHook] = []
_at_reset: list[Callable[[], None]] = []


def on_materialize(hook: MaterializeHook) -> MaterializeHook:
    """Calls `hook(runtime, is_first)` whenever declared fields must become storage."""
    _materialize_hooks.append(hook)
    return hook


def on_reset(hook: Callable[[], None]) -> Callable[[], None]:
    """Calls `hook()` at the end of every reset."""
    if not callable(hook):  # or each reset to come would fail
        raise TypeError(f"on_reset takes a function, got {hook!r}")
    _at_reset.append(hook)
    return hook


def _weak(doc: str) -> Any:
    """An attribute that does not keep what it names alive."""
    kept: list[Any] = [None]

    def read(self: Any) -> Any:
        return kept[0] and kept[0]()

    def write(self: Any, value: Any) -> None:
        kept[0] = value if value is None else weakref.ref(value)

    return property(read, write, doc=doc)


class PyQuadrants(metaclass=WatchedClass):
    """State of the runtime. Clients replace `materialize` and `clear` on this class."""

    _DOUBLED = ("materialize",)  # launches call it while it is replaced

    def __init__(self) -> None:
        # Weak: the functions of kernels hold the globals of programs, which Python frees at exit.
        self._kernels: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
        self.compilation_lock = RLock()
        self._set_defaults()

    def _set_defaults(self) -> None:
        self._runs_python = False
        self.materialized = False
        self.default_fp: DataType = f32
        self.default_ip: DataType = i32
        self.default_up: DataType = u32
        self.short_circuit_operators = True
        self.print_full_traceback = False
        self.unrolling_limit = 32
        self.disable_pass = ""
        self.gdb_trigger = False
        self.compile_report = 0
        self.compile_progress = True
        self.trace_file = ""
        self.src_ll_cache = True
        self.print_non_pure = False
        self.target_tape = None
        self.fwd_mode_manager = None
        self.grad_replaced = False
        self.ndarrays: weakref.WeakSet[Any] = weakref.WeakSet()
        self.conversions: set[tuple[Any, str]] = set()  # counted by `convert.count_kernel`

    target_tape = _weak("the tape that was entered last, while it records")
    fwd_mode_manager = _weak("the forward mode that was entered last, while it records")

    def __setattr__(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)
        if name in _NATIVE_ATTRIBUTES and core.native_loaded():
            core.set_runtime_option(name, value.name if isinstance(value, DataType) else value)

    def add_kernel(self, kernel: Any) -> None:
        """Counts a new definition among the kernels."""
        self._kernels[id(kernel)] = kernel

    @property
    def kernels(self) -> list[Any]:
        """The kernels defined that are still held, in the order of their definitions."""
        return list(self._kernels.values())

    # What lives is known in one place, which native code and everything here asks: a signal
    # handler that raises amid `init` or `reset` leaves the runtime whole or gone.
    @property
    def _prog(self) -> Program | None:
        return core.live_program() if core.native_loaded() else None

    @property
    def _arch(self) -> Arch | None:
        if self._runs_python:
            return Arch.python
        prog = self._prog
        return None if prog is None else prog._arch

    @property
    def prog(self) -> Program:
        """The program of the live runtime."""
        prog = self._prog  # once: another thread may reset the runtime
        if prog is None:
            raise not_initialised()
        return prog

    @property
    def compiling_callable(self) -> Any:
        """The function being traced."""
        if not inside_kernel():
            raise not_initialised("_compiling_callable")
        return core.compiling_callable()

    @property
    def inside_kernel(self) -> bool:
        return inside_kernel()

    def set_default_fp(self, fp: DataType) -> None:
        """Sets what `float` means: f16, f32 or f64."""
        assert fp in (f16, f32, f64)
        self.default_fp = fp

    def set_default_ip(self, ip: DataType) -> None:
        """Sets what `int` means: i32 or i64."""
        assert ip in (i32, i64)
        self.default_ip = ip
        self.default_up = u32 if ip is i32 else u64

    def create_program(self, config: CompileConfig) -> None:
        """Starts the native runtime under this config."""
        if config.arch is Arch.python:
            from quadrants.lang._python_backend import install

            install()
            self._runs_python = True
            return
        from quadrants.lang._program import Program

        Program(config, {name: getattr(self, name) for name in PYTHON_OPTIONS})

    def materialize(self) -> None:
        """Makes storage of all fields declared so far. Called before launches and exports."""
        self.materialize_root_fb(not self.materialized)
        self.materialized = True

    def materialize_root_fb(self, is_first: bool) -> None:
        """Runs the hooks that turn declarations into storage."""
        for hook in _materialize_hooks:
            hook(self, is_first)

    def sync(self) -> None:
        """Makes pending fields storage and waits for the default stream."""
        prog = self.prog
        self.materialize()
        prog.synchronize()

    def clear(self) -> None:
        """Ends the program: waits, writes caches, frees storage."""
        self._runs_python = False
        if (prog := self._prog) is not None:
            prog.finalize()
        self.materialized = False
        self.conversions.clear()

    def get_num_compiled_functions(self) -> int:
        """Kernel specialisations compiled or loaded in this runtime, and conversions done for the first time.

        A conversion (`fill`, `to_numpy` ...) compiles nothing here, but the data chapter lets programs
        count one for its first use; `core.counters()` has what was compiled alone.
        """
        kernels = core.num_compiled_functions() if core.native_loaded() else 0
        return kernels + len(self.conversions)


PYTHON_OPTIONS = (
    "short_circuit_operators",
    "print_full_traceback",
    "unrolling_limit",
    "disable_pass",
    "gdb_trigger",
    "compile_report",
    "compile_progress",
    "trace_file",
)
_NATIVE_ATTRIBUTES = frozenset(
    (
        "default_fp",
        "default_ip",
        "default_up",
        "short_circuit_operators",
        "print_full_traceback",
        "unrolling_limit",
    )
)

_original_materialize = PyQuadrants.materialize  # native code compares: a client may replace it

pyquadrants = PyQuadrants()


def get_runtime() -> PyQuadrants:
    """The runtime of this process."""
    return pyquadrants


def current_cfg() -> CompileConfig:
    """The config of the live program."""
    return pyquadrants.prog.config()


_default_cfg: CompileConfig | None = None


def default_cfg() -> CompileConfig:
    """The config that `qd.init` fills; a reset takes it back to the defaults.

    The same object always. A program has a copy: writes to the one change nothing in the other.
    """
    global _default_cfg
    if _default_cfg is None:
        from quadrants.lang._config import CompileConfig

        _default_cfg = CompileConfig()
    return _default_cfg


def _end() -> None:
    """Finishes at exit what a reset would, unless a daemon thread's kernel will not end before.

    Fields, arrays and kernels stay: finalisers of a program's globals may use them.
    """
    if core.native_loaded():
        core.end_session(3.0)


def reset() -> None:
    """Ends the runtime; see `qd.reset`."""
    runtime = pyquadrants
    if coverage := sys.modules.get("quadrants.lang._kernel_coverage"):
        coverage._harvest_field()
    runtime.clear()
    runtime._set_defaults()
    if _default_cfg is not None:
        _default_cfg._set_defaults()
    for hook in _at_reset:
        hook()


def inside_kernel() -> bool:
    """Whether a kernel is being traced by this thread."""
    return core.native_loaded() and core.inside_kernel()


def host_only(function: _F) -> _F:
    """Marks what kernels may not call: it would run while they are traced, once."""

    @functools.wraps(function)
    def checked(*args: Any, **kwargs: Any) -> Any:
        if inside_kernel():
            raise AssertionError(f"{function.__name__} cannot be called in Quadrants-scope")
        return function(*args, **kwargs)

    return cast("_F", checked)


def is_python_backend() -> bool:
    """Whether the runtime executes kernels as plain Python."""
    return pyquadrants._runs_python


def subscript(ast_builder: Any, value: Any, *indices: Any) -> Any:
    """`value[indices]` on symbolic values."""
    return core.trace_op("subscript", (value, *indices))


def call_internal(name: str, *args: Any) -> Any:
    """Calls a compiler-internal function inside a kernel."""
    from quadrants._compat.internal_ops import call

    assert inside_kernel(), "call_internal cannot be called in Python-scope"
    return call(name, args)


def qd_float(x: Any) -> Any:
    """The kernel meaning of `float(x)`."""
    return core.trace_op("float", (x,)) if core.is_expr(x) else float(x)


def qd_int(x: Any) -> Any:
    """The kernel meaning of `int(x)`."""
    return core.trace_op("int", (x,)) if core.is_expr(x) else int(x)


def get_cuda_compute_capability() -> int:
    """Compute capability of the CUDA device as an integer such as 90; 0 without one."""
    return core.cuda_compute_capability() if pyquadrants._arch is Arch.cuda else 0


def get_max_shared_memory_bytes(*, is_lowerbound_ok: bool) -> int:
    """Bytes of shared memory a block may use.

    Args:
        is_lowerbound_ok: on backends that cannot tell, return what they surely have.
    """
    arch = current_cfg().arch
    if arch is Arch.cuda:
        return core.cuda_max_shared_memory_bytes()
    if not is_lowerbound_ok:
        raise RuntimeError(f"The exact shared memory size is not known on arch={arch.name}")
    if arch in (Arch.metal, Arch.vulkan):
        return 32 * 1024
    return 64 * 1024 if arch is Arch.amdgpu else 0


# What programs find here, too.
_PUBLIC = """
    static static_assert static_print grouped zero one stop_grad field ndarray root axes
    Matrix Vector Struct Field ScalarField MatrixField StructField SNode deactivate_all_snodes
    Ndarray ScalarNdarray VectorNdarray MatrixNdarray BufferView MeshInstance
"""
__getattr__, _ = lazy_names(
    __name__,
    globals(),
    {
        **{name: NAMES[name] for name in _PUBLIC.split()},
        "Expr": "quadrants._lib.core:Expr",
        "GroupedNDRange": "quadrants.lang._ndrange:GroupedNDRange",
        "Kernel": "quadrants.lang.kernel_impl:Kernel",
        "MatrixType": "quadrants.lang.matrix:MatrixType",
        "Program": "quadrants.lang._program:Program",
        "SNodeGradType": "quadrants._lib.core:SNodeGradType",
        "SharedArray": "quadrants.lang.simt.block:SharedArray",
        "VectorType": "quadrants.lang.matrix:VectorType",
        "cook_dtype": "quadrants.lang.util:cook_dtype",
        "get_traceback": "quadrants.lang.util:get_traceback",
        "handle_exception_from_cpp": "quadrants.lang.exception:handle_exception_from_cpp",
        "is_quadrants_class": "quadrants.lang.util:is_quadrants_class",
        "warning": "quadrants.lang.util:warning",
    },
)


def check_initialised() -> None:
    """Raises unless there is a native runtime."""
    if is_python_backend():
        raise QuadrantsRuntimeError("this is not available on the Python backend")
    if pyquadrants._prog is None:
        raise not_initialised()


def require(condition: bool, text: str) -> None:
    """Raises `QuadrantsRuntimeError` unless the condition holds."""
    if not condition:
        raise QuadrantsRuntimeError(text)
