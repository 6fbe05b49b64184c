"""Whether code of the user only looks: whether to ask it more often, or earlier, changes nothing.

Asked where Python runs such code for a kernel: facts say what it gave, not how often nor when it was
asked, so that what may change something, an iterator or a counter, must be asked by its kernel's
body alone. What is not known to look only may change something: the text of a function is walked with
the objects that its names mean, and everything that could run other code (hooks, iterators,
callbacks) is walked too or refused, as is what writes.
"""

from __future__ import annotations

import ast
import builtins
import enum
import functools
import operator
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from quadrants.lang._inspect.function_text import tree_of
from quadrants.lang._inspect.known_values import (
    FRESH,
    INERT,
    PLAIN,
    UNKNOWN,
    MayChange,
    TooLong,
    Value,
    any_of,
    are_data,
    begin,
    contained,
    data,
    forget_answers,
    has_inert_keys,
    holds_numpy,
    inert,
    is_a,
    is_array,
    is_data,
    is_inert,
    is_number,
    is_plain,
    item_of,
    items_of,
    joined,
    known,
    numpy_calls_back,
    step,
    together,
    value_of,
)
from quadrants.lang._inspect.looking import (
    FILLING_METHODS,
    LOOKING_FUNCTIONS,
    LOOKING_METHODS,
    is_librarys,
    is_numpys,
    only_keeps,
)
from quadrants.lang._inspect.static_members import (
    TUPLE_GETTER,
    bound,
    find_static,
    holds_no_code,
    in_class,
    is_heap,
    module_of,
)

_OPERATORS = frozenset(
    "abs add and_ contains eq floordiv ge getitem gt index inv invert is_ is_not le lshift lt mod mul ne neg "
    "not_ or_ pos pow rshift sub truediv truth xor matmul concat".split()
)
_BY_METHOD = {"truth": "__bool__", "not_": "__bool__", "inv": "__invert__", "concat": "__add__"}
_MOST_STEPS = 2_000
_Env = dict[str, Value]


_GOES_OVER = frozenset("zip enumerate reversed sorted list tuple set frozenset".split())
_CONSUMERS = frozenset("sum any all min max list tuple set frozenset sorted".split())
# Of one question: what calls gave, by function and operands; and the first function that was walked.
_calls: dict[Any, tuple[Any, Value]] = {}
_first: list[types.CodeType] = []
_too_long: set[types.CodeType] = set()  # which took more steps than a question may


def may_change(callee: Any, operands: Sequence[Any], names: Sequence[str] | None = None) -> bool:
    """Whether calling this with these operands may run code that changes more than its own variables.

    `names`: those of the last operands, which are passed by keyword.
    """
    values = [known(o) for o in operands]
    first = len(values) - len(names or ())
    for together[0] in (False, True):  # many objects one by one, then those of a class at once
        begin(_MOST_STEPS)
        try:
            _call(known(callee), values[:first], dict(zip(names or (), values[first:])), 0)
            return False
        except TooLong:
            if together[0]:
                _too_long.update(_first[:1])
        except Exception:  # also of objects of the user that cannot be looked into
            return True
        finally:
            forget_answers()
            _calls.clear()
            _first.clear()
    return True


# --- calls ----------------------------------------------------------------------------------------


