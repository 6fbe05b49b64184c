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


class _MayChange(Exception):
    """Something was met that is not known to look only."""


class _Value(NamedTuple):
    """What is known of a value: the object itself; that it is a number, a text or a tuple of such (plain);
    that operators and iteration run no code of the user (inert); and that it was made here (fresh)."""

    kind: str  # known, plain, inert, fresh, unknown
    obj: Any = None


_PLAIN, _INERT, _FRESH, _UNKNOWN = map(_Value, ("plain", "inert", "fresh", "unknown"))
_Env = dict[str, _Value]


_CONSUMERS = frozenset("sum any all min max list tuple set frozenset sorted".split())
_left = [0]  # steps, of the question that is being looked at


def may_change(callee: Any, operands: Sequence[Any]) -> bool:
    """Whether calling this with these operands may run code that changes more than its own variables."""
    _left[0] = _MOST_STEPS
    try:
        _call(_known(callee), [_known(o) for o in operands], {}, 0)
        return False
    except Exception:  # also of objects of the user that cannot be looked into
        return True


def _known(o: Any) -> _Value:
    return _Value("known", o)


def _is(o: Any, *kinds: type) -> bool:
    """isinstance, which asks the object for its class."""
    return issubclass(type(o), kinds)


def _is_number(o: Any) -> bool:
    kind = type(o)
    if o is None or kind in (int, float, bool, complex, str, bytes):
        return True
    return _is_number_type(kind) and kind.__name__ not in ("void", "object_")


def _is_number_type(kind: type) -> bool:
    return kind.__module__ == "numpy" and any(base.__name__ == "generic" for base in kind.__mro__)


def _is_array(o: Any) -> bool:
    kind = type(o)
    return kind.__module__ == "numpy" and kind.__name__ == "ndarray" and not o.dtype.hasobject


def _is_inert(o: Any, depth: int = 0) -> bool:
    """Whether operators and iteration run no code of the user: constants, containers of them, arrays."""
    kind = type(o)
    if _is_number(o) or kind in (range, types.ModuleType, types.FunctionType):
        return True
    if kind in (tuple, list, set, frozenset, dict):
        items = [*o, *o.values()] if kind is dict else [*o]
        return (
            depth < _DEEPEST
            and len(items) <= _MOST_ITEMS
            and all(_is_inert(x, depth + 1) for x in items)
        )
    if issubclass(kind, enum.Enum):
        return not _has_hooks(kind)
    if issubclass(kind, type):
        return kind is type  # a metaclass may have operators
    return _is_array(o) or (kind.__module__.partition(".")[0] == "quadrants" and not callable(o))


_NO_OPERATORS = frozenset(
    "__init__ __new__ __doc__ __module__ __qualname__ __dict__ __weakref__ __annotations__ __format__ __str__ "
    "__repr__ __dir__ __reduce__ __reduce_ex__ __firstlineno__ __static_attributes__ __annotate_func__ "
    "__annotations_cache__ __set_name__ __deepcopy__ __copy__".split()
)


def _has_hooks(kind: type) -> bool:
    """Whether an enumeration has operators of the user, or what its members are has any."""
    for base in kind.__mro__:
        if base in (object, int, str, float) or base.__module__ == "enum":
            continue
        if not issubclass(base, enum.Enum):
            return True
        if any(name.startswith("__") and name not in _NO_OPERATORS for name in vars(base)):
            return True
    return False


def _shown(*values: _Value) -> None:
    """Raises if to print them may run code of the user."""
    if not all(_is_plain(v) or (v.kind == "known" and _prints(v.obj)) for v in values):
        raise _MayChange


