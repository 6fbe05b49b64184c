"""Whether code of the user only looks: whether to ask it twice is to ask it once.

Asked where a kernel evaluates the same expression of Python twice: facts say what it gave, not how
often it was asked, so that what may change something each time, an iterator or a counter, must be
asked by its kernel's body. What is not known to look only may change something: the text of a
function is walked with the objects that its names mean, and everything that could run other code
(hooks, properties, iterators, callbacks) or write is refused.
"""

from __future__ import annotations

import ast
import builtins
import enum
import inspect
import textwrap
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

_MOST_ITEMS, _DEEPEST = 64, 4
_LOOKING_FUNCTIONS = frozenset(
    "len int float bool str repr abs min max sum round tuple list dict set frozenset range isinstance "
    "issubclass hasattr getattr type sorted any all divmod pow chr ord complex bytes zip enumerate "
    "reversed slice callable format hex bin oct ascii".split()
)
_FILLING_METHODS = frozenset("append add extend insert update setdefault pop sort reverse".split())
_LOOKING_METHODS = frozenset(
    "count index get keys values items copy tobytes tolist hex decode encode getvalue startswith "
    "endswith split join strip lower upper replace find format item sum min max mean prod any all "
    "reshape ravel flatten transpose astype dot argmax argmin conj bit_length as_integer_ratio "
    "is_integer conjugate union intersection difference issubset issuperset isdisjoint".split()
)
# Of the standard library and NumPy; what their modules hold and is named here may write.
_LIBRARIES = frozenset("math cmath numpy operator _operator itertools fractions statistics".split())
_WRITERS = frozenset(
    "copyto put place putmask fill_diagonal put_along_axis save savetxt savez savez_compressed seterr "
    "seterrcall setbufsize set_printoptions set_string_function shuffle setitem delitem iadd isub imul "
    "imatmul itruediv ifloordiv imod ipow ilshift irshift iand ior ixor iconcat call methodcaller "
    "attrgetter itemgetter".split()
)


class _MayChange(Exception):
    """Something was met that is not known to look only."""


class _Value(NamedTuple):
    """What is known of a value: the object itself; that it is a number, a text or a tuple of such (plain);
    that operators and iteration run no code of the user (inert); and that it was made here (fresh)."""

    kind: str  # known, plain, inert, fresh, unknown
    obj: Any = None


_PLAIN, _INERT, _FRESH, _UNKNOWN = map(_Value, ("plain", "inert", "fresh", "unknown"))
_Env = dict[str, _Value]


def may_change(callee: Any, operands: Sequence[Any]) -> bool:
    """Whether calling this with these operands may run code that changes more than its own variables."""
    try:
        _call(_known(callee), [_known(o) for o in operands], {}, 0)
        return False
    except Exception:  # also of objects of the user that cannot be looked into
        return True


def _known(o: Any) -> _Value:
    return _Value("known", o)


def _is_number(o: Any) -> bool:
    kind = type(o)
    return o is None or kind in (int, float, bool, complex, str, bytes) or (
        kind.__module__ == "numpy" and hasattr(o, "dtype") and getattr(o, "ndim", 1) == 0
    )  # fmt: skip


def _is_inert(o: Any, depth: int = 0) -> bool:
    """Whether operators and iteration run no code of the user: constants, containers of them, arrays."""
    if isinstance(o, enum.Enum):
        return not _has_hooks(type(o))
    if _is_number(o) or isinstance(o, range | types.ModuleType | types.FunctionType):
        return True
    if isinstance(o, type):
        return type(o) is type  # a metaclass may have operators
    if type(o) in (tuple, list, set, frozenset, dict):
        items = list(o.values()) + list(o) if type(o) is dict else list(o)
        return (
            depth < _DEEPEST
            and len(items) <= _MOST_ITEMS
            and all(_is_inert(x, depth + 1) for x in items)
        )
    kind = type(o)
    if kind.__module__ == "numpy" and kind.__name__ == "ndarray":
        return not o.dtype.hasobject
    return kind.__module__.partition(".")[0] == "quadrants"


_TEXTS = ("__format__", "__str__", "__repr__")
_NO_OPERATORS = ("__init__", "__new__", "__doc__", "__module__", *_TEXTS)


def _has_hooks(kind: type, names: Sequence[str] = ()) -> bool:
    """Whether an enumeration has methods of the user for these names, by default for any operator."""
    return any(
        (name in names if names else name.startswith("__") and name not in _NO_OPERATORS)
        and isinstance(value, types.FunctionType)
        and value.__module__ not in ("enum", "functools")
        for base in kind.__mro__[:-1]
        if base.__module__ not in ("enum", "builtins")
        for name, value in vars(base).items()
    )


