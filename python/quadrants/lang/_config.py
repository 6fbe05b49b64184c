"""Options: one row each, read by `qd.init`, the environment and `qd.cfg`.

A row gives keyword, type and default; the environment variable is `QD_<KEYWORD>`. Native code gets
the values as a dictionary when the runtime is created, and single changes afterwards.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from quadrants._lib import core
from quadrants.types.primitive_types import DataType, f16, f32, f64, i32, i64, u32, u64


class Option:
    """One row."""

    __slots__ = ("name", "type", "default", "low", "high")

    def __init__(
        self, name: str, kind: type, default: Any, low: int = -(2**31), high: int = 2**31 - 1
    ) -> None:
        self.name, self.type, self.default, self.low, self.high = name, kind, default, low, high


_U64 = 2**64 - 1
_ON = (
    "advanced_optimization cfg_optimization constant_folding fast_math cache_loop_invariant_global_vars "
    "demote_dense_struct_fors make_thread_local make_block_local detect_read_only real_matrix_scalarize "
    "make_cpu_multithreading_loop quant_opt_store_fusion quant_opt_atomic_demotion make_mesh_block_local "
    "optimize_mesh_reordered_mapping mesh_localize_to_end_mapping demote_no_access_mesh_fors "
    "use_llvm verbose lower_access simplify_before_lower_access simplify_after_lower_access cpu_block_dim_adaptive"
)
_OFF = (
    "debug check_out_of_bound flatten_if move_loop_invariant_outside_if force_scalarize_matrix "
    "half2_vectorization raise_on_templated_floats kernel_profiler timeline ad_stack_experimental_enabled "
    "external_metal_command_queue_is_torch_queue print_ir print_preprocessed_ir print_ir_dbg_info "
    "print_accessor_ir print_struct_llvm_ir print_kernel_llvm_ir print_kernel_llvm_ir_optimized "
    "print_kernel_asm print_kernel_amdgcn mesh_localize_from_end_mapping mesh_localize_all_attr_mappings "
    "experimental_auto_mesh_local verbose_kernel_launches offline_cache"
)

OPTIONS: dict[str, Option] = {
    row.name: row
    for row in (
        *(Option(name, bool, True) for name in _ON.split()),
        *(Option(name, bool, False) for name in _OFF.split()),
        Option("opt_level", int, 1),
        Option("default_cpu_block_dim", int, 32),
        Option("default_gpu_block_dim", int, 128),
        Option("saturating_grid_dim", int, 0),
        Option("max_block_dim", int, 0),
        Option("cpu_max_num_threads", int, os.cpu_count() or 1),
        Option("num_compile_threads", int, 4),
        Option("random_seed", int, 0),
        Option("device_memory_GB", float, 1.0),
        Option("device_memory_fraction", float, 0.0),
        Option("cuda_stack_limit", int, 0, 0, _U64),
        Option("vk_api_version", str, ""),
        Option("ad_stack_size", int, 0),
        Option("ad_stack_sparse_threshold_bytes", int, 104857600, 0, _U64),
        Option("offline_cache_file_path", str, ""),
        Option("offline_cache_cleaning_policy", str, "lru"),
        Option("offline_cache_max_size_of_files", int, 104857600, 1),
        Option("offline_cache_cleaning_factor", float, 0.25),
        Option("external_metal_command_queue", int, 0, 0, _U64),
        Option("debug_dump_path", str, "/tmp/ir/"),
        Option("auto_mesh_local_default_occupacy", int, 4),
        Option("gpu_max_reg", int, 0),
    )
}

# Handled in Python, not part of `qd.cfg`.
SPECIAL_OPTIONS: dict[str, Option] = {
    row.name: row
    for row in (
        Option("log_level", str, "info"),
        Option("gdb_trigger", bool, False),
        Option("short_circuit_operators", bool, True),
        Option("print_full_traceback", bool, False),
        Option("unrolling_limit", int, 32),
    )
}

_TYPED: dict[str, tuple[Any, ...]] = {
    "default_fp": (f16, f32, f64),
    "default_ip": (i32, i64, u32, u64),
    "default_up": (u32, u64),
}


def checked(row: Option, value: Any) -> Any:
    """The value as the option stores it; `TypeError` if it has the wrong type or range."""
    kind = row.type
    if kind is bool:
        ok = type(value) is bool
    elif kind is int:
        ok = hasattr(value, "__index__") and row.low <= (value := value.__index__()) <= row.high
    elif kind is float:
        ok = (
            isinstance(value, (int, float))
            or hasattr(value, "__float__")
            and not isinstance(value, str)
        )
        value = float(value) if ok else value
    else:
        ok = isinstance(value, str)
    if not ok:
        raise TypeError(
            f"Option {row.name!r} takes {_range_text(row)}, got {value!r} (type {type(value).__name__})"
        )
    return value


def _range_text(row: Option) -> str:
    if row.type is not int:
        return row.type.__name__
    return f"int in [{row.low}, {row.high}]"


def from_environment(row: Option, environ: Mapping[str, str]) -> Any:
    """The option's value in the environment, None if it is not set there."""
    text = environ.get("QD_" + row.name.upper())
    if not text:
        return None
    if row.type is bool:
        return bool(int(text))
    return row.type(text)


class Config:
    """All options of a runtime; attributes are checked when written."""

    arch: core.Arch
    default_fp: DataType
    default_ip: DataType
    default_up: DataType

    def __init__(self) -> None:
        values = self.__dict__
        values["_on_change"] = None
        values["arch"] = core.host_arch()
        values["default_fp"], values["default_ip"], values["default_up"] = f32, i32, u32
        for row in OPTIONS.values():
            values[row.name] = row.default
        values["offline_cache_file_path"] = os.path.join(core.get_repo_dir(), "qdcache")

    def __setattr__(self, name: str, value: Any) -> None:
        row = OPTIONS.get(name)
        if row is not None:
            value = checked(row, value)
        elif name in _TYPED:
            if value not in _TYPED[name]:
                raise TypeError(f"Option {name!r} cannot be {value!r}")
        elif name == "arch":
            if not isinstance(value, core.Arch):
                raise TypeError(f"Option 'arch' takes an arch constant, got {value!r}")
        elif name != "_on_change":
            raise AttributeError(f"'Config' object has no attribute {name!r}")
        self.__dict__[name] = value
        changed: Callable[[str, Any], None] | None = self.__dict__["_on_change"]
        if changed is not None and name != "_on_change":
            changed(name, native_value(value))

    def as_dict(self) -> dict[str, Any]:
        """Every option as native code takes it: architectures and dtypes by name."""
        return {
            name: native_value(value)
            for name, value in sorted(self.__dict__.items())
            if name[0] != "_"
        }


def native_value(value: Any) -> Any:
    return value.name if isinstance(value, (core.Arch, DataType)) else value