def _prints(o: Any, depth: int = 0) -> bool:
    if (
        type(o) not in (tuple, list, set, frozenset, dict)
        or depth == _DEEPEST
        or len(o) > _MOST_ITEMS
    ):
        return _is_number(o)
    items = [*o, *o.values()] if type(o) is dict else o
    return all(_prints(x, depth + 1) for x in items)


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
    kind = type(function)
    if kind is types.MethodType:
        return _call(_known(function.__func__), [_known(function.__self__), *args], keywords, depth)
    if _is_numpys(function):
        if kind.__name__ == "ufunc" and len(args) > function.nin:
            raise _MayChange
        return _library(function.__name__, args, keywords)
    if kind is types.FunctionType:
        return _Walk(function, args, keywords, depth).result()
    if kind is type:
        if function.__module__ == "builtins" and function.__name__ in _LOOKING_FUNCTIONS:
            return _builtin(function.__name__, args, keywords, depth)
        raise _MayChange
    if kind in (types.BuiltinFunctionType, types.MethodWrapperType):
        name, owner = function.__name__, function.__self__
        if owner is None or type(owner) is types.ModuleType:
            module = str(function.__module__ or "")
            if module == "builtins" and name in _LOOKING_FUNCTIONS:
                return _builtin(name, args, keywords, depth)
            if name == "member_origin":  # our own question about a class
                return _PLAIN
            if module in ("math", "cmath"):
                _shown(*everything)
                return _PLAIN
            if module == "_operator" and name in _OPERATORS and not keywords:
                return _operator(_BY_METHOD.get(name, f"__{name.strip('_')}__"), args, depth)
            raise _MayChange
        _inert(_known(owner))
        if name in _LOOKING_METHODS or type(owner) in (str, int, float):
            _refuse_outputs(args, 0 if _is_array(owner) and name != "dot" else 1)
            if not all(map(_is_plain, keywords.values())):
                raise _MayChange
            if name == "format":
                _shown(*args)
            return _inert(_known(owner), *everything)
        raise _MayChange
    method = inspect.getattr_static(kind, "__call__", None)
    if type(method) is types.FunctionType:
        return _call(_known(method), [callee, *args], keywords, depth + 1)
    raise _MayChange


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
        return _is_number_type(function) and name not in (
            "datetime64",
            "timedelta64",
            "void",
            "object_",
        )
    return kind.__name__ == "ufunc" or name in _LOOKING_NUMPY


def _library(name: str, args: list[_Value], keywords: dict[str, _Value]) -> _Value:
    if name != "where":
        _refuse_outputs(args, 2)
    for key, v in keywords.items():
        if (
            key not in ("axis", "dtype", "keepdims", "decimals", "ord")
            or _contained([v]) is _UNKNOWN
        ):
            raise _MayChange
    for v in args:
        if (
            v.kind == "known"
            and (callable(v.obj) or type(v.obj) is types.ModuleType)
            and not _is(v.obj, type)
        ):
            raise _MayChange
    return _inert(*args)


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
        method = inspect.getattr_static(type(first.obj), name, None)
        if type(method) is types.FunctionType:
            _inert(*operands[1:])  # which might answer in its place
            result = _call(_known(method), operands, {}, depth + 1)
            if name in ("__len__", "__bool__", "__int__", "__float__", "__index__", "__contains__"):
                _shown(result)
            return result
    if first.kind == "known" and _is(first.obj, type):
        raise _MayChange  # it may be subscripted
    return _inert(*operands)