def _call(callee: Value, args: list[Value], keywords: dict[str, Value], depth: int) -> Value:
    """What a call gives; raises if it may change something."""
    step()
    if callee.kind == "bound":
        function, owner = callee.obj
        return _call(known(function), [owner, *args], keywords, depth)
    if callee.kind != "known" or depth > 8:
        raise MayChange
    function, everything = callee.obj, [*args, *keywords.values()]
    kind = type(function)
    if kind is types.MethodType:
        return _call(known(function.__func__), [known(function.__self__), *args], keywords, depth)
    if is_numpys(function):
        if kind.__name__ == "ufunc" and len(args) > function.nin:
            raise MayChange
        return _library(function.__name__, args, keywords)
    if is_librarys(function):
        if any(callable(v.obj) and not is_a(v.obj, type) for v in everything):
            raise MayChange
        return data(*everything)
    if kind is types.FunctionType:
        return _walked(function, args, keywords, depth)
    if kind is type:
        if function.__module__ == "builtins" and function.__name__ in LOOKING_FUNCTIONS:
            return _builtin(function.__name__, args, keywords, depth)
        if not only_keeps(function) or (
            issubclass(function, int | float | str) and not all(map(is_plain, everything))
        ):
            raise MayChange
        made = contained(everything)
        return made if holds_no_code(function) else UNKNOWN
    if kind is functools.partial:
        first, named = map(known, function.args), function.keywords.items()
        return _call(
            known(function.func),
            [*first, *args],
            {k: known(v) for k, v in named} | keywords,
            depth + 1,
        )
    if kind is operator.itemgetter:
        if any(in_class(type(v.obj), "__missing__") is not None for v in args):
            raise MayChange  # it may make what it lacks
        return inert(*everything)
    if kind in (types.BuiltinFunctionType, types.MethodWrapperType):
        name, owner = function.__name__, function.__self__
        if owner is None or type(owner) is types.ModuleType:
            module = str(function.__module__ or "")
            if module == "builtins" and name in LOOKING_FUNCTIONS:
                return _builtin(name, args, keywords, depth)
            if name == "member_origin":  # our own question about a class
                return PLAIN
            if module in ("math", "cmath"):
                data(*everything)
                return PLAIN
            if module == "_operator" and name in _OPERATORS and not keywords:
                return _operator(_BY_METHOD.get(name, f"__{name.strip('_')}__"), args, depth)
            raise MayChange
        return _method_of_python(name, owner, args, keywords)
    method = in_class(kind, "__call__", None)
    if type(method) is types.FunctionType:
        return _call(known(method), [callee, *args], keywords, depth + 1)
    raise MayChange


def _method_of_python(
    name: str, owner: Any, args: list[Value], keywords: dict[str, Value]
) -> Value:
    inert(known(owner))
    if name not in LOOKING_METHODS and type(owner) not in (str, int, float):
        raise MayChange
    _refuse_outputs(args, 0 if is_array(owner) and name != "dot" else 1)
    if not all(map(is_plain, keywords.values())):
        raise MayChange
    if type(owner) is str and name != "join" and not all(map(is_plain, args)):
        raise MayChange  # of which a format may read members
    if type(owner) in (list, tuple, dict) and name in ("count", "index", "get"):
        inert(*args)  # they are compared
    else:
        data(*args)
    if type(owner) is dict and not args:
        if name in ("keys", "values", "items"):
            return known(list(getattr(owner, name)()))
    if name in ("count", "index"):
        return PLAIN
    found = inert(known(owner), *args)
    return (
        FRESH if name == "copy" and type(owner) in (list, dict, set) and found is INERT else found
    )


def _walked(
    function: types.FunctionType, args: list[Value], keywords: dict[str, Value], depth: int
) -> Value:
    """What a function of the user gives, which is found once for the same operands."""
    if not _first:
        _first.append(function.__code__)
        if function.__code__ in _too_long:
            raise MayChange
    key = (
        id(function),
        *((v.kind, id(v.obj)) for v in args),
        *((n, v.kind, id(v.obj)) for n, v in keywords.items()),
    )
    if key not in _calls:
        result = _Walk(function, args, keywords, depth).result()
        _calls[key] = (function, args, keywords), result  # whose ids stay theirs
    return _calls[key][1]


def _kept(v: Value) -> Value:
    """What outlives the call: a list could be changed by who gets it."""
    if not is_plain(v) and v.kind != "known":
        raise MayChange
    return v


def _library(name: str, args: list[Value], keywords: dict[str, Value]) -> Value:
    if numpy_calls_back():
        raise MayChange
    if name != "where":
        _refuse_outputs(args, 2)
    for key, v in keywords.items():
        if key not in ("axis", "dtype", "keepdims", "decimals", "ord") or contained([v]) is UNKNOWN:
            raise MayChange
    for v in args:
        if v.kind == "known" and not (
            is_number(v.obj)
            or is_array(v.obj)
            or type(v.obj) in _DATA
            or (is_a(v.obj, type) and not is_heap(v.obj))
        ):
            raise MayChange  # it may have a method of the function's name
    return data(*args)


_DATA = (list, tuple, range, slice)


def _refuse_outputs(operands: list[Value], first: int) -> None:
    """Raises for an array where NumPy's functions take what they are to write to."""
    for v in operands[first:]:
        if v.kind == "inert" or (
            v.kind == "known" and type(v.obj).__module__ == "numpy" and not is_number(v.obj)
        ):
            raise MayChange


