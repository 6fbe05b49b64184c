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
import sys
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from quadrants.lang._inspect.function_text import tree_of
from quadrants.lang._inspect.known_values import (
    FRESH,
    INERT,
    MOST_ITEMS,
    PLAIN,
    UNKNOWN,
    MayChange,
    Value,
    contained,
    inert,
    is_a,
    is_array,
    is_inert,
    is_number,
    is_number_type,
    is_plain,
    joined,
    known,
    shown,
)

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
_OPERATORS = frozenset(
    "abs add and_ contains eq floordiv ge getitem gt index inv invert is_ is_not le lshift lt mod mul ne neg "
    "not_ or_ pos pow rshift sub truediv truth xor matmul concat countOf indexOf".split()
)
# Of NumPy, beside its element-wise functions and number types.
_LOOKING_NUMPY = frozenset(
    "dot zeros ones full array asarray arange linspace eye identity sum prod mean max min amax amin cross "
    "where concatenate stack vstack hstack outer inner trace diag allclose isclose argmax argmin any all "
    "round diff sort unique transpose reshape ravel size shape ndim norm det inv array_equal".split()
)
_BY_METHOD = {"getitem": "__getitem__", "contains": "__contains__", "truth": "__bool__"}
_MOST_STEPS = 20_000
_Env = dict[str, Value]


_CONSUMERS = frozenset("sum any all min max list tuple set frozenset sorted".split())
_left = [0]  # steps, of the question that is being looked at


def may_change(callee: Any, operands: Sequence[Any]) -> bool:
    """Whether calling this with these operands may run code that changes more than its own variables."""
    _left[0] = _MOST_STEPS
    try:
        _call(known(callee), [known(o) for o in operands], {}, 0)
        return False
    except Exception:  # also of objects of the user that cannot be looked into
        return True


# --- calls ----------------------------------------------------------------------------------------


def _call(callee: Value, args: list[Value], keywords: dict[str, Value], depth: int) -> Value:
    """What a call gives; raises if it may change something."""
    if callee.kind != "known" or depth > 8:
        raise MayChange
    function, everything = callee.obj, [*args, *keywords.values()]
    kind = type(function)
    if kind is types.MethodType:
        return _call(known(function.__func__), [known(function.__self__), *args], keywords, depth)
    if _is_numpys(function):
        if kind.__name__ == "ufunc" and len(args) > function.nin:
            raise MayChange
        return _library(function.__name__, args, keywords)
    if kind is types.FunctionType:
        return _Walk(function, args, keywords, depth).result()
    if kind is type:
        if function.__module__ == "builtins" and function.__name__ in _LOOKING_FUNCTIONS:
            return _builtin(function.__name__, args, keywords, depth)
        raise MayChange
    if kind in (types.BuiltinFunctionType, types.MethodWrapperType):
        name, owner = function.__name__, function.__self__
        if owner is None or type(owner) is types.ModuleType:
            module = str(function.__module__ or "")
            if module == "builtins" and name in _LOOKING_FUNCTIONS:
                return _builtin(name, args, keywords, depth)
            if name == "member_origin":  # our own question about a class
                return PLAIN
            if module in ("math", "cmath"):
                shown(*everything)
                return PLAIN
            if module == "_operator" and name in _OPERATORS and not keywords:
                return _operator(_BY_METHOD.get(name, f"__{name.strip('_')}__"), args, depth)
            raise MayChange
        inert(known(owner))
        if name in _LOOKING_METHODS or type(owner) in (str, int, float):
            _refuse_outputs(args, 0 if is_array(owner) and name != "dot" else 1)
            if not all(map(is_plain, keywords.values())):
                raise MayChange
            if name == "format":
                shown(*args)
            return inert(known(owner), *everything)
        raise MayChange
    method = inspect.getattr_static(kind, "__call__", None)
    if type(method) is types.FunctionType:
        return _call(known(method), [callee, *args], keywords, depth + 1)
    raise MayChange


def _is_numpys(function: Any) -> bool:
    """An element-wise function of NumPy, a type of its numbers, or one that is known to look only."""
    numpy = sys.modules.get("numpy")
    kind = type(function)
    if numpy is None or (kind.__module__.partition(".")[0] != "numpy" and kind not in
                         (types.FunctionType, types.BuiltinFunctionType, type)):  # fmt: skip
        return False
    name = function.__name__ if kind.__name__ != "vectorize" else ""
    if (
        getattr(numpy, name, None) is not function
        and getattr(numpy.linalg, name, None) is not function
    ):
        return False
    if isinstance(function, type):
        return is_number_type(function) and name not in (
            "datetime64",
            "timedelta64",
            "void",
            "object_",
        )
    return kind.__name__ == "ufunc" or name in _LOOKING_NUMPY