def _builtin(name: str, args: list[_Value], keywords: dict[str, _Value], depth: int) -> _Value:
    if not all(map(_is_plain, keywords.values())):
        raise _MayChange
    if name in ("getattr", "hasattr"):
        if (
            keywords
            or not 2 <= len(args) <= 3
            or args[1].kind != "known"
            or type(args[1].obj) is not str
        ):
            raise _MayChange
        optional = name == "hasattr" or len(args) == 3
        otherwise = args[2] if len(args) == 3 else _PLAIN
        found = _member(args[0], args[1].obj, depth, otherwise, optional)
        return _PLAIN if name == "hasattr" else found
    if name in ("isinstance", "issubclass"):
        kinds = args[1].obj if len(args) == 2 and args[1].kind == "known" else None
        for kind in kinds if type(kinds) is tuple else (kinds,):
            if type(kind) is not type and type(kind) is not enum.EnumMeta:
                raise _MayChange  # a metaclass may answer
        if args[0].kind == "known":
            if inspect.getattr_static(type(args[0].obj), "__class__", None) is not _CLASS:
                raise _MayChange
            _check_lookup(type(args[0].obj))
        return _PLAIN
    if name == "type" and len(args) == 1:
        return _known(type(args[0].obj)) if args[0].kind == "known" else _INERT
    if name == "bool" and len(args) == 1:
        return _truth(args[0], depth)
    if name in ("type", "callable"):
        raise _MayChange
    if name in ("str", "repr", "format", "ascii"):
        _shown(*args)
    if any(v.kind == "known" and callable(v.obj) and not _is(v.obj, type) for v in args):
        raise _MayChange
    by_method = name in ("len", "int", "float", "round")
    result = _operator(f"__{name}__", args, depth) if by_method else _inert(*args)
    return _PLAIN if by_method or name in ("any", "all", "str", "repr") else result


_CLASS = inspect.getattr_static(object, "__class__")


def _truth(v: _Value, depth: int) -> _Value:
    """Of a test: objects of the user are true, or have a method that says so."""
    if v.kind == "known" and not _is_inert(v.obj):
        kind = type(v.obj)
        for name in ("__bool__", "__len__"):
            if inspect.getattr_static(kind, name, None) is not None:
                return _operator(name, [v], depth)
        return _PLAIN
    _inert(v)
    return _PLAIN


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
            raise _MayChange


def _member(
    base: _Value, name: str, depth: int, otherwise: _Value = _UNKNOWN, optional: bool = False
) -> _Value:
    if base.kind != "known" or (name.startswith("__") and not name.endswith("__")):
        raise _MayChange
    o, kind = base.obj, type(base.obj)
    if kind is types.ModuleType:
        if name in vars(o):
            return _known(vars(o)[name])
        raise _MayChange
    if (
        _is(o, enum.Enum)
        and name in ("value", "name")
        and not any(name in vars(b) for b in kind.__mro__ if b.__module__ != "enum")
    ):
        return _known(o._value_ if name == "value" else o._name_)
    _check_lookup(kind)
    if issubclass(kind, type) and kind is not type and not issubclass(kind, enum.EnumMeta):
        raise _MayChange
    of_class = inspect.getattr_static(kind, name, None)
    if type(of_class) is property:
        if of_class.fget is None:
            raise _MayChange
        return _call(_known(of_class.fget), [base], {}, depth + 1)
    found = inspect.getattr_static(o, name, _UNKNOWN)
    fallback = inspect.getattr_static(kind, "__getattr__", None)
    if found is _UNKNOWN:
        if type(fallback) is types.FunctionType:
            return _call(_known(fallback), [base, _known(name)], {}, depth + 1)
        if optional and fallback is None:
            return otherwise
        raise _MayChange
    own = (types.FunctionType, classmethod, staticmethod, types.MethodDescriptorType, types.GetSetDescriptorType,
           types.MemberDescriptorType, types.WrapperDescriptorType, types.ClassMethodDescriptorType)  # fmt: skip
    plain = inspect.getattr_static(type(found), "__get__", None) is None
    if not plain and type(found) not in own and type(found).__name__ != "_tuplegetter":
        raise _MayChange
    look = type.__getattribute__ if issubclass(kind, type) else object.__getattribute__
    return _known(look(o, name))


# --- the text of a function ------------------------------------------------------------------------

_trees: dict[types.CodeType, ast.FunctionDef | ast.Lambda | None] = {}


