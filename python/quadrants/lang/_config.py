"""Options: rows of the native table, read by `qd.init`, the environment and `qd.cfg`.

The table is src/ir/options.inc. Native code gets the values as a dictionary when the runtime is
created, and single changes afterwards.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from quadrants._lib import core
from quadrants.types.primitive_types import DataType, f16, f32, f64, i32, i64, u32, u64

_TYPES = {"bool": bool, "int": int, "float": float, "str": str, "dtype": DataType}
_DTYPES: dict[str, tuple[Any, ...]] = {
    "default_fp": (f16, f32, f64),
    "default_ip": (i32, i64, u32, u64),
    "default_up": (u32, u64),
}
_INT32 = range(-(2**31), 2**31)


class Option:
    """One row.

    Attributes:
        name: keyword and attribute of `qd.cfg`; in capitals after `QD_` the environment variable.
        type: bool, int, float, str or DataType.
        default: what it is at first.
        low, high: least and greatest number; for both 0, any.
        room: what reads it: `module` and `frontend` options change code.
        aside: it is no attribute of `qd.cfg`.
        documentation: one line.
    """

    def __init__(
        self,
        name: str,
        kind: str,
        default: Any,
        low: int,
        high: int,
        room: str,
        aside: bool,
        documentation: str,
    ) -> None:
        self.name, self.type, self.default = name, _TYPES[kind], default
        self.low, self.high, self.room, self.aside = low, high, room, aside
        self.documentation = documentation
        if name == "cpu_max_num_threads":
            self.default = os.cpu_count() or 1


@functools.cache
def table() -> dict[str, Option]:
    """Every option by name."""
    return {row[0]: Option(*row) for row in core.option_rows()}


@functools.cache
def config_rows() -> dict[str, Option]:
    """Options that are attributes of `qd.cfg` and no dtypes."""
    return {
        name: row for name, row in table().items() if not row.aside and row.type is not DataType
    }


@functools.cache
def aside_rows() -> dict[str, Option]:
    """Options that are not."""
    return {name: row for name, row in table().items() if row.aside}


def checked(row: Option, value: Any) -> Any:
    """The value as the option stores it.

    Raises:
        TypeError: it has another type, or does not fit the machine's.
        ValueError: it is out of the option's range.
    """
    kind = row.type
    if kind is bool:
        fits = type(value) is bool
    elif kind is int:
        fits = hasattr(type(value), "__index__")
        if fits:
            value = value.__index__()
            fits = value in (_INT32 if row.high in _INT32 else range(2**64))
    elif kind is float:
        fits = hasattr(type(value), "__float__") or hasattr(type(value), "__index__")
        value = float(value) if fits else value
    else:
        fits = isinstance(value, str)
    if not fits:
        raise TypeError(
            f"Option {row.name!r} takes {_range_text(row)}, got {value!r} (type {type(value).__name__})"
        )
    if row.low != row.high and not row.low <= value <= row.high:  # a NaN is nowhere
        raise ValueError(f"Option {row.name!r} takes {_range_text(row)}, got {value!r}")
    return value


def _range_text(row: Option) -> str:
    if row.low == row.high:
        return row.type.__name__
    return f"{row.type.__name__} in [{row.low}, {row.high}]"


def from_environment(row: Option, environ: Mapping[str, str]) -> Any:
    """The option's value in the environment, None if it is not set there."""
    variable = "QD_" + row.name.upper()
    if not environ.get(variable):
        return None
    if row.type is bool:
        return bool(number(environ, variable, int))
    return number(environ, variable, row.type)


def number(environ: Mapping[str, str], variable: str, kind: type, default: str = "0") -> Any:
    """What a variable says; unset and empty count as the default."""
    try:
        return kind(environ.get(variable) or default)
    except ValueError as e:
        raise ValueError(f"Environment variable {variable}: {e}") from None


class CompileConfig:
    """All options of a runtime; attributes are checked when written."""

    arch: core.Arch
    default_fp: DataType
    default_ip: DataType
    default_up: DataType

    def __init__(self) -> None:
        self._set_defaults()

    def _set_defaults(self) -> None:
        values = self.__dict__
        values["_hash"] = None
        values["arch"] = core.host_arch()
        values["default_fp"], values["default_ip"], values["default_up"] = f32, i32, u32
        for row in config_rows().values():
            values[row.name] = row.default
        values["offline_cache_file_path"] = os.path.join(core.get_repo_dir(), "qdcache")

    if TYPE_CHECKING:  # rows of the table

        def __getattr__(self, name: str) -> Any: ...

    def __setattr__(self, name: str, value: Any) -> None:
        row = config_rows().get(name)
        if row is not None:
            value = checked(row, value)
            if name == "offline_cache_file_path" and value:
                value = os.path.abspath(value)  # programs change their folder
            elif name == "cpu_max_num_threads":
                value = value or row.default
        elif name in _DTYPES:
            if value not in _DTYPES[name]:
                raise TypeError(f"Option {name!r} cannot be {value!r}")
        elif name == "arch":
            if not isinstance(value, core.Arch):
                raise TypeError(f"Option 'arch' takes an arch constant, got {value!r}")
        else:
            raise AttributeError(f"'CompileConfig' object has no attribute {name!r}")
        self.__dict__[name] = value
        self.__dict__["_hash"] = None
        if core.native_loaded() and (live := core.live_program()) and live.config() is self:
            core.set_config_option(name, native_value(value))

    def _copy(self) -> CompileConfig:
        made = object.__new__(CompileConfig)
        made.__dict__.update(self.__dict__, _hash=None)
        return made

    def as_dict(self) -> dict[str, Any]:
        """Every option as native code takes it: architectures and dtypes by name."""
        return {
            name: native_value(value)
            for name, value in sorted(self.__dict__.items())
            if name[0] != "_"
        }


def native_value(value: Any) -> Any:
    return value.name if isinstance(value, (core.Arch, DataType)) else value