def _library(name: str, args: list[Value], keywords: dict[str, Value]) -> Value:
    if name != "where":
        _refuse_outputs(args, 2)
    for key, v in keywords.items():
        if key not in ("axis", "dtype", "keepdims", "decimals", "ord") or contained([v]) is UNKNOWN:
            raise MayChange
    for v in args:
        if (
            v.kind == "known"
            and (callable(v.obj) or type(v.obj) is types.ModuleType)
            and not is_a(v.obj, type)
        ):
            raise MayChange
    return inert(*args)


def _refuse_outputs(operands: list[Value], first: int) -> None:
    """Raises for an array where NumPy's functions take what they are to write to."""
    for v in operands[first:]:
        if v.kind == "inert" or (
            v.kind == "known" and type(v.obj).__module__ == "numpy" and not is_number(v.obj)
        ):
            raise MayChange


def _operator(name: str, operands: list[Value], depth: int) -> Value:
    """What an operator or `len` and its like give, by the user's method if the first operand has one."""
    first = operands[0] if operands else PLAIN
    if first.kind == "known" and not is_inert(first.obj):
        method = inspect.getattr_static(type(first.obj), name, None)
        if type(method) is types.FunctionType:
            inert(*operands[1:])  # which might answer in its place
            result = _call(known(method), operands, {}, depth + 1)
            if name in ("__len__", "__bool__", "__int__", "__float__", "__index__", "__contains__"):
                shown(result)
            return result
    if first.kind == "known" and is_a(first.obj, type):
        raise MayChange  # it may be subscripted
    return inert(*operands)


def _builtin(name: str, args: list[Value], keywords: dict[str, Value], depth: int) -> Value:
    if not all(map(is_plain, keywords.values())):
        raise MayChange
    if name in ("getattr", "hasattr"):
        if (
            keywords
            or not 2 <= len(args) <= 3
            or args[1].kind != "known"
            or type(args[1].obj) is not str
        ):
            raise MayChange
        optional = name == "hasattr" or len(args) == 3
        otherwise = args[2] if len(args) == 3 else PLAIN
        found = _member(args[0], args[1].obj, depth, otherwise, optional)
        return PLAIN if name == "hasattr" else found
    if name in ("isinstance", "issubclass"):
        kinds = args[1].obj if len(args) == 2 and args[1].kind == "known" else None
        for kind in kinds if type(kinds) is tuple else (kinds,):
            if type(kind) is not type and type(kind) is not enum.EnumMeta:
                raise MayChange  # a metaclass may answer
        if args[0].kind == "known":
            if inspect.getattr_static(type(args[0].obj), "__class__", None) is not _CLASS:
                raise MayChange
            _check_lookup(type(args[0].obj))
        return PLAIN
    if name == "type" and len(args) == 1:
        return known(type(args[0].obj)) if args[0].kind == "known" else INERT
    if name == "bool" and len(args) == 1:
        return _truth(args[0], depth)
    if name in ("type", "callable"):
        raise MayChange
    if name in ("str", "repr", "format", "ascii"):
        shown(*args)
    if any(v.kind == "known" and callable(v.obj) and not is_a(v.obj, type) for v in args):
        raise MayChange
    by_method = name in ("len", "int", "float", "round")
    result = _operator(f"__{name}__", args, depth) if by_method else inert(*args)
    return PLAIN if by_method or name in ("any", "all", "str", "repr") else result


_CLASS = inspect.getattr_static(object, "__class__")


def _truth(v: Value, depth: int) -> Value:
    """Of a test: objects of the user are true, or have a method that says so."""
    if v.kind == "known" and not is_inert(v.obj):
        kind = type(v.obj)
        for name in ("__bool__", "__len__"):
            if inspect.getattr_static(kind, name, None) is not None:
                return _operator(name, [v], depth)
        return PLAIN
    inert(v)
    return PLAIN


def _check_lookup(kind: type) -> None:
    """Raises if finding a member may run code of the user."""
    for base in kind.__mro__:
        if "__getattribute__" in vars(base):
            if base in (object, type, tuple, str, int, float, dict, list) or base.__module__ in (
                "builtins",
                "enum",
                "numpy",
            ):
                return
            raise MayChange