def _tree_of(function: types.FunctionType) -> ast.FunctionDef | ast.Lambda:
    code = function.__code__
    if code not in _trees:
        _trees[code] = None
        source = textwrap.dedent(inspect.getsource(code))  # of a wrapper its own
        tree = ast.parse(source)
        if not _is_text_of(source, code):
            raise _MayChange  # the file was edited
        if len(tree.body) == 1 and isinstance(tree.body[0], ast.FunctionDef):
            _trees[code] = tree.body[0]
        elif len(found := [n for n in ast.walk(tree) if isinstance(n, ast.Lambda)]) == 1:
            _trees[code] = found[0]
    known = _trees[code]
    if known is None:
        raise _MayChange
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
            _truth(self._eval(s.test), self.depth)
            self._branches(s.body, s.orelse)
        elif isinstance(s, ast.For) and not s.orelse:
            self._for(s, self._items_of(self._eval(s.iter)))
        elif isinstance(s, ast.While) and not s.orelse:
            self._while(s)
        elif isinstance(s, ast.Assert) and s.msg is None:
            _truth(self._eval(s.test), self.depth)
        elif not isinstance(s, ast.Pass):
            raise _MayChange

    def _for(self, s: ast.For, items: list[_Value]) -> None:
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
        raise _MayChange

    def _branches(self, *blocks: list[ast.stmt]) -> None:
        before, ends = self.env, []
        for block in blocks:
            self.env = dict(before)
            self._block(block)
            ends.append(self.env)
        self._join(ends)

    def _join(self, ends: list[_Env]) -> None:
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
        goes = _is(o, list, tuple) and all(
            inspect.getattr_static(type(o), name, None)
            in (getattr(list, name), getattr(tuple, name))
            for name in ("__iter__", "__len__")
        )
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
        _left[0] -= 1
        if how is None or _left[0] < 0:
            raise _MayChange
        return how(self, n)

    def _subscript(self, n: ast.Subscript) -> _Value:
        base, index = self._eval(n.value), self._eval(n.slice)
        _inert(index)
        if base.kind in ("plain", "inert", "fresh"):
            return _INERT if base.kind == "fresh" else base
        if base.kind == "known" and type(base.obj) in (list, tuple, dict, str, range):
            if type(base.obj) is dict and not (_is_plain(index) and all(map(_is_number, base.obj))):
                raise _MayChange  # keys of the user compare
            if index.kind == "known":
                return _known(base.obj[index.obj])
            items = list(base.obj.values()) if type(base.obj) is dict else base.obj
            return self._item_of(_known(items))
        if base.kind != "known" or not (_is_array(base.obj) or _is_number(base.obj)):
            raise _MayChange
        return _inert(base)

    def _called(self, n: ast.Call) -> _Value:
        if any(isinstance(a, ast.Starred) for a in n.args) or any(
            k.arg is None for k in n.keywords
        ):
            raise _MayChange
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
                _inert(*args)
                return _INERT
            if base.kind in ("plain", "inert", "fresh") and n.func.attr in _LOOKING_METHODS:
                _shown(*args, *keywords.values())
                if "out" in keywords:
                    raise _MayChange
                return _INERT if base.kind == "fresh" else base
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
        _truth(self._eval(n.test), self.depth)
        return _joined([self._eval(n.body), self._eval(n.orelse)])

    def _text(self, n: ast.JoinedStr) -> _Value:
        for part in n.values:
            if isinstance(part, ast.FormattedValue):
                _shown(self._eval(part.value))
                if isinstance(part.format_spec, ast.JoinedStr):
                    self._text(part.format_spec)
        return _PLAIN

    def _binary(self, n: ast.BinOp) -> _Value:
        left, right = self._eval(n.left), self._eval(n.right)
        if isinstance(n.op, ast.Mod) and not (left.kind == "known" and _is(left.obj, int, float)):
            _shown(right)  # it may be a format
        return _inert(left, right)

    def _bool(self, n: ast.BoolOp) -> _Value:
        values = [self._eval(e) for e in n.values]
        for v in values[:-1]:
            _truth(v, self.depth)
        return _joined(values)

    def _unary(self, n: ast.UnaryOp) -> _Value:
        if isinstance(n.op, ast.Not):
            return _truth(self._eval(n.operand), self.depth)
        return _inert(self._eval(n.operand))

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
