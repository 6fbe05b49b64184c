"""Dataclass arguments taken apart in syntax trees and signatures.

Tracing does this natively; here it is for outside code that asks for the single steps. A member's flat
name is `__qd_base__qd_member`.
"""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

from quadrants._compat.specialisations import used_members
from quadrants.lang._dataclass_util import create_flat_name
from quadrants.lang.impl import get_runtime, on_reset
from quadrants.lang.kernel_arguments import ArgMetadata
from quadrants.lang.util import is_qd_template


def _is_struct(annotation: Any) -> bool:
    return isinstance(annotation, type) and dataclasses.is_dataclass(annotation)


def _leaves(name: str, annotation: Any) -> list[tuple[str, Any]]:
    """Flat names and types of all members, in the order of their declaration."""
    if not _is_struct(annotation):
        return [(name, annotation)]
    return [
        leaf
        for f in dataclasses.fields(annotation)
        for leaf in _leaves(create_flat_name(name, f.name), f.type)
    ]


# --- as quadrants.lang._pruning, _func_base and ast_transformer_utils name them -----------------


class Pruning:
    """The flat names that a kernel reads.

    Args:
        kernel_used_parameters: those names; None while they are not known, and then all are kept.
    """

    def __init__(self, kernel_used_parameters: Iterable[str] | None) -> None:
        known = kernel_used_parameters is not None
        self._read = frozenset(kernel_used_parameters or ()) if known else None

    def __contains__(self, name: str) -> bool:
        return self._read is None or name in self._read


class FuncBase:
    """A function of a kernel."""

    func_id: int


class ASTTransformerGlobalContext:
    """What all functions of a kernel share."""

    pruning: Pruning


class ASTTransformerFuncContext:
    """A function being walked."""

    global_context: ASTTransformerGlobalContext
    func: FuncBase
    used_py_dataclass_parameters_enforcing: set[str] | None


# --- steps ----------------------------------------------------------------------------------------


class CallTransformer:
    """Calls."""

    @staticmethod
    def _expand_Call_dataclass_args(
        ctx: ASTTransformerFuncContext, nodes: Sequence[ast.expr]
    ) -> tuple[tuple[ast.expr, ...], tuple[ast.expr, ...]]:
        """(the names that stand for members, all arguments with those in place of dataclasses)"""
        added: list[ast.expr] = []
        out: list[ast.expr] = []
        read, kept = ctx.global_context.pruning, ctx.used_py_dataclass_parameters_enforcing
        for node in nodes:
            annotation = getattr(node, "ptr", None)
            if not isinstance(node, ast.Name) or not _is_struct(annotation):
                out.append(node)
                continue
            for name, _ in _leaves(node.id, annotation):
                if name in read and (kept is None or name in kept):
                    leaf = ast.copy_location(ast.Name(id=name, ctx=ast.Load()), node)
                    added.append(leaf)
                    out.append(leaf)
        return tuple(added), tuple(out)


class FunctionDefTransformer:
    """Definitions."""

    @staticmethod
    def _transform_func_arg(ctx: Any, name: str, annotation: Any, data: Any) -> None:
        """Declares a parameter, or the members of a dataclass one."""
        if _is_struct(annotation):
            for f in dataclasses.fields(annotation):
                FunctionDefTransformer._transform_func_arg(
                    ctx, create_flat_name(name, f.name), f.type, getattr(data, f.name)
                )
            return
        ctx.create_variable(name, data)


class _Flatten(ast.NodeTransformer):
    def __init__(self, names: set[str]) -> None:
        self.names = names

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        chain = [node.attr]
        inner = node.value
        while isinstance(inner, ast.Attribute):
            chain.append(inner.attr)
            inner = inner.value
        if isinstance(inner, ast.Name):
            flat = inner.id
            for member in reversed(chain):
                flat = create_flat_name(flat, member)
            if flat in self.names:
                return ast.copy_location(ast.Name(id=flat, ctx=node.ctx), node)
        return self.generic_visit(node)


def unpack_ast_struct_expressions(tree: ast.AST, struct_locals: set[str]) -> Any:
    """The tree with attribute chains replaced by those of the flat names that they stand for."""
    return _Flatten(struct_locals).visit(tree)


def expand_func_arguments(
    used: set[str] | None, arguments: Iterable[ArgMetadata]
) -> list[ArgMetadata]:
    """Parameters with dataclasses replaced by their members; with `used`, by those in it."""
    out = []
    for a in arguments:
        if not _is_struct(a.annotation):
            out.append(a)
            continue
        leaves = _leaves(a.name, a.annotation)
        out += [ArgMetadata(t, name) for name, t in leaves if used is None or name in used]
    return out


def populate_global_vars_from_dataclass(
    name: str, annotation: Any, value: Any, variables: dict[str, Any]
) -> None:
    """Stores the template members of a dataclass under their flat names."""
    for f in dataclasses.fields(annotation):
        flat, member = create_flat_name(name, f.name), getattr(value, f.name)
        if _is_struct(f.type):
            populate_global_vars_from_dataclass(flat, f.type, member, variables)
        elif is_qd_template(f.type):
            variables[flat] = member


# --- plans: which members of a dataclass a launch reads -----------------------------------------

_plans: dict[Any, tuple[Any, ...]] = {}
on_reset(_plans.clear)


def frozen_plans() -> dict[Any, tuple[Any, ...]]:
    """The plans asked for, and those of the dataclasses that kernels were launched with."""
    for kernel in get_runtime().kernels:
        structs = [(name, kind) for name, kind, _ in kernel.params if _is_struct(kind)]
        for specialisation in kernel._specialisations() if structs else ():
            used = used_members(specialisation)
            for name, kind in structs:
                _get_frozen_dc_plan(used, kind, "__qd_" + name, kind.__dataclass_fields__)
    return _plans


def _get_frozen_dc_plan(
    used: set[str], annotation: type, prefix: str, fields: dict[str, Any]
) -> tuple[Any, ...]:
    """(member, flat name, type) of the members of which something is used."""
    key = (frozenset(used), annotation, prefix)
    plan = _plans.get(key)
    if plan is None:
        rows = [(name, create_flat_name(prefix, name), f.type) for name, f in fields.items()]
        plan = _plans[key] = tuple(row for row in rows if row[1] in used)
    return plan
