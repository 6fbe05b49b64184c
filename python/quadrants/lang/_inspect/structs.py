"""Field trees as types of LLVM IR: print_struct_llvm_ir and QD_DUMP_IR."""

from __future__ import annotations

from typing import Any

_SCALARS = {"f16": "half", "f32": "float", "f64": "double", "u1": "i8"}


def struct_types(root: Any) -> str:
    """`%S<n>_ch`, a node's cell, and `%S<n>`, all its cells, children first."""
    lines: list[str] = []

    def declare(node: Any) -> None:
        children = node._get_children()
        for child in children:
            declare(child)
        cells = [_scalar(c) if c._kind == "place" else f"%S{c._id}" for c in children]
        if node._kind != "place":
            lines.append(f"%S{node._id}_ch = type {{ {', '.join(cells)} }}")
            lines.append(f"%S{node._id} = type [{node._sizes[2]} x %S{node._id}_ch]")

    declare(root)
    return "\n".join(("; ModuleID = 'struct'", 'source_filename = "struct"', "", *lines, ""))


def _scalar(place: Any) -> str:
    name = str(place._field.dtype)
    return _SCALARS.get(name, "i" + name[1:])
