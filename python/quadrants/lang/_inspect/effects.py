"""Whether code of the user changes something that outlives its call, as far as its text tells.

Asked where a kernel evaluates the same expression of Python twice: facts say what it gave, not how
often it was asked, so that what changes something each time must be asked by its kernel's body.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
import types
from collections.abc import Sequence
from typing import Any

CHANGING_METHODS = frozenset(
    "append extend insert remove pop clear sort reverse update setdefault popitem add discard "
    "appendleft popleft extendleft rotate write writelines fill put push set send throw close "
    "shuffle seed debug info warning error".split()
)
_CHANGING_FUNCTIONS = frozenset("print next setattr delattr exec eval input open".split())
_CHANGING_MODULES = frozenset("random _random heapq _heapq bisect _bisect logging".split())
# Of methods without text: those that only look.
_LOOKING_METHODS = frozenset(
    "count index get keys values items copy tobytes tolist hex decode getvalue".split()
)
_PYTHONS = ("builtins", "operator", "_operator")  # functions that run hooks of their operands
_HOOKS = {"getitem": "__getitem__", "len": "__len__", "getattr": "__getattr__"}

_Seen = set[tuple[types.CodeType, type | None]]
_known: dict[tuple[types.CodeType, type | None], bool] = {}


def may_change(callee: Any, operands: Sequence[Any]) -> bool:
    """Whether calling this with these operands runs code that changes more than its own variables."""
    seen: _Seen = set()
    try:
        if _changes_natively(callee, operands):
            return True
        return any(_changes(fn, owner, seen) for fn, owner in _run_by(callee, operands))
    except Exception:  # objects of the user that cannot be looked into
        return True


def _changes_natively(callee: Any, operands: Sequence[Any]) -> bool:
    """Whether a method without text is of something that can change, or a function is known to change."""
    name = getattr(callee, "__name__", "")
    if isinstance(callee, types.MethodDescriptorType | types.WrapperDescriptorType):
        return bool(operands) and _can_change(operands[0]) and name not in _LOOKING_METHODS
    if not isinstance(callee, types.BuiltinFunctionType | types.MethodWrapperType):
        return False
    owner = callee.__self__
    if owner is not None and not isinstance(owner, types.ModuleType):
        return _can_change(owner) and name not in _LOOKING_METHODS
    module = str(callee.__module__ or "")
    if module in _PYTHONS:
        return name in _CHANGING_FUNCTIONS
    return module.partition(".")[0] in _CHANGING_MODULES


def _can_change(o: Any) -> bool:
    """What has no hash, or that of its identity."""
    hashes: Any = type(o).__hash__
    return not isinstance(o, type) and (hashes is None or hashes is object.__hash__)


_Run = list[tuple[Any, "type | None"]]  # functions of the user, each with the class of its `self`


def _run_by(callee: Any, operands: Sequence[Any]) -> _Run:
    """What a call runs."""
    owner = type(callee.__self__) if isinstance(callee, types.MethodType) else None
    function = inspect.unwrap(getattr(callee, "__func__", callee))
    if isinstance(function, types.FunctionType):
        return [(function, owner)]
    if not isinstance(callee, types.BuiltinFunctionType | type) or not operands:
        return _hooks(type(callee), "__call__")
    name, kind = callee.__name__, type(operands[0])
    if name == "getattr" and len(operands) > 1 and isinstance(operands[1], str):
        found = inspect.getattr_static(kind, operands[1], None)
        if isinstance(found, property):
            return [(found.fget, kind)]
        hooks = _hooks(kind, "__getattr__") + _hooks(kind, "__getattribute__")
        return hooks + (_hooks(type(found), "__get__") if found is not None else [])
    return _hooks(kind, _HOOKS.get(name, f"__{name}__"))


def _hooks(kind: type, name: str) -> _Run:
    found = inspect.getattr_static(kind, name, None)
    return [(found, kind)] if isinstance(found, types.FunctionType) else []


def _changes(function: Any, owner: type | None, seen: _Seen) -> bool:
    function = inspect.unwrap(getattr(function, "__func__", function))
    code = getattr(function, "__code__", None)
    if code is None:
        module = getattr(function, "__module__", None)
        return isinstance(module, str) and module.partition(".")[0] in _CHANGING_MODULES
    key = code, owner
    if key in seen:
        return False
    seen.add(key)
    known = _known.get(key)
    if known is None:
        known = _Text(function, owner, seen).changes()
        if len(seen) == 1:  # else it may lean on what is being looked at
            _known[key] = known
    return known


class _Text:
    """The source of one function."""

    def __init__(self, function: Any, owner: type | None, seen: _Seen) -> None:
        code = function.__code__
        self.function = function
        self.owner = owner
        self.seen = seen
        given = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        self.own = set(code.co_varnames) | set(code.co_cellvars)
        self.local = self.own - set(given)
        self.self_name = given[0] if given and owner is not None else None

    def changes(self) -> bool:
        try:
            tree = ast.parse(textwrap.dedent(inspect.getsource(self.function)))
        except (OSError, TypeError, SyntaxError, ValueError):
            return False
        return any(self._does(node) for node in ast.walk(tree))

    def _does(self, node: ast.AST) -> bool:
        if isinstance(node, ast.Global | ast.Nonlocal):
            return True
        if isinstance(node, ast.Attribute | ast.Subscript) and not isinstance(node.ctx, ast.Load):
            return _root(node) not in self.local
        return isinstance(node, ast.Call) and self._calls(node.func)

    def _calls(self, called: ast.AST) -> bool:
        if isinstance(called, ast.Name):
            if called.id in self.own:
                return False
            if called.id in _CHANGING_FUNCTIONS:
                return True
        elif isinstance(called, ast.Attribute):
            if called.attr in CHANGING_METHODS and _root(called) not in self.local:
                return True
            if isinstance(called.value, ast.Name) and called.value.id == self.self_name:
                return self._method_changes(self.owner, called.attr)
            base = self._object(called.value)
            if base is not None and not isinstance(base, types.ModuleType | type):
                return self._method_changes(type(base), called.attr)
        target = self._object(called)
        return target is not None and _changes(target, None, self.seen)

    def _method_changes(self, kind: type | None, name: str) -> bool:
        found = inspect.getattr_static(kind, name, None) if kind is not None else None
        return isinstance(found, types.FunctionType) and _changes(found, kind, self.seen)

    def _object(self, node: ast.AST) -> Any:
        """What a dotted name of modules means; None if that is not known."""
        if isinstance(node, ast.Attribute):
            base = self._object(node.value)
            return base.__dict__.get(node.attr) if isinstance(base, types.ModuleType) else None
        if not isinstance(node, ast.Name) or node.id in self.own:
            return None
        code = self.function.__code__
        if node.id in code.co_freevars:
            try:
                return self.function.__closure__[code.co_freevars.index(node.id)].cell_contents
            except ValueError:
                return None
        return self.function.__globals__.get(node.id)


def _root(node: ast.AST) -> str | None:
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else None