def _member(
    base: Value, name: str, depth: int, otherwise: Value = UNKNOWN, optional: bool = False
) -> Value:
    if base.kind != "known" or (name.startswith("__") and not name.endswith("__")):
        raise MayChange
    o, kind = base.obj, type(base.obj)
    if kind is types.ModuleType:
        if name in vars(o):
            return known(vars(o)[name])
        raise MayChange
    if (
        is_a(o, enum.Enum)
        and name in ("value", "name")
        and not any(name in vars(b) for b in kind.__mro__ if b.__module__ != "enum")
    ):
        return known(o._value_ if name == "value" else o._name_)
    _check_lookup(kind)
    if issubclass(kind, type) and kind is not type and not issubclass(kind, enum.EnumMeta):
        raise MayChange
    of_class = inspect.getattr_static(kind, name, None)
    if type(of_class) is property:
        if of_class.fget is None:
            raise MayChange
        return _call(known(of_class.fget), [base], {}, depth + 1)
    found = inspect.getattr_static(o, name, UNKNOWN)
    fallback = inspect.getattr_static(kind, "__getattr__", None)
    if found is UNKNOWN:
        if type(fallback) is types.FunctionType:
            return _call(known(fallback), [base, known(name)], {}, depth + 1)
        if optional and fallback is None:
            return otherwise
        raise MayChange
    own = (types.FunctionType, classmethod, staticmethod, types.MethodDescriptorType, types.GetSetDescriptorType,
           types.MemberDescriptorType, types.WrapperDescriptorType, types.ClassMethodDescriptorType)  # fmt: skip
    plain = inspect.getattr_static(type(found), "__get__", None) is None
    if not plain and type(found) not in own and type(found).__name__ != "_tuplegetter":
        raise MayChange
    look = type.__getattribute__ if issubclass(kind, type) else object.__getattribute__
    return known(look(o, name))


