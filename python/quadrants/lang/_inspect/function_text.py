"""The text of a function, if it still is the text of what runs."""

from __future__ import annotations

import ast
import types
from typing import Any, TypeGuard

from quadrants._lib import core
from quadrants.lang._inspect.known_values import MayChange

_trees: dict[types.CodeType, ast.FunctionDef | ast.Lambda | None] = {}


def tree_of(function: types.FunctionType) -> ast.FunctionDef | ast.Lambda:
    code = function.__code__
    if code not in _trees:
        _trees[code] = None
        if len(code.co_code) > _LONGEST:
            raise MayChange
        source = _text_of(function)
        tree = ast.parse(source)
        if not _is_text_of(source, code):
            raise MayChange  # the file was edited
        found = [n for n in ast.walk(tree) if _is_called(n, code.co_name)]
        if len(found) == 1 and _is_seen_through(found[0]):
            _trees[code] = found[0]
    known = _trees[code]
    if known is None:
        raise MayChange
    return known


_LONGEST = 8192
# What is walked, of expressions and statements; what else a function has makes it one that may change something.
_WALKED = (
    ast.Return, ast.Expr, ast.Assign, ast.AnnAssign, ast.AugAssign, ast.If, ast.For, ast.While, ast.Assert, ast.Raise,
    ast.Pass, ast.Break, ast.Continue, ast.Try, ast.ExceptHandler, ast.DictComp, ast.Starred, ast.Lambda,
    ast.arguments, ast.arg, ast.Constant, ast.Name, ast.Attribute, ast.Subscript, ast.Slice, ast.BinOp, ast.UnaryOp, ast.BoolOp,
    ast.Compare, ast.IfExp, ast.Call, ast.List, ast.Tuple, ast.Set, ast.Dict, ast.JoinedStr, ast.FormattedValue,
    ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.comprehension, ast.keyword, ast.expr_context, ast.operator,
    ast.unaryop, ast.boolop, ast.cmpop,
)  # fmt: skip


def _is_seen_through(n: ast.FunctionDef | ast.Lambda) -> bool:
    body = n.body if isinstance(n.body, list) else [n.body]
    return all(isinstance(x, _WALKED) for part in body for x in ast.walk(part))


def _text_of(function: types.FunctionType) -> str:
    if function.__code__.co_name == "<lambda>":
        import inspect

        text = inspect.getsource(function.__code__)  # of a wrapper its own
    else:
        text = core.function_text(function)
    return f"if 1:\n{text}" if text[:1] in " \t" else text  # texts in it keep their indentation


def _is_called(n: ast.AST, name: str) -> TypeGuard[ast.FunctionDef | ast.Lambda]:
    if isinstance(n, ast.Lambda):
        return name == "<lambda>"
    return isinstance(n, ast.FunctionDef) and n.name == name


def _is_text_of(source: str, code: types.CodeType) -> bool:
    """Whether a function's names and constants are those of its text."""
    waiting: list[Any] = [compile(source, code.co_filename, "exec")]
    while waiting:
        c = waiting.pop()
        if c.co_name == code.co_name and _outline(c) == _outline(code):
            return True
        waiting += [k for k in c.co_consts if hasattr(k, "co_code")]
    return False


def _outline(code: types.CodeType) -> Any:
    """The names and constants of a function and of those in it."""
    names = {*code.co_names, *code.co_varnames, *code.co_freevars}
    constants = [_outline(k) if hasattr(k, "co_code") else repr(k) for k in code.co_consts]
    return names - {"__class__"}, constants  # which a method that calls super has
