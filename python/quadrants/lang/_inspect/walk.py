"""The text of a function, walked with the objects that its names mean: whether it only looks.

What calls, members and operators do is answered by whoever walks (effects.py).
"""

from __future__ import annotations

import ast
import builtins
import enum
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from quadrants.lang._inspect.function_text import tree_of
from quadrants.lang._inspect.known_values import (
    FRESH,
    INERT,
    PLAIN,
    UNKNOWN,
    MayChange,
    Value,
    are_data,
    contained,
    data,
    has_inert_keys,
    holds_numbers,
    inert,
    is_a,
    is_array,
    is_inert,
    is_number,
    is_plain,
    item_of,
    items_of,
    joined,
    known,
    step,
    value_of,
)
from quadrants.lang._inspect.looking import FILLING_METHODS, LOOKING_METHODS
from quadrants.lang._inspect.static_members import bound, in_class

_Env = dict[str, Value]
_CONSUMERS = frozenset("sum any all min max list tuple set frozenset sorted".split())


class Answers(NamedTuple):
    """What code of the user gives, by depth of calls; each raises MayChange if it may change something."""

    call: Callable[[Value, list[Value], dict[str, Value], int], Value]
    member: Callable[..., Value]  # of a value, by name
    operator: Callable[[str, list[Value], int], Value]
    truth: Callable[[Value, int], Value]
    text_of: Callable[..., Value]  # of a value, by str, repr or format
    super: Callable[[Any, Any], Value]


def _is_key(o: Any) -> bool:
    """Whether a list or table may be asked for it here: no code of the user is run."""
    return is_number(o) or (
        is_inert(o) and (is_a(o, enum.Enum) or (type(o) is tuple and holds_numbers(o)))
    )


def _is_none(n: ast.expr) -> bool:
    return isinstance(n, ast.Constant) and n.value is None


def _is_starred(elements: list[ast.expr]) -> bool:
    return any(isinstance(e, ast.Starred) for e in elements)


def _assigned(statements: Sequence[ast.AST]) -> set[str]:
    """Names that statements may assign."""
    nodes = [n for s in statements for n in ast.walk(s)]
    names = {n.id for n in nodes if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load)}
    return names | {n.name for n in nodes if isinstance(n, ast.ExceptHandler) and n.name}


def _is_same(a: Value | None, b: Value) -> bool:
    return a is not None and a.kind == b.kind and a.obj is b.obj