def _shown(value: _Value) -> None:
    """Raises if to print it runs code of the user."""
    _inert(value)
    if (
        value.kind == "known"
        and isinstance(value.obj, enum.Enum)
        and _has_hooks(type(value.obj), _TEXTS)
    ):
        raise _MayChange


def _inert(*values: _Value) -> _Value:
    """The result of an operator: plain if its operands are."""
    for v in values:
        if v.kind == "unknown" or (v.kind == "known" and not _is_inert(v.obj)):
            raise _MayChange
    return _PLAIN if all(map(_is_plain, values)) else _INERT


def _is_plain(v: _Value) -> bool:
    return v.kind == "plain" or (v.kind == "known" and _is_number(v.obj))


# --- calls ----------------------------------------------------------------------------------------


def _call(callee: _Value, args: list[_Value], keywords: dict[str, _Value], depth: int) -> _Value:
    """What a call gives; raises if it may change something."""
    if callee.kind != "known" or depth > 8:
        raise _MayChange
    function, everything = callee.obj, [*args, *keywords.values()]
    if "out" in keywords:
        raise _MayChange
    if isinstance(function, types.MethodType):
        return _call(_known(function.__func__), [_known(function.__self__), *args], keywords, depth)
    if isinstance(function, types.FunctionType):
        if function.__module__ and function.__module__.partition(".")[0] in (
            "numpy",
            "statistics",
            "quadrants",
        ):
            return _library(function.__name__, everything, depth)
        return _Walk(function, args, keywords, depth).result()
    if isinstance(function, type):
        name = function.__name__
        if function.__module__ == "builtins" and name in _LOOKING_FUNCTIONS:
            return _builtin(name, args, keywords, depth)
        if function.__module__ == "numpy":
            return _library(name, everything, depth)
        raise _MayChange
    if isinstance(function, types.BuiltinFunctionType | types.MethodWrapperType):
        name, owner = function.__name__, function.__self__
        if owner is None or isinstance(owner, types.ModuleType):
            module = str(function.__module__ or "").partition(".")[0]
            if module == "builtins" and name in _LOOKING_FUNCTIONS:
                return _builtin(name, args, keywords, depth)
            if name == "member_origin":  # our own question about a class
                return _PLAIN
            if module in _LIBRARIES:
                return _library(name, everything, depth)
            raise _MayChange
        _inert(_known(owner))
        _refuse_outputs(args, 1)
        if name in _LOOKING_METHODS or isinstance(owner, str | int | float | tuple):
            return _inert(_known(owner), *everything)
        raise _MayChange
    if type(function).__module__.partition(".")[0] == "numpy":  # a function of NumPy's own
        if len(args) > getattr(function, "nin", len(args)):
            raise _MayChange
        return _library(function.__name__, everything, depth)
    method = inspect.getattr_static(type(function), "__call__", None)
    if isinstance(method, types.FunctionType):
        return _call(_known(method), [callee, *args], keywords, depth + 1)
    raise _MayChange


def _library(name: str, operands: list[_Value], depth: int) -> _Value:
    if name != "where":
        _refuse_outputs(operands, 2)
    calls = (types.FunctionType, types.MethodType, types.BuiltinFunctionType)
    if name in _WRITERS or any(v.kind == "known" and isinstance(v.obj, calls) for v in operands):
        raise _MayChange
    return _operator(name, operands, depth)


def _refuse_outputs(operands: list[_Value], first: int) -> None:
    """Raises for an array where NumPy's functions take what they are to write to."""
    for v in operands[first:]:
        if v.kind == "inert" or (
            v.kind == "known" and type(v.obj).__module__ == "numpy" and not _is_number(v.obj)
        ):
            raise _MayChange


def _operator(name: str, operands: list[_Value], depth: int) -> _Value:
    """What an operator or `len` and its like give, by the user's method if the first operand has one."""
    first = operands[0] if operands else _PLAIN
    if first.kind == "known" and not _is_inert(first.obj):
        method = inspect.getattr_static(type(first.obj), f"__{name.strip('_')}__", None)
        if isinstance(method, types.FunctionType):
            for v in operands[1:]:  # which might answer in its place
                if not (v.kind == "known" and type(v.obj) is type(first.obj)):
                    _inert(v)
            return _call(_known(method), operands, {}, depth + 1)
    return _inert(*operands)


