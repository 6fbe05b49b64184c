"""Whether code of the user only looks: whether to ask it more often, or earlier, changes nothing.

Asked where Python runs such code for a kernel: facts say what it gave, not how often nor when it was
asked, so that what may change something, an iterator or a counter, must be asked by its kernel's
body alone. What is not known to look only may change something: the text of a function is walked with
the objects that its names mean, and everything that could run other code (hooks, iterators,
callbacks) is walked too or refused, as is what writes.
"""

from __future__ import annotations

import enum
import functools
import operator
import os
import types
from collections.abc import Sequence
from typing import Any

from quadrants.lang._inspect.known_values import (
    FRESH,
    INERT,
    NUMBER,
    PLAIN,
    UNKNOWN,
    MayChange,
    TooLong,
    Value,
    any_of,
    begin,
    contained,
    data,
    forget_answers,
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
)
from quadrants.lang._inspect.looking import (
    LOOKING_FUNCTIONS,
    LOOKING_METHODS,
    is_librarys,
    is_numpys,
    only_keeps,
)
from quadrants.lang._inspect.static_members import (
    TUPLE_GETTER,
    dict_of,
    find_static,
    holds_no_code,
    in_class,
    is_heap,
    module_of,
    mro_of,
    name_of,
)
from quadrants.lang._inspect.walk import Answers, Walk

_OPERATORS = frozenset(
    "abs add and_ contains eq floordiv ge getitem gt index inv invert is_ is_not le lshift lt mod mul ne neg "
    "not_ or_ pos pow rshift sub truediv truth xor matmul concat".split()
)
_BY_METHOD = {"truth": "__bool__", "not_": "__bool__", "inv": "__invert__", "concat": "__add__"}
_MOST_STEPS = 2_000


_GOES_OVER = frozenset("zip enumerate reversed sorted list tuple set frozenset".split())
# Of one question: what calls gave, by function and operands; and the first function that was walked.
_calls: dict[Any, tuple[Any, Value]] = {}
_first: list[types.CodeType] = []
WAYS = (False, True)
_too_long: set[types.CodeType] = set()  # which took more steps than a question may


def may_change(callee: Any, operands: Sequence[Any], names: Sequence[str] | None = None) -> bool:
    """Whether calling this with these operands may run code that changes more than its own variables.

    `names`: those of the last operands, which are passed by keyword.
    """
    values = [known(o) for o in operands]
    first = len(values) - len(names or ())
    for together[0] in WAYS:  # many objects one by one, then those of a class at once
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
    if callee.kind == "lambda":
        walk, tree = callee.obj
        return walk.lambda_result(tree, args, keywords)
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
        return data(*(v for v in everything if v.obj is not os.environ))
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
        result = Walk(_ANSWERS, function, args, keywords, depth).result()
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
    found = data(*args)
    return NUMBER if found is PLAIN else found


_DATA = (list, tuple, range, slice)


def _refuse_outputs(operands: list[Value], first: int) -> None:
    """Raises for an array where NumPy's functions take what they are to write to."""
    for v in operands[first:]:
        if v.kind == "inert" or (
            v.kind == "known" and module_of(type(v.obj)) == "numpy" and not is_number(v.obj)
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
    return v.kind in ("inert", "fresh") or v is NUMBER


def _may_be_numpys(v: Value) -> bool:
    """Whether comparing it may give more than a bool."""
    return (
        v is NUMBER
        or v.kind != "plain"
        and (v.kind != "known" or module_of(type(v.obj)) == "numpy")
    )


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
        if args[0].kind in ("known", "some"):
            return known(type(args[0].obj if args[0].kind == "known" else args[0].obj[0]))
        return inert(args[0], INERT)
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
    if name == "len" and len(args) == 1 and args[0].kind == "pack":
        return PLAIN
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
    if v.kind != "pack":
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
    if name_of(owner) not in _PLAINLY_FOUND.get(home, ()) and (
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
    if base.kind == "super":
        this, objects = base.obj
        found = _behind(mro_of(type(objects.obj[0])), this, name)
        if type(found) is property:
            return _call(known(found.fget), [objects], {}, depth + 1)
        if type(found) is types.FunctionType:
            return Value("bound", (found, objects))
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
        if not any(name in dict_of(b) for b in mro_of(kind) if module_of(b) != "enum"):
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
        if fallback is None and not issubclass(kind, types.ModuleType):
            return otherwise if optional else PLAIN  # nothing goes on with it
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
    objects, values = base.obj, []
    kind = type(objects[0])
    if issubclass(kind, types.ModuleType) or _lookup_of(kind):
        raise MayChange
    if is_a(objects[0], enum.Enum) and name in ("value", "name"):
        if not any(name in dict_of(b) for b in mro_of(kind) if module_of(b) != "enum"):
            step(len(objects) >> 5)
            values = [o._value_ if name == "value" else o._name_ for o in objects]
            return joined(any_of(values))
    of_class = in_class(kind, name, _MISSING)
    fallback = in_class(kind, "__getattr__", None)
    if type(of_class) is property:
        found = [_call(known(of_class.fget), [base], {}, depth + 1)]
        if fallback is not None:
            found.append(_call(known(fallback), [base, known(name)], {}, depth + 1))
        return joined(found)
    step(len(objects) >> 5)
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
    if type(kind) is not type or kind not in mro_of(type(o)):
        raise MayChange  # it asks the object for its class
    return known(super(kind, o))


def _behind(mro: tuple[type, ...], this: type, name: str) -> Any:
    """What classes behind this one have under a name."""
    bases = mro[mro.index(this) + 1 :]
    return next((dict_of(base)[name] for base in bases if name in dict_of(base)), UNKNOWN)


def _inherited(o: Any, name: str, depth: int) -> Value:
    """A member of super()."""
    owner, this, kind = (
        in_class(super, x).__get__(o) for x in ("__self__", "__thisclass__", "__self_class__")
    )
    found = _behind(mro_of(kind), this, name)
    if type(found) is property:
        return _call(known(found.fget), [known(owner)], {}, depth + 1)
    if type(found) is staticmethod:
        return known(found.__func__)
    if type(found) is classmethod and type(found.__func__) is types.FunctionType:
        return known(getattr(o, name))
    if found is UNKNOWN or (
        type(found) is not types.FunctionType and in_class(type(found), "__get__", None) is not None
    ):
        raise MayChange
    return known(getattr(o, name))


_ANSWERS = Answers(_call, _member, _operator, _truth, _text_of, _super)