_SIZED = (list, tuple, dict, set, frozenset, str, bytes, bytearray, range)
_NUMBERS = (int, float, complex, bool, object)
_COMPARISONS = ("__lt__", "__le__", "__eq__", "__ne__", "__gt__", "__ge__")
_ELSE_ASK_MORE = ("__contains__", "__int__", "__float__")  # Python goes on with other methods
_MIRRORED = {"__lt__": "__gt__", "__gt__": "__lt__", "__le__": "__ge__", "__ge__": "__le__"}
_ANSWERS_PLAINLY = frozenset(
    "__len__ __bool__ __int__ __float__ __index__ __contains__ __str__ __repr__".split()
)


def _operator(name: str, operands: list[Value], depth: int) -> Value:
    """What an operator or `len` and its like give, by the methods of the user that Python may call."""
    first = operands[0] if operands else PLAIN
    if first.kind == "known" and is_a(first.obj, type) and name == "__getitem__":
        if type(first.obj) is not type:
            raise MayChange  # its own class may have items, or find other members
        return _method(first, "__class_getitem__", operands, depth)
    if len(operands) > 1 and any(map(_asks_for_members, operands)):
        for v in operands:
            if not _asks_for_members(v) or v.kind == "known":
                data(v)
    mirrored = _MIRRORED.get(name, name if name in ("__eq__", "__ne__") else f"__r{name[2:]}")
    names = [name, mirrored]
    results = []
    for v, method in zip(operands[:2], names):
        fills = name == "__getitem__" and is_a(v.obj, dict) and _may_fill(v.obj, operands[1])
        if v.kind == "known" and (fills or not is_inert(v.obj)):
            results.append(_method(v, method, operands if v is first else operands[::-1], depth))
    inert(*(v for v in operands if v.kind != "known" or is_inert(v.obj)), *operands[2:])
    if name in ("__contains__", "__getitem__", "__round__"):
        inert(*operands[1:])
    if name == "__mod__" and not _is_known_number(first):
        _check_format(operands[1])
    if not results:
        found = inert(*operands)
        plainly = name in _COMPARISONS and not any(map(_may_be_numpys, operands))
        return PLAIN if plainly else found
    if name not in ("__getitem__", "__contains__") and not all(
        _is_known_number(v) or (v.kind == "known" and not is_inert(v.obj)) for v in operands
    ):
        raise MayChange  # texts and arrays ask for more than operators
    if name in _ANSWERS_PLAINLY:
        inert(*results)
        return PLAIN
    return joined([*results, PLAIN]) if len(operands) > 1 and len(results) > 1 else results[0]


def _asks_for_members(v: Value) -> bool:
    """Whether it may be of NumPy, or hold such, which asks the other operand what kind of array it is."""
    if v.kind == "known":
        return holds_numpy(v.obj)
    return v.kind in ("inert", "fresh")


def _may_be_numpys(v: Value) -> bool:
    """Whether comparing it may give more than a bool."""
    return v.kind != "plain" and (v.kind != "known" or type(v.obj).__module__ == "numpy")


def _is_known_number(v: Value) -> bool:
    return v.kind == "known" and is_number(v.obj) and not is_a(v.obj, str, bytes)


def _check_format(v: Value) -> None:
    """Of what a text with % may be given: numbers, texts and tuples of them."""
    items = v.obj if type(v.obj) is tuple else ()
    if not is_plain(v) and not (items and all(map(is_number, items))):
        raise MayChange


def _may_fill(o: dict[Any, Any], key: Value) -> bool:
    """Whether a dict that makes what it lacks may do so."""
    there = in_class(type(o), "__getitem__") is in_class(dict, "__getitem__") and is_inert(o)
    known_key = key.kind == "known" and is_number(key.obj)
    return in_class(type(o), "__missing__") is not None and not (
        there and known_key and dict.__contains__(o, key.obj)
    )