def _builtin(name: str, args: list[_Value], keywords: dict[str, _Value], depth: int) -> _Value:
    if name in ("getattr", "hasattr") and len(args) >= 2 and args[1].kind == "known":
        if not isinstance(args[1].obj, str):
            raise _MayChange
        optional = name == "hasattr" or len(args) == 3
        otherwise = args[2] if len(args) == 3 else _PLAIN
        found = _member(args[0], args[1].obj, depth, otherwise, optional)
        return _PLAIN if name == "hasattr" else found
    if name in ("isinstance", "issubclass", "type", "callable"):
        for v in args:
            if v.kind == "known" and type(type(v.obj)) is not type and not _is_inert(v.obj):
                raise _MayChange  # a metaclass may answer
        return _PLAIN if name != "type" else _INERT
    if "key" in keywords:
        raise _MayChange
    if name in ("str", "repr", "format", "ascii"):
        for v in args:
            _shown(v)
    _inert(*keywords.values())
    result = _operator(name, args, depth)
    return (
        _PLAIN if name in ("len", "int", "float", "bool", "str", "repr", "any", "all") else result
    )


def _member(
    base: _Value, name: str, depth: int, otherwise: _Value = _UNKNOWN, optional: bool = False
) -> _Value:
    if base.kind != "known":
        raise _MayChange
    o = base.obj
    if isinstance(o, types.ModuleType):
        if name in vars(o):
            return _known(vars(o)[name])
        raise _MayChange
    kind = type(o)
    lookup = inspect.getattr_static(kind, "__getattribute__", None)
    if lookup not in (
        object.__getattribute__,
        type.__getattribute__,
        types.ModuleType.__getattribute__,
    ):
        if kind.__module__ not in ("builtins", "numpy"):
            raise _MayChange
    of_class = inspect.getattr_static(kind, name, None)
    if isinstance(of_class, property):
        if of_class.fget is None:
            raise _MayChange
        return _call(_known(of_class.fget), [base], {}, depth + 1)
    found = inspect.getattr_static(o, name, _UNKNOWN)
    if found is _UNKNOWN:
        method = inspect.getattr_static(kind, "__getattr__", None)
        if isinstance(method, types.FunctionType):
            return _call(_known(method), [base, _known(name)], {}, depth + 1)
        if optional and method is None:
            return otherwise
        raise _MayChange
    own = (types.FunctionType, classmethod, staticmethod, types.MethodDescriptorType, types.GetSetDescriptorType,
           types.MemberDescriptorType, types.WrapperDescriptorType, types.ClassMethodDescriptorType)  # fmt: skip
    if hasattr(type(found), "__get__") and not isinstance(found, own):
        raise _MayChange
    return _known(getattr(o, name))


# --- the text of a function ------------------------------------------------------------------------

_trees: dict[types.CodeType, ast.FunctionDef | ast.Lambda | None] = {}


def _tree_of(function: types.FunctionType) -> ast.FunctionDef | ast.Lambda:
    code = function.__code__
    if code not in _trees:
        _trees[code] = None
        tree = ast.parse(textwrap.dedent(inspect.getsource(code)))  # of a wrapper its own
        if len(tree.body) == 1 and isinstance(tree.body[0], ast.FunctionDef):
            _trees[code] = tree.body[0]
        elif len(found := [n for n in ast.walk(tree) if isinstance(n, ast.Lambda)]) == 1:
            _trees[code] = found[0]
    known = _trees[code]
    if known is None:
        raise _MayChange
    return known


