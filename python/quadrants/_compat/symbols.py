"""Syntax trees as outside code sees them: names resolved, and the entry of tracing."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any

from quadrants.lang.exception import not_available


class ASTResolver:
    """Resolves names of a syntax tree."""

    @staticmethod
    def resolve_to(node: ast.AST, wanted: Any, scope: Mapping[str, Any]) -> bool:
        """Whether a name, or a chain of attributes of one, denotes an object.

        Args:
            node: a Name or Attribute node; anything else denotes nothing.
            wanted: the object.
            scope: objects by name.
        """
        chain: list[str] = []
        while isinstance(node, ast.Attribute):
            chain.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name) or node.id not in scope:
            return False
        found = scope[node.id]
        for name in reversed(chain):
            try:
                found = getattr(found, name)
            except AttributeError:
                return False
        return found is wanted


def transform_tree(tree: ast.AST, ctx: Any) -> Any:
    """Tracing is native: this entry exists to be looked up, not to be called."""
    raise not_available("tracing through quadrants.lang.ast.transform_tree")