def _method(v: Value, name: str, operands: list[Value], depth: int) -> Value:
    """What the class of an object has for an operator: a method in Python, or Python's own for all objects."""
    o = v.obj
    kind = o if name == "__class_getitem__" else type(o)
    found = in_class(kind, name, None)
    if name == "__eq__" and found is in_class(object, name):
        return PLAIN  # by identity
    if name == "__bool__" and found is None:
        return _method(v, "__len__", operands, depth)
    if name == "__ne__" and found is in_class(object, name):
        return _method(v, "__eq__", operands, depth)
    if name == "__getitem__" and is_a(o, dict) and in_class(kind, "__missing__") is not None:
        if type(found) is not types.FunctionType:
            found = in_class(kind, "__missing__")
    if type(found) is classmethod:
        found = found.__func__
    if found is None and name in _ELSE_ASK_MORE:
        raise MayChange
    native = type(found) is types.WrapperDescriptorType
    if found is None or (
        native and found.__objclass__ in (_SIZED if name == "__len__" else _NUMBERS)
    ):
        return PLAIN  # what numbers do, or the other operand answers
    if type(found) is not types.FunctionType:
        raise MayChange
    return _call(known(found), operands, {}, depth + 1)


def _builtin(name: str, args: list[Value], keywords: dict[str, Value], depth: int) -> Value:
    key = keywords.pop("key", None) if name in ("sorted", "min", "max") else None
    if key is not None:
        for item in items_of(args[0]) if len(args) == 1 else args:
            inert(_call(key, [item], {}, depth + 1))
    if not all(map(is_plain, keywords.values())):
        raise MayChange
    if name in ("getattr", "hasattr"):
        if keywords or not 2 <= len(args) <= 3 or type(args[1].obj) is not str:
            raise MayChange
        optional = name == "hasattr" or len(args) == 3
        otherwise = args[2] if len(args) == 3 else PLAIN
        found = _member(args[0], args[1].obj, depth, otherwise, optional)
        return PLAIN if name == "hasattr" else found
    if name in ("isinstance", "issubclass"):
        return _asked_for_class(name, args, depth)
    if name == "type" and len(args) == 1:
        return known(type(args[0].obj)) if args[0].kind == "known" else INERT
    if name == "bool" and len(args) == 1:
        return _truth(args[0], depth)
    if name in ("type", "callable"):
        raise MayChange
    if name == "super":
        if len(args) != 2 or keywords or any(v.kind != "known" for v in args):
            raise MayChange
        return _super(args[0].obj, args[1].obj)
    if name in _TEXTS and args:
        inert(*args[1:])
        return _text_of(args[0], name, depth, args[1] if len(args) > 1 else known(""))
    if any(v.kind == "known" and callable(v.obj) and not is_a(v.obj, type) for v in args):
        raise MayChange
    if name == "dict" and any(
        v.kind == "known" and type(v.obj) not in (dict, *_DATA) for v in args
    ):
        raise MayChange  # it may have keys()
    if name in ("list", "tuple", "sorted", "reversed") and len(args) == 1:
        if args[0].kind == "some" and name != "reversed" and key is not None:
            return args[0]
        if (
            args[0].kind == "known"
            and type(args[0].obj) in (list, tuple)
            and not is_data(args[0].obj)
        ):
            if name != "sorted" or key is not None:
                return Value("some", [args[0].obj])
    if (
        name == "len"
        and len(args) == 1
        and args[0].kind == "some"
        and type(args[0].obj[0]) in (list, tuple)
    ):
        return PLAIN
    if name in _GOES_OVER and args and all(v.kind != "unknown" for v in args):
        found = joined([item_of(v) for v in args])
        if name in ("set", "frozenset") or (name == "sorted" and key is None):
            inert(found)  # they are compared or hashed
        return found
    by_method = name in ("len", "int", "float", "round", "abs", "pow")
    result = _operator(f"__{name}__", args, depth) if by_method else inert(*args)
    return PLAIN if name in ("len", "int", "float", "any", "all") else result


def _asked_for_class(name: str, args: list[Value], depth: int) -> Value:
    """Of isinstance and issubclass."""
    if len(args) != 2 or args[1].kind != "known":
        raise MayChange
    method = "__instancecheck__" if name == "isinstance" else "__subclasscheck__"
    kinds = args[1].obj if type(args[1].obj) is tuple else (args[1].obj,)
    for kind in kinds:
        if type(kind) is type or type(kind) is enum.EnumMeta:
            continue
        answers = in_class(type(kind), method, None)
        if not is_a(kind, type):
            raise MayChange
        if answers is in_class(type, method):
            continue
        if type(answers) is not types.FunctionType:
            raise MayChange
        inert(_call(known(answers), [known(kind), args[0]], {}, depth + 1))
    first = args[0]
    if name == "issubclass":
        if first.kind != "known" or not is_a(first.obj, type):
            raise MayChange  # it is asked for its bases
        return PLAIN
    if first.kind in ("unknown", "bound"):
        raise MayChange
    if first.kind in ("known", "some"):
        kind = type(first.obj[0] if first.kind == "some" else first.obj)
        if in_class(kind, "__class__", None) is not _CLASS or _lookup_of(kind):
            raise MayChange
    return PLAIN


