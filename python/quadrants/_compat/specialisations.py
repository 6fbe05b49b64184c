"""A kernel's specialisations as outside code names them.

A specialisation is a dictionary from native code: `tier`; `passed`, what each launch hands over;
`fixed`, what arguments and members must be or equal; `bound`, how many of each kind; `functions`; `has_print`; `number`; `key`.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from quadrants.lang._dataclass_util import create_flat_name
from quadrants.types import primitive_types


class CompiledKernelData:
    """The code of one specialisation."""

    def __init__(self, specialisation: dict[str, Any]) -> None:
        self._name = specialisation["key"][0].__qualname__
        self._tier = specialisation["tier"]

    def _debug_dump_to_string(self) -> str:
        return f"compiled kernel {self._name}, tier {self._tier}"


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
