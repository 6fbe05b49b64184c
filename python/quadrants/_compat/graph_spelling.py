"""How constructs of graphs are spelled in a syntax tree (spec 41, section 8)."""

from __future__ import annotations

import ast
import warnings

_NAMES = ("do_while", "parallel_context", "parallel")


def _is_canonical(func: ast.expr, name: str) -> bool:
    if not isinstance(func, ast.Attribute) or func.attr != name:
        return False
    owner = func.value
    return (owner.attr if isinstance(owner, ast.Attribute) else getattr(owner, "id", "")) == "graph"


def is_deprecated_spelling(func: ast.expr, name: str) -> bool:
    """Whether a call's function is spelled flat, such as `qd.graph_parallel`.

    Args:
        func: what is called.
        name: of the construct, such as "parallel".

    Raises:
        KeyError: no construct has this name.
    """
    if name not in _NAMES:
        raise KeyError(name)
    spelled = func.attr if isinstance(func, ast.Attribute) else getattr(func, "id", "")
    return bool(spelled == f"graph_{name}")


def matches(func: ast.expr, name: str) -> bool:
    """Whether a call's function names a construct, in either spelling; arguments and errors likewise."""
    return _is_canonical(func, name) or is_deprecated_spelling(func, name)


def warn_if_deprecated(func: ast.expr, name: str) -> None:
    """A `DeprecationWarning` if a call's function is spelled flat; arguments and errors likewise."""
    if is_deprecated_spelling(func, name):
        warnings.warn(
            f"qd.graph_{name}() is deprecated and will be removed in a future release; "
            f"use qd.graph.{name}() instead.",
            DeprecationWarning,
            stacklevel=2,
        )