class _Walk:
    """The text of one function, with what its names mean."""

    def __init__(
        self,
        function: types.FunctionType,
        args: list[Value],
        keywords: dict[str, Value],
        depth: int,
    ) -> None:
        self.function = function
        self.depth = depth + 1
        self.returned: list[Value] = []
        self.tree = tree_of(function)
        taken = inspect.signature(function, follow_wrapped=False).bind(*args, **keywords)
        self.env: _Env = {}
        for name, parameter in taken.signature.parameters.items():
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
                if name in taken.arguments:
                    raise MayChange
                self.env[name] = UNKNOWN
            elif name in taken.arguments:
                self.env[name] = taken.arguments[name]
            else:
                self.env[name] = known(parameter.default)

    def result(self) -> Value:
        if isinstance(self.tree, ast.Lambda):
            return self._eval(self.tree.body)
        self._block(self.tree.body)
        return joined(self.returned) if self.returned else known(None)

    def _block(self, statements: list[ast.stmt]) -> None:
        for s in statements:
            self._statement(s)

    def _statement(self, s: ast.stmt) -> None:
        if isinstance(s, ast.Return):
            self.returned.append(self._eval(s.value) if s.value else known(None))
        elif isinstance(s, ast.Expr):
            self._eval(s.value)
        elif isinstance(s, ast.Assign) and len(s.targets) == 1:
            self._bind(s.targets[0], self._eval(s.value))
        elif isinstance(s, ast.AnnAssign) and s.value is not None:
            self._bind(s.target, self._eval(s.value))
        elif isinstance(s, ast.AugAssign) and isinstance(s.target, ast.Name):
            old = self.env.get(s.target.id, UNKNOWN)
            if not is_plain(old):
                raise MayChange  # a list would be changed itself
            self.env[s.target.id] = inert(old, self._eval(s.value))
        elif isinstance(s, ast.If):
            _truth(self._eval(s.test), self.depth)
            self._branches(s.body, s.orelse)
        elif isinstance(s, ast.For) and not s.orelse:
            self._for(s, self._items_of(self._eval(s.iter)))
        elif isinstance(s, ast.While) and not s.orelse:
            self._while(s)
        elif isinstance(s, ast.Assert) and s.msg is None:
            _truth(self._eval(s.test), self.depth)
        elif not isinstance(s, ast.Pass):
            raise MayChange

    def _for(self, s: ast.For, items: list[Value]) -> None:
        for _ in self._rounds():
            for item in items:
                before = dict(self.env)
                self._bind(s.target, item)
                self._block(s.body)
                self._join([before, self.env])

    def _while(self, s: ast.While) -> None:
        for _ in self._rounds():
            _truth(self._eval(s.test), self.depth)
            self._branches(s.body, [])

    def _rounds(self) -> Iterator[None]:
        """Until what a turn assigns, which the next one reads, is what was assigned before."""
        for _ in range(8):
            before = {name: (v.kind, id(v.obj)) for name, v in self.env.items()}
            yield
            if {name: (v.kind, id(v.obj)) for name, v in self.env.items()} == before:
                return
        raise MayChange

    def _branches(self, *blocks: list[ast.stmt]) -> None:
        before, ends = self.env, []
        for block in blocks:
            self.env = dict(before)
            self._block(block)
            ends.append(self.env)
        self._join(ends)

    def _join(self, ends: list[_Env]) -> None:
        names = {name for end in ends for name in end}
        self.env = {name: joined([end.get(name, UNKNOWN) for end in ends]) for name in names}

    def _bind(self, target: ast.expr, value: Value) -> None:
        if isinstance(target, ast.Name):
            self.env[target.id] = value
        elif isinstance(target, ast.Tuple):
            item = self._item_of(value)
            for part in target.elts:
                self._bind(part, item)
        elif isinstance(target, ast.Subscript) and self._eval(target.value).kind == "fresh":
            inert(self._eval(target.slice), value)
        else:
            raise MayChange

    def _items_of(self, over: Value) -> list[Value]:
        """What iteration gives: objects of the user one by one."""
        o = over.obj
        goes = is_a(o, list, tuple) and all(
            inspect.getattr_static(type(o), name, None)
            in (getattr(list, name), getattr(tuple, name))
            for name in ("__iter__", "__len__")
        )
        if over.kind != "known" or not goes or is_inert(o):
            return [self._item_of(over)]
        if len(o) > MOST_ITEMS:
            raise MayChange
        return [known(x) for x in o]

    def _item_of(self, over: Value) -> Value:
        """What iteration gives, of what can be gone over twice."""
        if over.kind in ("plain", "inert", "fresh"):
            return INERT if over.kind == "fresh" else over
        if over.kind != "known" or not is_inert(over.obj):
            raise MayChange
        if type(over.obj) in (str, range):
            return PLAIN
        items = over.obj if type(over.obj) in (list, tuple, set, frozenset, dict) else [[]]
        return PLAIN if all(map(is_number, items)) else INERT

    def _name(self, name: str) -> Value:
        if name in self.env:
            return self.env[name]
        code = self.function.__code__
        if name in code.co_varnames or name in code.co_cellvars:
            return UNKNOWN
        if name in code.co_freevars and self.function.__closure__:
            return known(self.function.__closure__[code.co_freevars.index(name)].cell_contents)
        spaces = self.function.__globals__, vars(builtins)
        for space in spaces:
            if name in space:
                return known(space[name])
        raise MayChange

    def _eval(self, n: ast.expr) -> Value:
        how = _EXPRESSIONS.get(type(n))
        _left[0] -= 1
        if how is None or _left[0] < 0:
            raise MayChange
        return how(self, n)

    def _subscript(self, n: ast.Subscript) -> Value:
        base, index = self._eval(n.value), self._eval(n.slice)
        inert(index)
        if base.kind in ("plain", "inert", "fresh"):
            return INERT if base.kind == "fresh" else base
        if base.kind == "known" and type(base.obj) in (list, tuple, dict, str, range):
            if type(base.obj) is dict and not (is_plain(index) and all(map(is_number, base.obj))):
                raise MayChange  # keys of the user compare
            if index.kind == "known":
                return known(base.obj[index.obj])
            items = list(base.obj.values()) if type(base.obj) is dict else base.obj
            return self._item_of(known(items))
        if base.kind != "known" or not (is_array(base.obj) or is_number(base.obj)):
            raise MayChange
        return inert(base)

    def _called(self, n: ast.Call) -> Value:
        if any(isinstance(a, ast.Starred) for a in n.args) or any(
            k.arg is None for k in n.keywords
        ):
            raise MayChange
        consumes = (
            isinstance(n.func, ast.Name) and n.func.id in _CONSUMERS and n.func.id not in self.env
        )
        args = [
            self._comprehension(a)
            if consumes and isinstance(a, ast.GeneratorExp)
            else self._eval(a)
            for a in n.args
        ]
        keywords = {str(k.arg): self._eval(k.value) for k in n.keywords}
        if isinstance(n.func, ast.Attribute):
            base = self._eval(n.func.value)
            if base.kind == "fresh" and n.func.attr in _FILLING_METHODS and not keywords:
                inert(*args)
                return INERT
            if base.kind in ("plain", "inert", "fresh") and n.func.attr in _LOOKING_METHODS:
                shown(*args, *keywords.values())
                if "out" in keywords:
                    raise MayChange
                return INERT if base.kind == "fresh" else base
        return _call(self._eval(n.func), args, keywords, self.depth)

    def _display(self, n: ast.List | ast.Tuple | ast.Set) -> Value:
        items = [self._eval(e) for e in n.elts]
        if isinstance(n, ast.Tuple) and all(v.kind == "known" for v in items):
            return known(tuple(v.obj for v in items))
        if isinstance(n, ast.Tuple):
            return PLAIN if all(map(is_plain, items)) else contained(items)
        return FRESH if contained(items) is INERT else UNKNOWN

    def _table(self, n: ast.Dict) -> Value:
        if not all(n.keys):
            raise MayChange
        items = [self._eval(e) for e in (*(k for k in n.keys if k), *n.values)]
        return FRESH if contained(items) is INERT else UNKNOWN

    def _comprehension(self, n: ast.ListComp | ast.SetComp | ast.GeneratorExp) -> Value:
        before, items = self.env, []
        for self.env in self._turns(dict(before), n.generators):
            items.append(self._eval(n.elt))
        self.env = before
        if isinstance(n, ast.ListComp):
            return FRESH if contained(items) is INERT else UNKNOWN
        return PLAIN if all(map(is_plain, items)) else contained(items)

    def _turns(self, env: _Env, generators: list[ast.comprehension]) -> Iterator[_Env]:
        if not generators:
            yield env
            return
        self.env = env
        for item in self._items_of(self._eval(generators[0].iter)):
            self.env = dict(env)
            self._bind(generators[0].target, item)
            for test in generators[0].ifs:
                inert(self._eval(test))
            yield from self._turns(self.env, generators[1:])

    def _condition(self, n: ast.IfExp) -> Value:
        _truth(self._eval(n.test), self.depth)
        return joined([self._eval(n.body), self._eval(n.orelse)])

    def _text(self, n: ast.JoinedStr) -> Value:
        for part in n.values:
            if isinstance(part, ast.FormattedValue):
                shown(self._eval(part.value))
                if isinstance(part.format_spec, ast.JoinedStr):
                    self._text(part.format_spec)
        return PLAIN

    def _binary(self, n: ast.BinOp) -> Value:
        left, right = self._eval(n.left), self._eval(n.right)
        if isinstance(n.op, ast.Mod) and not (left.kind == "known" and is_a(left.obj, int, float)):
            shown(right)  # it may be a format
        return inert(left, right)

    def _bool(self, n: ast.BoolOp) -> Value:
        values = [self._eval(e) for e in n.values]
        for v in values[:-1]:
            _truth(v, self.depth)
        return joined(values)

    def _unary(self, n: ast.UnaryOp) -> Value:
        if isinstance(n.op, ast.Not):
            return _truth(self._eval(n.operand), self.depth)
        return inert(self._eval(n.operand))

    def _compare(self, n: ast.Compare) -> Value:
        values = [self._eval(e) for e in (n.left, *n.comparators)]
        if all(isinstance(op, ast.Is | ast.IsNot) for op in n.ops):
            return PLAIN
        inert(*values)
        return PLAIN


_EXPRESSIONS: dict[type[ast.expr], Callable[[_Walk, Any], Value]] = {
    ast.Constant: lambda w, n: known(n.value),
    ast.Name: lambda w, n: w._name(n.id),
    ast.Attribute: lambda w, n: _member(w._eval(n.value), n.attr, w.depth),
    ast.Subscript: _Walk._subscript,
    ast.Slice: lambda w, n: inert(*(w._eval(e) for e in (n.lower, n.upper, n.step) if e)),
    ast.BinOp: _Walk._binary,
    ast.UnaryOp: _Walk._unary,
    ast.BoolOp: _Walk._bool,
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
}