class _Walk:
    """The text of one function, with what its names mean."""

    def __init__(
        self,
        function: types.FunctionType,
        args: list[_Value],
        keywords: dict[str, _Value],
        depth: int,
    ) -> None:
        self.function = function
        self.depth = depth + 1
        self.returned: list[_Value] = []
        self.tree = _tree_of(function)
        taken = inspect.signature(function, follow_wrapped=False).bind(*args, **keywords)
        self.env: _Env = {}
        for name, parameter in taken.signature.parameters.items():
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
                if name in taken.arguments:
                    raise _MayChange
                self.env[name] = _UNKNOWN
            elif name in taken.arguments:
                self.env[name] = taken.arguments[name]
            else:
                self.env[name] = _known(parameter.default)

    def result(self) -> _Value:
        if isinstance(self.tree, ast.Lambda):
            return self._eval(self.tree.body)
        self._block(self.tree.body)
        return _joined(self.returned) if self.returned else _known(None)

    def _block(self, statements: list[ast.stmt]) -> None:
        for s in statements:
            self._statement(s)

    def _statement(self, s: ast.stmt) -> None:
        if isinstance(s, ast.Return):
            self.returned.append(self._eval(s.value) if s.value else _known(None))
        elif isinstance(s, ast.Expr):
            self._eval(s.value)
        elif isinstance(s, ast.Assign) and len(s.targets) == 1:
            self._bind(s.targets[0], self._eval(s.value))
        elif isinstance(s, ast.AnnAssign) and s.value is not None:
            self._bind(s.target, self._eval(s.value))
        elif isinstance(s, ast.AugAssign) and isinstance(s.target, ast.Name):
            old = self.env.get(s.target.id, _UNKNOWN)
            if not _is_plain(old):
                raise _MayChange  # a list would be changed itself
            self.env[s.target.id] = _inert(old, self._eval(s.value))
        elif isinstance(s, ast.If):
            _inert(self._eval(s.test))
            self._branches(s.body, s.orelse)
        elif isinstance(s, ast.For):
            items = self._items_of(self._eval(s.iter))
            for item in [*items, *items]:  # what a turn assigns, the next one reads
                self._bind(s.target, item)
                self._branches(s.body, [])
            self._block(s.orelse)
        elif isinstance(s, ast.While):
            for _ in range(2):
                _inert(self._eval(s.test))
                self._branches(s.body, s.orelse)
        elif isinstance(s, ast.Assert):
            _inert(self._eval(s.test))
        elif not isinstance(s, ast.Pass | ast.Break | ast.Continue):
            raise _MayChange

    def _branches(self, *blocks: list[ast.stmt]) -> None:
        before, ends = self.env, []
        for block in blocks:
            self.env = dict(before)
            self._block(block)
            ends.append(self.env)
        names = {name for end in ends for name in end}
        self.env = {name: _joined([end.get(name, _UNKNOWN) for end in ends]) for name in names}

    def _bind(self, target: ast.expr, value: _Value) -> None:
        if isinstance(target, ast.Name):
            self.env[target.id] = value
        elif isinstance(target, ast.Tuple):
            item = self._item_of(value)
            for part in target.elts:
                self._bind(part, item)
        elif isinstance(target, ast.Subscript) and self._eval(target.value).kind == "fresh":
            _inert(self._eval(target.slice), value)
        else:
            raise _MayChange

    def _items_of(self, over: _Value) -> list[_Value]:
        """What iteration gives: objects of the user one by one."""
        o = over.obj
        goes = isinstance(o, list | tuple) and type(o).__iter__ in (list.__iter__, tuple.__iter__)
        if over.kind != "known" or not goes or _is_inert(o):
            return [self._item_of(over)]
        if len(o) > _MOST_ITEMS:
            raise _MayChange
        return [_known(x) for x in o]

    def _item_of(self, over: _Value) -> _Value:
        """What iteration gives, of what can be gone over twice."""
        if over.kind in ("plain", "inert", "fresh"):
            return _INERT if over.kind == "fresh" else over
        if over.kind != "known" or not _is_inert(over.obj):
            raise _MayChange
        if type(over.obj) in (str, range):
            return _PLAIN
        items = over.obj if type(over.obj) in (list, tuple, set, frozenset, dict) else [[]]
        return _PLAIN if all(map(_is_number, items)) else _INERT

    def _name(self, name: str) -> _Value:
        if name in self.env:
            return self.env[name]
        code = self.function.__code__
        if name in code.co_varnames or name in code.co_cellvars:
            return _UNKNOWN
        if name in code.co_freevars and self.function.__closure__:
            return _known(self.function.__closure__[code.co_freevars.index(name)].cell_contents)
        spaces = self.function.__globals__, vars(builtins)
        for space in spaces:
            if name in space:
                return _known(space[name])
        raise _MayChange

    def _eval(self, n: ast.expr) -> _Value:
        how = _EXPRESSIONS.get(type(n))
        if how is None:
            raise _MayChange
        return how(self, n)

    def _subscript(self, n: ast.Subscript) -> _Value:
        base, index = self._eval(n.value), self._eval(n.slice)
        _inert(index)
        if base.kind in ("plain", "inert", "fresh"):
            return _INERT if base.kind == "fresh" else base
        if base.kind == "known" and type(base.obj) in (list, tuple, dict, str, range):
            if index.kind == "known":
                return _known(base.obj[index.obj])
            items = list(base.obj.values()) if type(base.obj) is dict else base.obj
            return self._item_of(_known(items))
        return _inert(base)

    def _called(self, n: ast.Call) -> _Value:
        if any(isinstance(a, ast.Starred) for a in n.args) or any(
            k.arg is None for k in n.keywords
        ):
            raise _MayChange
        args = [self._eval(a) for a in n.args]
        keywords = {str(k.arg): self._eval(k.value) for k in n.keywords}
        if isinstance(n.func, ast.Attribute):
            base = self._eval(n.func.value)
            if base.kind == "fresh" and n.func.attr in _FILLING_METHODS and not keywords:
                return _inert(*args)
            if base.kind in ("plain", "inert", "fresh") and n.func.attr in _LOOKING_METHODS:
                return _inert(base, *args, *keywords.values())
        return _call(self._eval(n.func), args, keywords, self.depth)

    def _display(self, n: ast.List | ast.Tuple | ast.Set) -> _Value:
        items = [self._eval(e) for e in n.elts]
        if isinstance(n, ast.Tuple) and all(v.kind == "known" for v in items):
            return _known(tuple(v.obj for v in items))
        if isinstance(n, ast.Tuple):
            return _PLAIN if all(map(_is_plain, items)) else _contained(items)
        return _FRESH if _contained(items) is _INERT else _UNKNOWN

    def _table(self, n: ast.Dict) -> _Value:
        if not all(n.keys):
            raise _MayChange
        items = [self._eval(e) for e in (*(k for k in n.keys if k), *n.values)]
        return _FRESH if _contained(items) is _INERT else _UNKNOWN

    def _comprehension(self, n: ast.ListComp | ast.SetComp | ast.GeneratorExp) -> _Value:
        before, items = self.env, []
        for self.env in self._turns(dict(before), n.generators):
            items.append(self._eval(n.elt))
        self.env = before
        if isinstance(n, ast.ListComp):
            return _FRESH if _contained(items) is _INERT else _UNKNOWN
        return _PLAIN if all(map(_is_plain, items)) else _contained(items)

    def _turns(self, env: _Env, generators: list[ast.comprehension]) -> Iterator[_Env]:
        if not generators:
            yield env
            return
        self.env = env
        for item in self._items_of(self._eval(generators[0].iter)):
            self.env = dict(env)
            self._bind(generators[0].target, item)
            for test in generators[0].ifs:
                _inert(self._eval(test))
            yield from self._turns(self.env, generators[1:])

    def _condition(self, n: ast.IfExp) -> _Value:
        _inert(self._eval(n.test))
        return _joined([self._eval(n.body), self._eval(n.orelse)])

    def _text(self, n: ast.JoinedStr) -> _Value:
        for part in n.values:
            if isinstance(part, ast.FormattedValue):
                _shown(self._eval(part.value))
        return _PLAIN

    def _compare(self, n: ast.Compare) -> _Value:
        values = [self._eval(e) for e in (n.left, *n.comparators)]
        if all(isinstance(op, ast.Is | ast.IsNot) for op in n.ops):
            return _PLAIN
        _inert(*values)
        return _PLAIN


