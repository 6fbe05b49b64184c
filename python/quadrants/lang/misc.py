"""`qd.init`, `qd.reset`, `qd.sync`, the choice of an architecture, and compile-time hints."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from quadrants import _logging
from quadrants._banner import say
from quadrants._lazy import lazy_names, load_before_handlers
from quadrants._lib import core
from quadrants._lib.core import Arch
from quadrants._names import NAMES
from quadrants.lang import impl
from quadrants.lang._config import (
    CompileConfig,
    Option,
    aside_rows,
    checked,
    config_rows,
    from_environment,
    number,
)
from quadrants.lang.impl import get_runtime
from quadrants.types.primitive_types import f16, f32, f64, i32, i64

x64 = x86_64 = Arch.x64
arm64 = Arch.arm64
cuda = Arch.cuda
amdgpu = Arch.amdgpu
metal = Arch.metal
vulkan = Arch.vulkan
python = Arch.python
cpu = core.host_arch()

# What programs find here, too.
_PUBLIC = """
    assume_in_range block_local cache_read_only global_thread_idx loop_config mesh_local mesh_patch_idx
    no_activate checkpoint graph_do_while graph_parallel graph_parallel_context GraphStatus
    axes i j k l ij ik il jk jl kl ijk ijl ikl jkl ijkl
