"""The live program: a thin face of the native runtime."""

from __future__ import annotations

from types import MethodType
from typing import TYPE_CHECKING, Any

from quadrants import _logging
from quadrants._lib import core
from quadrants.lang._config import CompileConfig

if TYPE_CHECKING:
    from quadrants._compat.kernel_face import LaunchContext


# --- methods that test doubles replace ---

doubled: set[type] = set()  # classes of which a method is replaced
watched: Any = None  # the program in which somebody looks at tables of identities


class WatchedClass(type):
    """Class of which some methods, `_DOUBLED`, take effect on native launches once replaced."""

    _originals: dict[str, Any] = {}

    def __init__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any]) -> None:
        super().__init__(name, bases, namespace)
        if "_DOUBLED" in namespace:
            cls._originals = {method: namespace[method] for method in namespace["_DOUBLED"]}

    def __setattr__(cls, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        cls._note(name)

    def __delattr__(cls, name: str) -> None:
        super().__delattr__(name)
        cls._note(name)

    def _note(cls, name: str) -> None:
        if name not in cls._originals:
            return
        is_doubled = any(getattr(cls, n) is not o for n, o in cls._originals.items())
        (doubled.add if is_doubled else doubled.discard)(cls)
        core.set_kernel_doubles(watched is not None or bool(doubled))


# --- the program ---


class DeviceCaps:
    """What the device can do."""

    def __init__(self, arch: str) -> None:
        self._arch = arch

    def get(self, capability: Any) -> int:
        """Level of a capability of SPIR-V devices: 0, since no such device is in use."""
        return 0

    def hashed_key(self) -> str:
        import hashlib

        return "T" + hashlib.sha256(self._arch.encode()).hexdigest()


class Program(metaclass=WatchedClass):
    """Handed out as `get_runtime().prog`.

    Names not listed here are native functions `prog_<name>`, or functions of the compatibility room
    that only outside code calls. Methods may be replaced on the class, not on the object.
    """

    __slots__ = ("__weakref__", "_arch", "_compiled_before", "_config")
    _DOUBLED = ("compile_kernel", "launch_kernel")

    def __init__(self, config: CompileConfig, python_options: dict[str, Any]) -> None:
        self._config, self._arch = config, config.arch
        if config.debug:
            config.check_out_of_bound = True
        release = core.get_version_string()
        core.set_log_level(_logging._level)
        given = {"release": release, "device": config.arch.name}
        self._compiled_before = core.host_times()["compile"]
        decided = core.runtime_init({**config.as_dict(), **python_options, **given}, self)
        vars(config).update(decided)  # values that the device decides, such as max_block_dim

    def config(self) -> CompileConfig:
        return self._config

    def synchronize(self) -> None:
        core.runtime_sync()

    def finalize(self) -> None:
        core.set_current_stream(0)
        core.runtime_reset()

    def subgroup_size(self) -> int:
        """Threads that execute together; a CPU has no such groups."""
        return 32 if self._config.arch.name == "cuda" else 0

    def get_total_compilation_time(self) -> float:
        """Seconds that the compiler has run for this program; what it does beside launches not counted."""
        return core.host_times()["compile"] - self._compiled_before

    def dump_cache_data_to_disk(self) -> None:
        """What the end of the program does too: cleans, then moves new code beside the old."""
        core.runtime_flush_cache()

    def get_snode_root(self, number: int) -> Any:
        """The root node of a finalised tree."""
        from quadrants.lang._data.fields_builder import FieldsBuilder

        return FieldsBuilder._finalized_roots()[number].ptr

    def get_device_caps(self) -> DeviceCaps:
        return DeviceCaps(self._config.arch.name)

    def get_max_reducer_dispatch_count(self) -> int:
        """How often bounds were reduced to size a reverse sweep: never, for nothing is sized."""
        return 0

    def reset_max_reducer_dispatch_count(self) -> None:
        """Starts that count at zero."""

    _get_max_reducer_dispatch_count = get_max_reducer_dispatch_count
    _reset_max_reducer_dispatch_count = reset_max_reducer_dispatch_count

    # --- kernels: what a call does, in steps ---

    def compile_kernel(self, config: Any, caps: Any, kernel: Any) -> Any:
        """The code of one of a kernel's `materialized_kernels`, with what the cache had of it.

        Args:
            config: `config()`, for which it was made.
            caps: `get_device_caps()`.
            kernel: one of a kernel's `materialized_kernels`.

        Raises:
            TypeError: something else.
            QuadrantsRuntimeError: the program no longer has it.
        """
        from quadrants._compat.specialisations import MaterializedKernel

        if not isinstance(kernel, MaterializedKernel):
            raise TypeError(f"compile_kernel takes a materialized kernel, got {kernel!r}")
        return kernel._compiled()

    def load_fast_cache(self, key: str, name: str, config: Any, caps: Any) -> Any:
        """The code that `compile_kernel` named so; None if there is none.

        Args:
            key: the name, `cache_key`.
            name: of the kernel.
            config: `config()`, for which it was made.
            caps: `get_device_caps()`.
        """
        from quadrants._compat.specialisations import load_code

        return load_code(key, name, config)

    def launch_kernel(self, data: Any, context: LaunchContext) -> None:
        """Launches a kernel.

        Args:
            data: its code.
            context: the call.
        """
        context._launch()

    # --- streams and events, by their handles ---

    def stream_create(self) -> int:
        return core.stream_new()

    def stream_destroy(self, stream: int) -> None:
        core.stream_destroy(stream)

    def stream_synchronize(self, stream: int) -> None:
        core.stream_wait(stream)

    def stream_wait_event(self, stream: int, event: int) -> None:
        core.stream_let_wait(stream, event)

    def event_create(self) -> int:
        return core.event_new()

    def event_destroy(self, event: int) -> None:
        core.event_destroy(event)

    def event_synchronize(self, event: int) -> None:
        core.event_wait(event)

    def event_record(self, event: int, stream: int) -> None:
        core.event_record(event, stream)

    def set_current_cuda_stream(self, stream: int) -> None:
        """The stream of kernels that name none; 0 for the default one."""
        core.set_current_stream(stream)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        try:
            return getattr(core, "prog_" + name.lstrip("_"))
        except AttributeError:
            from quadrants._compat import program_face

        if name in program_face.__all__:
            return MethodType(getattr(program_face, name), self)
        raise AttributeError(f"'Program' object has no attribute {name!r}")