def _joined(values: list[_Value]) -> _Value:
    first = values[0]
    if all(v.kind == "known" and v.obj is first.obj for v in values):
        return first
    if all(v.kind == "fresh" for v in values):
        return _FRESH
    return _PLAIN if all(map(_is_plain, values)) else _contained(values)


def _contained(values: list[_Value]) -> _Value:
    try:
        _inert(*values)
    except _MayChange:
        return _UNKNOWN
    return _INERT


_EXPRESSIONS: dict[type[ast.expr], Callable[[_Walk, Any], _Value]] = {
    ast.Constant: lambda w, n: _known(n.value),
    ast.Name: lambda w, n: w._name(n.id),
    ast.Attribute: lambda w, n: _member(w._eval(n.value), n.attr, w.depth),
    ast.Subscript: _Walk._subscript,
    ast.Slice: lambda w, n: _inert(*(w._eval(e) for e in (n.lower, n.upper, n.step) if e)),
    ast.BinOp: lambda w, n: _inert(w._eval(n.left), w._eval(n.right)),
    ast.UnaryOp: lambda w, n: _inert(w._eval(n.operand)),
    ast.BoolOp: lambda w, n: _inert(*map(w._eval, n.values)),
    ast.Compare: _Walk._compare,
    ast.IfExp: _Walk._condition,
    ast.Call: _Walk._called,
    ast.List: _Walk._display,
    ast.Tuple: _Walk._display,
    ast.Set: _Walk._display,
    ast.Dict: _Walk._table,
    ast.JoinedStr: _Walk._text,
    ast.ListComp: _Walk._comprehension,
    ast.SetComp: _Walk._comprehension,
    ast.GeneratorExp: _Walk._comprehension,
}