# By what Python shows an object; what all objects have goes on with the next one.
_TEXTS = {
    "format": ("__format__", "__str__", "__repr__"),
    "str": ("__str__", "__repr__"),
    "repr": ("__repr__",),
    "ascii": ("__repr__",),
}


def _text_of(v: Value, name: str, depth: int, how: Value = PLAIN) -> Value:
    if v.kind != "known" or is_inert(v.obj):
        inert(v)
        return PLAIN
    for method in _TEXTS[name]:
        found = in_class(type(v.obj), method)
        if type(found) is types.FunctionType:
            operands = [v, how] if method == "__format__" else [v]
            inert(_call(known(found), operands, {}, depth + 1))
            return PLAIN
        if found is not in_class(object, method):
            raise MayChange
    return PLAIN


_CLASS = in_class(object, "__class__")


def _truth(v: Value, depth: int) -> Value:
    """Of a test: objects of the user are true, or have a method that says so."""
    if v.kind == "known" and not is_inert(v.obj):
        kind = type(v.obj)
        for name in ("__bool__", "__len__"):
            if in_class(kind, name, None) is not None:
                return _operator(name, [v], depth)
        return PLAIN
    inert(v)
    return PLAIN


# Whose own way to find members is that of all objects: no proxies, nor what goes on with another object.
_PLAINLY_FOUND = {
    "builtins": frozenset(
        "object type module int float complex bool str bytes bytearray list tuple dict set frozenset range slice "
        "NoneType function builtin_function_or_method property memoryview".split()
    ),
    "collections": frozenset("deque defaultdict OrderedDict".split()),
    "types": frozenset({"SimpleNamespace"}),
    "functools": frozenset({"partial"}),
    "datetime": frozenset("date time datetime timedelta timezone".split()),
    "re": frozenset("Pattern Match".split()),
    "array": frozenset({"array"}),
}


def _lookup_of(kind: type) -> types.FunctionType | None:
    """The function of the user that finds members, if there is one."""
    found = in_class(kind, "__getattribute__")
    if type(found) is types.FunctionType:
        return found
    if type(found) is not types.WrapperDescriptorType:
        raise MayChange
    owner = found.__objclass__
    home = module_of(owner)
    if owner.__name__ not in _PLAINLY_FOUND.get(home, ()) and (
        is_heap(owner) or home.partition(".")[0] != "numpy"
    ):
        raise MayChange
    return None


def _member(
    base: Value, name: str, depth: int, otherwise: Value = UNKNOWN, optional: bool = False
) -> Value:
    """What o.name gives, or getattr(o, name, otherwise) where it is optional."""
    step()
    if name.startswith("__") and not name.endswith("__"):
        raise MayChange
    if base.kind == "some":
        return _member_of_any(base, name, depth)
    if base.kind != "known":
        raise MayChange
    o, kind = base.obj, type(base.obj)
    if kind is types.ModuleType:
        if name in vars(o):
            return known(vars(o)[name])
        return _call(known(vars(o).get("__getattr__")), [known(name)], {}, depth + 1)
    if kind is super:
        return _inherited(o, name, depth)
    finds = _lookup_of(kind)
    if is_a(o, enum.Enum) and not finds and name in ("value", "name"):
        if not any(name in vars(b) for b in kind.__mro__ if module_of(b) != "enum"):
            return known(o._value_ if name == "value" else o._name_)
    fallback = in_class(kind, "__getattr__", None)

    def or_else(found: Value) -> Value:
        """What code of the user gives, after whose AttributeError Python goes on."""
        given = [found]
        if fallback is not None:
            given.append(_call(known(fallback), [base, known(name)], {}, depth + 1))
        return joined([*given, otherwise] if optional else given)

    if finds:
        return or_else(_call(known(finds), [base, known(name)], {}, depth + 1))
    of_class = in_class(kind, name, None)
    if type(of_class) is property:
        return or_else(_call(known(of_class.fget), [base], {}, depth + 1))
    if issubclass(kind, type) and kind not in (type, enum.EnumMeta):
        raise MayChange
    found = find_static(o, name, UNKNOWN)
    if found is UNKNOWN:
        if type(fallback) is types.FunctionType:
            given = _call(known(fallback), [base, known(name)], {}, depth + 1)
            return joined([given, otherwise]) if optional else given
        if optional and fallback is None and not issubclass(kind, types.ModuleType):
            return otherwise
        raise MayChange
    if type(found) is functools.cached_property:  # to keep it twice is to keep it once
        return or_else(_kept(_call(known(found.func), [base], {}, depth + 1)))
    if type(found) is classmethod and type(found.__func__) is not types.FunctionType:
        raise MayChange  # a property of the class
    get = in_class(type(found), "__get__", None)
    if get is not None and type(found) not in _OWN and type(found) is not TUPLE_GETTER:
        bound_to = [known(None), base] if issubclass(kind, type) else [base, known(kind)]
        if found is not of_class and not issubclass(kind, type):
            return known(found)  # of the object itself, which is not asked
        return or_else(_call(known(get), [known(found), *bound_to], {}, depth + 1))
    look = type.__getattribute__ if issubclass(kind, type) else object.__getattribute__
    return known(look(o, name))