"""
__getattr__, _ = lazy_names(
    __name__,
    globals(),
    {
        **{name: NAMES[name] for name in _PUBLIC.split()},
        "Extension": "quadrants._lib.core:Extension",
        "extension": "quadrants._lib.core:Extension",
        "get_os_name": "quadrants._lib.utils:get_os_name",
    },
)

gpu = [cuda, metal, vulkan, amdgpu]

_DRIVERS = {Arch.cuda: "cuda", Arch.amdgpu: "amdgpu", Arch.metal: "metal", Arch.vulkan: "vulkan"}
_dtype_call_installed = False  # whether the Python backend has given calls of dtypes a value


class _PythonOptions:
    """Options that Python itself handles, a row each; these are read here."""

    disable_pass: str
    log_level: str

    def __init__(self) -> None:
        for row in aside_rows().values():
            setattr(self, row.name, row.default)


class _Arguments:
    """Keyword arguments of one `init` call beside the environment they compete with."""

    def __init__(self, kwargs: dict[str, Any], environ: Mapping[str, str]) -> None:
        self.kwargs = kwargs
        self.environ = environ

    def warn_overridden(self, name: str) -> None:
        variable = "QD_" + name.upper()
        text = self.environ.get(variable)
        if text:
            _logging.warn(
                f'Environment variable {variable}={text} overridden by qd.init argument "{name}"'
            )

    def take(self, row: Option) -> Any:
        """The value given for an option, keyword before environment; None if neither is there."""
        if row.name in self.kwargs:
            self.warn_overridden(row.name)
            return self.kwargs.pop(row.name)
        return from_environment(row, self.environ)

    def take_default_type(self, name: str, given: Any, short: str) -> Any:
        """`default_fp` or `default_ip`, where the environment says 32 or 64."""
        if given is not None:
            self.warn_overridden(name)
            return given
        text = self.environ.get("QD_" + name.upper())
        if not text:
            return None
        if text not in ("32", "64"):
            raise ValueError(f"Invalid QD_{name.upper()}={text}, should be 32 or 64")
        return {"fp32": f32, "fp64": f64, "ip32": i32, "ip64": i64}[short + text]


def _version_of(text: str) -> tuple[int, int, int]:
    """Major, minor and patch of a version text; the rest is dropped."""
    import re

    if not isinstance(text, str):
        raise TypeError(f"require_version is a str such as '1.3.0', got {text!r}")
    numbers = re.match(r"[0-9.]*", text).group().split(".")[:3]  # type: ignore[union-attr]
    if len(numbers) < 2 or not all(numbers):
        raise Exception(
            "The require_version should be formatted following PEP 440, and includes major, minor, and patch "
            "number, e.g., major.minor.patch."
        )
    major, minor, patch, *_ = [*map(int, numbers), 0]
    return major, minor, patch


def check_require_version(require_version: str) -> None:
    """Raises unless the installed version satisfies the required one."""
    from quadrants._version import VERSION

    wanted = _version_of(require_version)
    if wanted[0] != VERSION[0] or wanted[1:] > VERSION[1:]:
        need, have = (".".join(map(str, v)) for v in (wanted, VERSION))
        raise Exception(
            f"Quadrants version mismatch. Required version >= {need}, installed version = {have}."
        )


def is_arch_supported(arch: Any) -> bool:
    """Whether kernels can run on this architecture here."""
    if not isinstance(arch, Arch):
        return False
    if arch is cpu:
        return True
    if arch is Arch.python:
        from quadrants.lang.util import has_pytorch

        return has_pytorch()
    driver = _DRIVERS.get(arch)
    if driver is None:
        return False
    try:
        if not number(os.environ, f"QD_ENABLE_{driver.upper()}", int, "1"):
            return False
        return bool(getattr(core, f"with_{driver}")())
    except Exception as e:  # a broken driver must not stop a program that can do without
        _logging.warn(f"Probing {driver} failed ({e}); set QD_ENABLE_{driver.upper()}=0 to skip it")
        return False


def is_extension_supported(arch: Arch, ext: Any) -> bool:
    """Whether an architecture has an extension."""
    return core.is_extension_supported(arch, ext)


def is_extension_enabled(ext: Any) -> bool:
    """Whether the current architecture has an extension and it is switched on.

    Args:
        ext: member of `qd.extension`.

    Raises:
        QuadrantsRuntimeError: before `qd.init`.
        TypeError: ext is something else.
    """
    cfg = impl.current_cfg()
    supported = core.is_extension_supported(cfg.arch, ext)
    adstack = cfg.ad_stack_experimental_enabled or cfg.ad_general_control
    return supported and (ext.name != "adstack" or adstack)


def get_host_arch_list() -> list[Arch]:
    """The CPU architectures of this machine."""
    return [cpu]


def adaptive_arch_select(arch: Any, enable_fallback: bool = True) -> Arch:
    """The first supported architecture of a list, or the CPU."""
    if arch is None:
        return cpu
    candidates = list(arch) if isinstance(arch, (list, tuple)) else [arch]
    for candidate in candidates:
        if is_arch_supported(candidate):
            return candidate
    if not enable_fallback:
        raise RuntimeError(f"Arch={candidates} is not supported")
    _logging.warn(f"Arch={candidates} is not supported, falling back to CPU")
    return cpu


def _check_ir_load_envs_against_caching(cfg: Any, src_ll_cache: bool) -> None:
    """Raises if IR is to be re-read from files while a cache would bypass that."""
    active = []
    if core.arch_uses_llvm(cfg.arch) and number(os.environ, "QD_LOAD_IR", int):
        active.append("QD_LOAD_IR")
    if cfg.arch is Arch.cuda and number(os.environ, "QUADRANTS_LOAD_PTX", int):
        active.append("QUADRANTS_LOAD_PTX")
    if active and (cfg.offline_cache or src_ll_cache):
        raise ValueError(
            f"{' and '.join(active)} set while caching is on: edited code would be ignored. "
            "Pass offline_cache=False and src_ll_cache=False to qd.init."
        )


_FLAGS = tuple(
    f"QD_{name}"
    for name in (
        "COVERAGE_MAX_PROBES DEBUG_ADSTACK DUMP_AST DUMP_CFG DUMP_IR DUMP_SIMPLIFY ENABLE_AMDGPU ENABLE_CUDA "
        "ENABLE_METAL ENABLE_PYBUF ENABLE_TORCH ENABLE_VULKAN GRAPH KERNEL_COVERAGE "
        "PERFDISPATCH_PRINT_DEBUG SHOW_COMPILING"
    ).split()
)


def _check_variables(environ: Mapping[str, str]) -> None:
    """Raises ValueError for what is no option and no number."""
    for variable in _FLAGS:
        number(environ, variable, int)


def _warn_printing_from_cache(cfg: CompileConfig) -> None:
    printing = cfg.print_ir or os.environ.get("QD_DUMP_IR") == "1"
    if printing and cfg.offline_cache and _logging.is_logging_effective(_logging.WARN):
        import warnings

        warnings.warn(
            "IR is printed or dumped for kernels that are compiled; cached ones are not. Use offline_cache=False "
            "to see all. [warning_code=DUMP_IR_CACHE_MISMATCH]",
            stacklevel=3,
        )


def _resolve(
    args: _Arguments, cfg: CompileConfig, default_fp: Any, default_ip: Any
) -> _PythonOptions:
    """Fills the config and returns the special options."""
    runtime = get_runtime()
    if args.environ.get("QD_DEFAULT_UP"):
        raise TypeError("QD_DEFAULT_UP cannot be set; default_up follows default_ip")
    if (fp := args.take_default_type("default_fp", default_fp, "fp")) is not None:
        assert fp in (f16, f32, f64), f"default_fp cannot be {fp}"
        runtime.set_default_fp(fp)
    if (ip := args.take_default_type("default_ip", default_ip, "ip")) is not None:
        assert ip in (i32, i64), f"default_ip cannot be {ip}"
        runtime.set_default_ip(ip)
    cfg.default_fp, cfg.default_ip, cfg.default_up = (
        runtime.default_fp,
        runtime.default_ip,
        runtime.default_up,
    )

    special = _PythonOptions()
    for row in aside_rows().values():
        value = args.take(row)
        if value is not None:
            setattr(special, row.name, bool(value) if row.type is bool else checked(row, value))
    for row in config_rows().values():
        given = row.name in args.kwargs  # None is no value of an option
        value = args.take(row)
        if given or value is not None:
            setattr(cfg, row.name, checked(row, value))
    if args.kwargs:
        raise KeyError(f"Unrecognized keyword argument(s) for qd.init: {', '.join(args.kwargs)}")
    return special


def _choose_arch(args: _Arguments, arch: Any, enable_fallback: bool) -> Arch:
    if arch is not None:
        args.warn_overridden("arch")
    elif text := args.environ.get("QD_ARCH"):
        _logging.info(f"Following QD_ARCH setting up for arch={text}")
        arch = core.arch_from_name(text)
    return adaptive_arch_select(arch, enable_fallback)


def _check_passes(names: str) -> None:
    known = [row[0] for row in core.pass_rows()] if names else []
    if unknown := [name for name in names.split(",") if names and name not in known]:
        raise ValueError(
            f"Option 'disable_pass' names no pass {', '.join(unknown)}; passes: {', '.join(known)}"
        )


def _check_policy(policy: str) -> None:
    if policy not in ("never", "version", "lru", "fifo"):
        _logging.warn(
            f"Option 'offline_cache_cleaning_policy' takes never, version, lru or fifo; {policy!r} "
            "counts as never"
        )


def _install(special: _PythonOptions) -> None:
    runtime = get_runtime()
    for name in impl.PYTHON_OPTIONS:
        setattr(runtime, name, getattr(special, name))
    _logging.set_logging_level(special.log_level.lower())


def init(
    arch: Any = None,
    default_fp: Any = None,
    default_ip: Any = None,
    _test_mode: bool = False,
    enable_fallback: bool = True,
    require_version: str | None = None,
    print_non_pure: bool = False,
    src_ll_cache: bool = True,
    **kwargs: Any,
) -> Any:
    """Starts the runtime, ending the one before.

    Args:
        arch: an architecture or a list of them, tried in order; None is the CPU.
        default_fp: what `float` means in kernels: f16, f32 (at first) or f64.
        default_ip: what `int` means in kernels: i32 (at first) or i64.
        _test_mode: resolve the options only and return the special ones.
        enable_fallback: use the CPU if no given architecture is supported.
        require_version: least version of the package.
        print_non_pure: report kernels that are not declared `fastcache=True`.
        src_ll_cache: allow fastcache.
        **kwargs: any option of `qd.cfg`, and `log_level`, `gdb_trigger`, `short_circuit_operators`,
            `print_full_traceback` and `unrolling_limit`. The environment variable `QD_<OPTION>` is
            read for options that are not given.

    Raises:
        KeyError: an unknown keyword.
        TypeError: a value of the wrong type.
        ValueError: an environment variable that cannot be read.
        AssertionError: a default type that is not among those above.
        RuntimeError: no architecture is supported and there is no fallback.
        Exception: the installed version is older than `require_version`.
    """
    if require_version is not None:
        check_require_version(require_version)
    if "default_up" in kwargs:
        raise KeyError(
            "'default_up' is always the unsigned type of 'default_ip'. Please set 'default_ip' instead."
        )
    reset()

    cfg = impl.default_cfg()
    cfg.offline_cache = True
    args = _Arguments(kwargs, os.environ)
    special = _resolve(args, cfg, default_fp, default_ip)
    _check_variables(os.environ)
    _check_passes(special.disable_pass)
    _check_policy(cfg.offline_cache_cleaning_policy)
    _warn_printing_from_cache(cfg)
    if not _test_mode:
        _install(special)
    cfg.arch = _choose_arch(args, arch, enable_fallback)
    say(f"[Quadrants] Starting on arch={cfg.arch.name}")
    _check_ir_load_envs_against_caching(cfg, src_ll_cache)
    if _test_mode:
        return special

    runtime = get_runtime()
    runtime.print_non_pure = print_non_pure
    runtime.src_ll_cache = src_ll_cache
    try:
        runtime.create_program(cfg._copy())
        if not impl.is_python_backend():
            runtime.materialize()
            if os.environ.get("QD_KERNEL_COVERAGE") == "1":
                from quadrants.lang import _kernel_coverage

                _kernel_coverage.ensure_field_allocated()
        load_before_handlers()
    except BaseException:  # also of a signal handler
        impl.reset()
        raise
    return None


def reset() -> None:
    """Ends the runtime: waits for work, writes caches, drops all fields and ndarrays.

    Kernels stay usable and are compiled anew after the next `qd.init`.
    """
    impl.reset()


def sync() -> None:
    """Waits until everything launched on the default stream has finished.

    Raises:
        QuadrantsRuntimeError: before `qd.init`.
    """
    if not impl.is_python_backend():
        get_runtime().sync()


def dump_compile_config() -> None:
    """Prints every option of the live config as `name=value`, sorted by name.

    Raises:
        QuadrantsRuntimeError: before `qd.init`.
    """
    cfg = impl.current_cfg()
    for name in cfg.as_dict():
        print(f"{name}={getattr(cfg, name)}")


def loop_unique(val: Any, covers: Any = None) -> Any:
    """Promises that distinct iterations of the loop give distinct values; returns `val`."""
    return core.trace_op("loop_unique", (val, covers)) if core.is_expr(val) else val


loop_unique._qd_op = "loop_unique"  # type: ignore[attr-defined]


def _enforce_opt_level() -> None:
    """What `qd.block_local` asks for."""
    cfg = impl.current_cfg()
    if cfg.opt_level == 0:
        _logging.warn("opt_level = 1 is enforced to enable block_local analysis.")
        cfg.opt_level = 1


def timeline_clear() -> None:
    """Drops the recorded timeline."""
    if impl.current_cfg().timeline:
        core.profile_clear()


def timeline_save(fn: str) -> None:
    """Writes the recorded timeline in Chrome's trace format.

    Needs `qd.init(timeline=True, kernel_profiler=True)`; the option `trace_file` shows the same among
    all that happens.

    Args:
        fn: path of the file.
    """
    cfg = impl.current_cfg()
    with open(fn, "w", encoding="utf-8") as f:
        f.write(core.profile_timeline() if cfg.timeline and cfg.kernel_profiler else "[]")
