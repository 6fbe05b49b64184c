"""The text of a function, if it still is the text of what runs."""

from __future__ import annotations

import ast
import inspect
import textwrap
import types
from typing import Any

from quadrants.lang._inspect.known_values import MayChange

_trees: dict[types.CodeType, ast.FunctionDef | ast.Lambda | None] = {}


def tree_of(function: types.FunctionType) -> ast.FunctionDef | ast.Lambda:
    code = function.__code__
    if code not in _trees:
        _trees[code] = None
        source = textwrap.dedent(inspect.getsource(code))  # of a wrapper its own
        tree = ast.parse(source)
        if not _is_text_of(source, code):
            raise MayChange  # the file was edited
        if len(tree.body) == 1 and isinstance(tree.body[0], ast.FunctionDef):
            _trees[code] = tree.body[0]
        elif len(found := [n for n in ast.walk(tree) if isinstance(n, ast.Lambda)]) == 1:
            _trees[code] = found[0]
    known = _trees[code]
    if known is None:
        raise MayChange
    return known


def _is_text_of(source: str, code: types.CodeType) -> bool:
    """Whether a function's names and constants are those of its text."""
    waiting: list[Any] = [compile(source, code.co_filename, "exec")]
    while waiting:
        c = waiting.pop()
        if c.co_name == code.co_name:
            names = [{*x.co_names, *x.co_varnames, *x.co_freevars} for x in (c, code)]
            constants = [
                [repr(k) for k in x.co_consts if not hasattr(k, "co_code")] for x in (c, code)
            ]
            if names[0] == names[1] and constants[0] == constants[1]:
                return True
        waiting += [k for k in c.co_consts if hasattr(k, "co_code")]
    return False