_OWN = (types.FunctionType, classmethod, staticmethod, types.MethodDescriptorType, types.GetSetDescriptorType,
        types.MemberDescriptorType, types.WrapperDescriptorType, types.ClassMethodDescriptorType)  # fmt: skip
_MISSING = object()


def _member_of_any(base: Value, name: str, depth: int) -> Value:
    """A member of any of many objects of one class."""
    objects = base.obj
    kind = type(objects[0])
    if is_a(objects[0], enum.Enum) or issubclass(kind, types.ModuleType) or _lookup_of(kind):
        raise MayChange
    of_class = in_class(kind, name, _MISSING)
    fallback = in_class(kind, "__getattr__", None)
    if type(of_class) is property:
        found = [_call(known(of_class.fget), [base], {}, depth + 1)]
        if fallback is not None:
            found.append(_call(known(fallback), [base, known(name)], {}, depth + 1))
        return joined(found)
    step(len(objects) >> 4)
    values: list[Any]
    if type(of_class) in (types.MemberDescriptorType, TUPLE_GETTER):
        values = [of_class.__get__(o) for o in objects]
    elif (
        of_class is _MISSING
        or type(of_class) is types.FunctionType
        or in_class(type(of_class), "__get__") is None
    ):
        if type(in_class(kind, "__dict__", None)) is not types.GetSetDescriptorType:
            raise MayChange
        values = [object.__getattribute__(o, "__dict__").get(name, of_class) for o in objects]
    else:
        raise MayChange
    if type(of_class) is types.FunctionType:
        if any(v is not of_class for v in values):
            raise MayChange
        return Value("bound", (of_class, base))
    if any(v is _MISSING for v in values):
        raise MayChange
    return joined(any_of(values))


def _super(kind: Any, o: Any) -> Value:
    if type(kind) is not type or kind not in type(o).__mro__:
        raise MayChange  # it asks the object for its class
    return known(super(kind, o))


def _inherited(o: Any, name: str, depth: int) -> Value:
    """A member of super()."""
    mro = o.__self_class__.__mro__
    bases = mro[mro.index(o.__thisclass__) + 1 :]
    found = next((vars(base)[name] for base in bases if name in vars(base)), UNKNOWN)
    if type(found) is property:
        return _call(known(found.fget), [known(o.__self__)], {}, depth + 1)
    if type(found) is staticmethod:
        return known(found.__func__)
    if type(found) is classmethod and type(found.__func__) is types.FunctionType:
        return known(getattr(o, name))
    if found is UNKNOWN or (
        type(found) is not types.FunctionType and in_class(type(found), "__get__", None) is not None
    ):
        raise MayChange
    return known(getattr(o, name))


# --- iteration and the text of a function ----------------------------------------------------------


