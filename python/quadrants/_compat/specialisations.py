"""A kernel's specialisations as outside code names them.

A specialisation is a dictionary from native code: `tier`; `passed`, what each launch hands over;
`fixed`, what arguments and members must be or equal; `bound`, how many of each kind; `functions`; `has_print`; `number`; `key`.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

from quadrants._lib import core
from quadrants.lang._dataclass_util import create_flat_name
from quadrants.lang.exception import QuadrantsRuntimeError
from quadrants.lang.impl import get_runtime
from quadrants.types import primitive_types


class CompiledKernelData:
    """The code of one specialisation.

    Args:
        name: of the kernel.
        tier: how far the code is optimised; None if the cache has it and no launch uses it.
    """

    def __init__(self, name: str, tier: int | None) -> None:
        self._name, self._tier = name, tier

    def _debug_dump_to_string(self) -> str:
        where = "in the cache" if self._tier is None else f"tier {self._tier}"
        return f"compiled kernel {self._name}, {where}"


def data_of(specialisation: dict[str, Any]) -> CompiledKernelData:
    return CompiledKernelData(specialisation["key"][0].__qualname__, specialisation["tier"])


class MaterializedKernel:
    """One specialisation of a kernel.

    Args:
        face: the kernel.
        number: of the specialisation.
        is_new: whether the call in progress has compiled it.
    """

    def __init__(self, face: Any, number: int, is_new: bool = False) -> None:
        self._face, self._number, self._is_new = face, number, is_new

    def _compiled(self) -> CompileResult:
        found = [s for s in self._face._specialisations() if s["number"] == self._number]
        if not found:
            raise QuadrantsRuntimeError(
                f"kernel {self._face.__qualname__} no longer has specialisation {self._number}"
            )
        hit, self._is_new = not self._is_new, False
        return CompileResult(data_of(found[0]), hit, found[0]["code"])


class CompileResult(NamedTuple):
    """What `prog.compile_kernel` gives."""

    compiled_kernel_data: CompiledKernelData
    cache_hit: bool
    cache_key: str


def load_code(key: str, name: str, config: Any) -> CompiledKernelData | None:
    """Code by its key: of a kernel in the live program, else in the offline cache; None without."""
    for kernel in get_runtime().kernels:
        for s in kernel._specialisations():
            if s["code"] == key:
                return data_of(s)
    folder = config.offline_cache_file_path
    stored = config.offline_cache and core.cache_read(folder, f"code/{key}.qdc")
    return CompiledKernelData(name, None) if stored else None


def features(kernel: Any, specialisation: dict[str, Any]) -> tuple[Any, ...]:
    """One feature for each parameter.

    An array's is (element type, axes, has gradient, boundary, layout), a template's its value or a
    weak reference to that, a dataclass's those of its members; "#" where nothing matters.
    """
    known: dict[Any, Any] = {}
    for kind, dtype, shape, axes, layout, grad, name, path in specialisation["passed"]:
        if kind == "array":
            scalar = getattr(primitive_types, dtype)
            element = (scalar, *shape) if shape else scalar
            order = tuple(layout >> 4 * level & 15 for level in range(axes)) if layout else None
            known[name, path] = (element, axes, grad, 0, order)
    for name, path, value in specialisation["fixed"]:
        known.setdefault((name, path), _hashable(value))
    return tuple(_feature(known, name, (), kind) for name, kind, _ in kernel.params)


def _feature(known: dict[Any, Any], name: str, path: tuple[str, ...], annotation: Any) -> Any:
    if dataclasses.is_dataclass(annotation) and isinstance(annotation, type):
        fields = dataclasses.fields(annotation)
        return tuple(_feature(known, name, (*path, f.name), f.type) for f in fields)
    return known.get((name, path), "#")


def _hashable(value: Any) -> Any:
    try:
        hash(value)
    except TypeError:  # references to what is gone, or has no hash, too
        return id(value)
    return value


def used_members(specialisation: dict[str, Any]) -> set[str]:
    """Flat names of the dataclass members that launches hand over, and of what holds them."""
    names: set[str] = set()
    for *_, parameter, path in specialisation["passed"]:
        flat = parameter
        for depth, member in enumerate(path):
            if depth == 0:
                names.add("__qd_" + parameter)
            flat = create_flat_name(flat, str(member))
            names.add(flat)
    return names