class Walk:
    """The text of one function, with what its names mean."""

    def __init__(
        self,
        ask: Answers,
        function: types.FunctionType,
        args: list[Value],
        keywords: dict[str, Value],
        depth: int,
    ) -> None:
        self.ask = ask
        self.function = function
        self.depth = depth + 1
        self.returned: list[Value] = []
        self.tree = tree_of(function)
        self.env: _Env
        self.jumps: list[_Env] = []  # what names mean where a loop's turn is left early
        code = function.__code__
        more: list[Any] = []
        if code.co_flags & 4:  # *args
            more.append(tuple(args[code.co_argcount :]))
            args = args[: code.co_argcount]
        if code.co_flags & 8:  # **kwargs
            named = code.co_varnames[
                code.co_posonlyargcount : code.co_argcount + code.co_kwonlyargcount
            ]
            more.append({k: v for k, v in keywords.items() if k not in named})
            keywords = {k: v for k, v in keywords.items() if k in named}
        self.env, rest, stars = bound(function, args, keywords)
        self.env |= {name: known(value) for name, value in rest.items()}
        self.env |= {name: Value("pack", held) for name, held in zip(stars, more)}

    def result(self) -> Value:
        if isinstance(self.tree, ast.Lambda):
            return self._eval(self.tree.body)
        self._block(self.tree.body)
        return joined(self.returned) if self.returned else known(None)

    def _block(self, statements: list[ast.stmt]) -> None:
        for s in statements:
            step()
            self._statement(s)

    def _statement(self, s: ast.stmt) -> None:
        if isinstance(s, ast.Return):
            self.returned.append(self._eval(s.value) if s.value else known(None))
        elif isinstance(s, ast.Expr):
            self._eval(s.value)
        elif isinstance(s, ast.Assign) and len(s.targets) == 1:
            self._assign(s.targets[0], s.value)
        elif isinstance(s, ast.AnnAssign) and s.value is not None:
            self._bind(s.target, self._eval(s.value))
        elif isinstance(s, ast.AugAssign) and isinstance(s.target, ast.Name):
            old = self.env.get(s.target.id, UNKNOWN)
            if not is_plain(old):
                raise MayChange  # a list would be changed itself
            self.env[s.target.id] = inert(old, self._eval(s.value))
        elif isinstance(s, ast.If):
            self.ask.truth(self._eval(s.test), self.depth)
            self._branches(s.body, s.orelse)
        elif isinstance(s, ast.For):
            self._for(s, items_of(self._eval(s.iter)))
        elif isinstance(s, ast.While):
            self._while(s)
        elif isinstance(s, ast.Break | ast.Continue):
            step(1 + (len(self.env) >> 4))
            self.jumps.append(dict(self.env))
        elif isinstance(s, ast.Try):
            self._try(s)
        elif isinstance(s, ast.Assert):
            self.ask.truth(self._eval(s.test), self.depth)
            if s.msg is not None:
                inert(self._eval(s.msg))
        elif isinstance(s, ast.Raise) and (s.cause is None or _is_none(s.cause)):
            if s.exc is not None:
                self._raise(s.exc)
        elif not isinstance(s, ast.Pass):
            raise MayChange

    def _raise(self, raised: ast.expr) -> None:
        """Of an exception of Python's own."""
        args = raised.args if isinstance(raised, ast.Call) and not raised.keywords else []
        kind = self._eval(raised.func if isinstance(raised, ast.Call) else raised).obj
        if (
            type(kind) is not type
            or not issubclass(kind, Exception)
            or kind.__module__ != "builtins"
        ):
            raise MayChange
        for a in args:
            inert(self._eval(a))

    def _for(self, s: ast.For, items: list[Value]) -> None:
        outer = self.jumps
        for _ in self._rounds():
            for item in items:
                step(1 + (len(self.env) >> 4))
                before, self.jumps = dict(self.env), []
                self._bind(s.target, item)
                self._block(s.body)
                self._join([before, self.env, *self.jumps])  # those that leave the loop too
        self.jumps = outer
        self._branches(s.orelse, [])

    def _while(self, s: ast.While) -> None:
        outer = self.jumps
        for _ in self._rounds():
            self.jumps = []
            self.ask.truth(self._eval(s.test), self.depth)
            self._branches(s.body, [])
            self._join([self.env, *self.jumps])
        self.jumps = outer
        self._branches(s.orelse, [])

    def _try(self, s: ast.Try) -> None:
        """Handlers may run from anywhere in the body on."""
        start = dict(self.env)
        self._block(s.body)
        self._block(s.orelse)
        ends = [self.env]
        raised = start | dict.fromkeys(_assigned(s.body), UNKNOWN)
        for handler in s.handlers:
            self.env = dict(raised)
            if handler.type is not None:
                self._check_caught(self._eval(handler.type))
            if handler.name is not None:
                self.env[handler.name] = UNKNOWN
            self._block(handler.body)
            if handler.name is not None:
                self.env[handler.name] = UNKNOWN
            ends.append(self.env)
        if s.finalbody:
            ends.append(start | dict.fromkeys(_assigned([s]), UNKNOWN))
        self._join(ends)
        self._block(s.finalbody)

    def _check_caught(self, v: Value) -> None:
        kinds = v.obj if type(v.obj) is tuple else (v.obj,)
        if v.kind != "known" or any(type(kind) is not type for kind in kinds):
            raise MayChange

    def _rounds(self) -> Iterator[None]:
        """Until what a turn assigns, which the next one reads, is what was assigned before."""
        for _ in range(8):
            before = dict(self.env)
            step(len(before) >> 4)
            yield
            if len(before) == len(self.env) and all(
                before.get(name) is v or _is_same(before.get(name), v)
                for name, v in self.env.items()
            ):
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
        first, *others = ends
        step(sum(map(len, ends)) >> 4)
        self.env = dict(first)
        for name in {name for end in ends for name in end}:
            mine = first.get(name, UNKNOWN)
            if any(end.get(name, UNKNOWN) is not mine for end in others):
                step()
                self.env[name] = joined([end.get(name, UNKNOWN) for end in ends])

    def _assign(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
            if len(target.elts) == len(value.elts) and not _is_starred([*target.elts, *value.elts]):
                for part, v in zip(target.elts, [self._eval(e) for e in value.elts]):
                    self._bind(part, v)
                return
        self._bind(target, self._eval(value))

    def _bind(self, target: ast.expr, value: Value) -> None:
        if isinstance(target, ast.Name):
            self.env[target.id] = value
        elif isinstance(target, ast.Tuple):
            if (
                value.kind == "known"
                and type(value.obj) in (list, tuple)
                and not _is_starred(target.elts)
            ):
                if len(value.obj) == len(target.elts):
                    for part, o in zip(target.elts, value.obj):
                        self._bind(part, known(o))
                    return
            item = item_of(value)
            for part in target.elts:
                self._bind(part, item)
        elif isinstance(target, ast.Subscript) and self._eval(target.value).kind == "fresh":
            data(self._eval(target.slice), value)
        else:
            raise MayChange

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
        step()
        if how is None:
            raise MayChange
        return how(self, n)

    def _subscript(self, n: ast.Subscript) -> Value:
        base, index = self._eval(n.value), self._eval(n.slice)
        inert(index)
        if base.kind in ("plain", "inert", "fresh"):
            return INERT if base.kind == "fresh" else base
        if base.kind == "known" and type(base.obj) in (list, tuple, dict, str, range):
            if type(base.obj) is dict and not has_inert_keys(base.obj):
                raise MayChange  # keys of the user compare
            if index.kind == "known" and _is_key(index.obj):
                try:
                    return known(base.obj[index.obj])
                except (LookupError, TypeError):
                    return PLAIN  # nothing goes on with it
            if type(base.obj) is dict:
                return value_of(base.obj)
            item = item_of(base)
            if item is UNKNOWN and isinstance(n.slice, ast.Slice):
                return Value("some", [base.obj])
            return item
        if base.kind == "pack":
            return (
                base.obj[index.obj] if index.kind == "known" and is_number(index.obj) else UNKNOWN
            )
        if base.kind == "some" and isinstance(n.slice, ast.Slice):
            return base
        if base.kind == "some" and is_plain(index):
            return item_of(base)
        if base.kind != "known":
            raise MayChange
        if is_array(base.obj) or is_number(base.obj):
            data(index)  # NumPy asks what kind of array it is
            return inert(base)
        tuples = is_a(base.obj, tuple) and in_class(type(base.obj), "__getitem__") is in_class(
            tuple, "__getitem__"
        )
        if tuples and type(index.obj) is int and is_inert(base.obj):
            return known(tuple.__getitem__(base.obj, index.obj))
        return self.ask.operator("__getitem__", [base, index], self.depth)

    def _called(self, n: ast.Call) -> Value:
        name = n.func.id if isinstance(n.func, ast.Name) and n.func.id not in self.env else ""
        if name == "super" and not n.args and not n.keywords:
            return self._super()
        args: list[Value] = []
        for a in n.args:
            if isinstance(a, ast.Starred):
                args += self._spread(self._eval(a.value), tuple, list)
            elif name in _CONSUMERS and isinstance(a, ast.GeneratorExp):
                args.append(self._comprehension(a))
            else:
                args.append(self._eval(a))
        keywords: dict[str, Value] = {}
        for k in n.keywords:
            if k.arg is None:
                given = self._spread(self._eval(k.value), dict)
            elif (
                k.arg == "key"
                and name in ("sorted", "min", "max")
                and isinstance(k.value, ast.Lambda)
            ):
                given = {"key": Value("lambda", (self, k.value))}
            else:
                given = {k.arg: self._eval(k.value)}
            if given.keys() & keywords.keys():
                raise MayChange
            keywords |= given
        if not isinstance(n.func, ast.Attribute):
            return self.ask.call(self._eval(n.func), args, keywords, self.depth)
        base = self._eval(n.func.value)
        if are_data(base):
            base = INERT
        if base.kind == "fresh" and n.func.attr in FILLING_METHODS and not keywords:
            data(*args)
            return INERT
        if base.kind in ("plain", "inert", "fresh") and n.func.attr in LOOKING_METHODS:
            if not all(map(is_plain, [*args, *keywords.values()])) or "out" in keywords:
                raise MayChange
            return INERT if base.kind == "fresh" else base
        return self.ask.call(
            self.ask.member(base, n.func.attr, self.depth), args, keywords, self.depth
        )

    def _spread(self, v: Value, *kinds: type) -> Any:
        """The values of *v and **v."""
        if v.kind not in ("pack", "known") or type(v.obj) not in kinds:
            raise MayChange
        step(len(v.obj))
        if v.kind == "pack":
            return v.obj
        if type(v.obj) is dict:
            if any(type(k) is not str for k in v.obj):
                raise MayChange
            return {k: known(x) for k, x in v.obj.items()}
        return [known(x) for x in v.obj]

    def _super(self) -> Value:
        code = self.function.__code__
        cells = dict(zip(code.co_freevars, self.function.__closure__ or ()))
        if self._name("super").obj is not super or not code.co_argcount or "__class__" not in cells:
            raise MayChange
        first = self.env.get(code.co_varnames[0], UNKNOWN)
        kind = cells["__class__"].cell_contents
        if first.kind == "some":
            return Value("super", (kind, first))
        if first.kind != "known":
            raise MayChange
        return self.ask.super(kind, first.obj)

    def lambda_result(self, n: ast.Lambda, args: list[Value], keywords: dict[str, Value]) -> Value:
        """Of one that is called where it is written."""
        params = n.args
        if keywords or params.vararg or params.kwarg or params.kwonlyargs or params.defaults:
            raise MayChange
        names = [p.arg for p in (*params.posonlyargs, *params.args)]
        if len(names) != len(args):
            raise MayChange
        before = self.env
        self.env = before | dict(zip(names, args))
        result = self._eval(n.body)
        self.env = before
        return result

    def _display(self, n: ast.List | ast.Tuple | ast.Set) -> Value:
        items = [self._eval(e) for e in n.elts]
        if isinstance(n, ast.Set):
            inert(*items)  # they are hashed
        if isinstance(n, ast.Tuple) and all(v.kind == "known" for v in items):
            return known(tuple(v.obj for v in items))
        if isinstance(n, ast.Tuple):
            return contained(items)
        return UNKNOWN if contained(items) is UNKNOWN else FRESH

    def _table(self, n: ast.Dict) -> Value:
        if not all(n.keys):
            raise MayChange
        inert(*(self._eval(k) for k in n.keys if k))  # they are hashed
        items = [self._eval(e) for e in n.values]
        return UNKNOWN if contained(items) is UNKNOWN else FRESH

    def _comprehension(self, n: ast.ListComp | ast.SetComp | ast.GeneratorExp) -> Value:
        before, items = self.env, []
        for self.env in self._turns(dict(before), n.generators):
            items.append(self._eval(n.elt))
        self.env = before
        if isinstance(n, ast.SetComp):
            inert(*items)
        if isinstance(n, ast.ListComp):
            return UNKNOWN if contained(items) is UNKNOWN else FRESH
        return contained(items)

    def _table_comprehension(self, n: ast.DictComp) -> Value:
        before, items = self.env, []
        for self.env in self._turns(dict(before), n.generators):
            inert(self._eval(n.key))  # it is hashed
            items.append(self._eval(n.value))
        self.env = before
        return UNKNOWN if items and contained(items) is UNKNOWN else FRESH

    def _turns(self, env: _Env, generators: list[ast.comprehension]) -> Iterator[_Env]:
        if not generators:
            yield env
            return
        self.env = env
        for item in items_of(self._eval(generators[0].iter)):
            self.env = dict(env)
            self._bind(generators[0].target, item)
            for test in generators[0].ifs:
                inert(self._eval(test))
            yield from self._turns(self.env, generators[1:])

    def _condition(self, n: ast.IfExp) -> Value:
        self.ask.truth(self._eval(n.test), self.depth)
        return joined([self._eval(n.body), self._eval(n.orelse)])

    def _text(self, n: ast.JoinedStr) -> Value:
        for part in n.values:
            if isinstance(part, ast.FormattedValue):
                how = {ord("r"): "repr", ord("a"): "ascii", ord("s"): "str"}.get(
                    part.conversion, "format"
                )
                spec = part.format_spec
                given = self._text(spec) if isinstance(spec, ast.JoinedStr) else known("")
                self.ask.text_of(self._eval(part.value), how, self.depth, given)
        if len(n.values) == 1 and isinstance(n.values[0], ast.Constant):
            return known(n.values[0].value)
        return PLAIN

    def _binary(self, n: ast.BinOp) -> Value:
        left, right = self._eval(n.left), self._eval(n.right)
        return self.ask.operator(f"__{_OPERATOR_NAMES[type(n.op)]}__", [left, right], self.depth)

    def _bool(self, n: ast.BoolOp) -> Value:
        values = [self._eval(e) for e in n.values]
        for v in values[:-1]:
            self.ask.truth(v, self.depth)
        return joined(values)

    def _unary(self, n: ast.UnaryOp) -> Value:
        if isinstance(n.op, ast.Not):
            return self.ask.truth(self._eval(n.operand), self.depth)
        return self.ask.operator(
            f"__{_OPERATOR_NAMES[type(n.op)]}__", [self._eval(n.operand)], self.depth
        )

    def _compare(self, n: ast.Compare) -> Value:
        values = [self._eval(e) for e in (n.left, *n.comparators)]
        results = []
        for op, left, right in zip(n.ops, values, values[1:]):
            if isinstance(op, ast.In | ast.NotIn):
                self.ask.operator("__contains__", [right, left], self.depth)
            elif not isinstance(op, ast.Is | ast.IsNot):
                results.append(
                    self.ask.operator(f"__{_OPERATOR_NAMES[type(op)]}__", [left, right], self.depth)
                )
        for v in results if len(n.ops) > 1 else ():
            self.ask.truth(v, self.depth)
        return joined(results) if results else PLAIN


_OPERATOR_NAMES: dict[type[ast.AST], str] = {
    ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "truediv", ast.FloorDiv: "floordiv",
    ast.Mod: "mod", ast.Pow: "pow", ast.MatMult: "matmul", ast.LShift: "lshift", ast.RShift: "rshift",
    ast.BitAnd: "and", ast.BitOr: "or", ast.BitXor: "xor", ast.USub: "neg", ast.UAdd: "pos",
    ast.Invert: "invert", ast.Eq: "eq", ast.NotEq: "ne", ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt",
    ast.GtE: "ge",
}  # fmt: skip
_EXPRESSIONS: dict[type[ast.expr], Callable[[Walk, Any], Value]] = {
    ast.Constant: lambda w, n: known(n.value),
    ast.Name: lambda w, n: w._name(n.id),
    ast.Attribute: lambda w, n: w.ask.member(w._eval(n.value), n.attr, w.depth),
    ast.Subscript: Walk._subscript,
    ast.Slice: lambda w, n: inert(*(w._eval(e) for e in (n.lower, n.upper, n.step) if e)),
    ast.BinOp: Walk._binary,
    ast.UnaryOp: Walk._unary,
    ast.BoolOp: Walk._bool,
    ast.Compare: Walk._compare,
    ast.IfExp: Walk._condition,
    ast.Call: Walk._called,
    ast.List: Walk._display,
    ast.Tuple: Walk._display,
    ast.Set: Walk._display,
    ast.Dict: Walk._table,
    ast.JoinedStr: Walk._text,
    ast.ListComp: Walk._comprehension,
    ast.SetComp: Walk._comprehension,
    ast.DictComp: Walk._table_comprehension,
}