def _is_same(a: Value | None, b: Value) -> bool:
    return a is not None and a.kind == b.kind and a.obj is b.obj


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
        self.env: _Env
        self.env, rest, stars = bound(function, args, keywords)
        self.env |= {name: known(value) for name, value in rest.items()}
        self.env |= dict.fromkeys(stars, UNKNOWN)

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
            self._for(s, items_of(self._eval(s.iter)))
        elif isinstance(s, ast.While) and not s.orelse:
            self._while(s)
        elif isinstance(s, ast.Assert):
            _truth(self._eval(s.test), self.depth)
            if s.msg is not None:
                inert(self._eval(s.msg))
        elif isinstance(s, ast.Raise) and s.exc is not None and s.cause is None:
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
        for _ in self._rounds():
            for item in items:
                step(1 + (len(self.env) >> 4))
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

    def _bind(self, target: ast.expr, value: Value) -> None:
        if isinstance(target, ast.Name):
            self.env[target.id] = value
        elif isinstance(target, ast.Tuple):
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
            if index.kind == "known" and is_number(index.obj):
                return known(base.obj[index.obj])
            return value_of(base.obj) if type(base.obj) is dict else item_of(base)
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
        return _operator("__getitem__", [base, index], self.depth)

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
            if are_data(base):
                base = INERT
            if base.kind == "fresh" and n.func.attr in FILLING_METHODS and not keywords:
                data(*args)
                return INERT
            if base.kind in ("plain", "inert", "fresh") and n.func.attr in LOOKING_METHODS:
                if not all(map(is_plain, [*args, *keywords.values()])) or "out" in keywords:
                    raise MayChange
                return INERT if base.kind == "fresh" else base
        return _call(self._eval(n.func), args, keywords, self.depth)

    def _display(self, n: ast.List | ast.Tuple | ast.Set) -> Value:
        items = [self._eval(e) for e in n.elts]
        if isinstance(n, ast.Set):
            inert(*items)  # they are hashed
        if isinstance(n, ast.Tuple) and all(v.kind == "known" for v in items):
            return known(tuple(v.obj for v in items))
        if isinstance(n, ast.Tuple):
            return PLAIN if all(map(is_plain, items)) else contained(items)
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
        return PLAIN if all(map(is_plain, items)) else contained(items)

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
        _truth(self._eval(n.test), self.depth)
        return joined([self._eval(n.body), self._eval(n.orelse)])

    def _text(self, n: ast.JoinedStr) -> Value:
        for part in n.values:
            if isinstance(part, ast.FormattedValue):
                how = {ord("r"): "repr", ord("a"): "ascii", ord("s"): "str"}.get(
                    part.conversion, "format"
                )
                spec = part.format_spec
                given = self._text(spec) if isinstance(spec, ast.JoinedStr) else known("")
                _text_of(self._eval(part.value), how, self.depth, given)
        if len(n.values) == 1 and isinstance(n.values[0], ast.Constant):
            return known(n.values[0].value)
        return PLAIN

    def _binary(self, n: ast.BinOp) -> Value:
        left, right = self._eval(n.left), self._eval(n.right)
        return _operator(f"__{_OPERATOR_NAMES[type(n.op)]}__", [left, right], self.depth)

    def _bool(self, n: ast.BoolOp) -> Value:
        values = [self._eval(e) for e in n.values]
        for v in values[:-1]:
            _truth(v, self.depth)
        return joined(values)

    def _unary(self, n: ast.UnaryOp) -> Value:
        if isinstance(n.op, ast.Not):
            return _truth(self._eval(n.operand), self.depth)
        return _operator(f"__{_OPERATOR_NAMES[type(n.op)]}__", [self._eval(n.operand)], self.depth)

    def _compare(self, n: ast.Compare) -> Value:
        values = [self._eval(e) for e in (n.left, *n.comparators)]
        results = []
        for op, left, right in zip(n.ops, values, values[1:]):
            if isinstance(op, ast.In | ast.NotIn):
                _operator("__contains__", [right, left], self.depth)
            elif not isinstance(op, ast.Is | ast.IsNot):
                results.append(
                    _operator(f"__{_OPERATOR_NAMES[type(op)]}__", [left, right], self.depth)
                )
        for v in results if len(n.ops) > 1 else ():
            _truth(v, self.depth)
        return joined(results) if results else PLAIN


_OPERATOR_NAMES: dict[type[ast.AST], str] = {
    ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "truediv", ast.FloorDiv: "floordiv",
    ast.Mod: "mod", ast.Pow: "pow", ast.MatMult: "matmul", ast.LShift: "lshift", ast.RShift: "rshift",
    ast.BitAnd: "and", ast.BitOr: "or", ast.BitXor: "xor", ast.USub: "neg", ast.UAdd: "pos",
    ast.Invert: "invert", ast.Eq: "eq", ast.NotEq: "ne", ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt",
    ast.GtE: "ge",
}  # fmt: skip
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
