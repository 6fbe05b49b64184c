"""What is known of a value of the user that code was not run for, and what runs nothing of theirs."""

from __future__ import annotations

import enum
import functools
import sys
import types
from collections.abc import Callable, Iterable
from itertools import chain
from typing import Any, NamedTuple

from quadrants._lib import core
from quadrants.lang._inspect.static_members import (
    dict_of,
    holds_no_code,
    in_class,
    is_heap,
    is_written_text,
    module_of,
    mro_of,
    name_of,
)


class MayChange(Exception):
    """Something was met that is not known to look only."""


class TooLong(MayChange):
    """So much was met that to go on looking would take longer than it is worth."""


_left = [0]  # steps, of the question that is being looked at


def begin(steps: int) -> None:
    _left[0] = steps


def step(count: int = 1) -> None:
    _left[0] -= count
    if _left[0] < 0:
        raise TooLong


class Value(NamedTuple):
    """What is known of a value: the object itself; that it is a number, a text or a tuple of such (plain);
    that operators, iteration and methods run no code of the user (inert); that it was made here (fresh); that it
    is any of a list of objects of one class (some), or a method or super() of such (bound, super); and what it is
    made of, of *args and **kwargs (pack) and of a lambda expression."""

    kind: str  # known, plain, inert, fresh, some, bound, super, pack, lambda, unknown
    obj: Any = None


PLAIN, INERT, FRESH, UNKNOWN = map(Value, ("plain", "inert", "fresh", "unknown"))
NUMBER = Value(
    "plain", "numpy"
)  # maybe one of NumPy's, whose operators ask the other operand for members


def known(o: Any) -> Value:
    return Value("known", o)


def is_a(o: Any, *kinds: type) -> bool:
    """isinstance, which asks the object for its class."""
    return issubclass(type(o), kinds)


_NUMBERS = frozenset((int, float, bool, complex, str, bytes, type(None)))


def is_number(o: Any) -> bool:
    return type(o) in _NUMBERS or _is_number_kind(type(o))


def _is_number_kind(kind: type) -> bool:
    return kind in _NUMBERS or (is_number_type(kind) and name_of(kind) not in ("void", "object_"))


def is_number_type(kind: type) -> bool:
    if is_heap(kind) or module_of(kind) != "numpy":
        return False
    return any(name_of(base) == "generic" for base in mro_of(kind))


def is_array(o: Any) -> bool:
    kind = type(o)
    return (
        not is_heap(kind)
        and name_of(kind) == "ndarray"
        and module_of(kind) == "numpy"
        and not o.dtype.hasobject
    )


# Of containers, while one question is looked at: each is gone through once.
_answers: dict[tuple[int, str], tuple[Any, Any]] = {}


def forget_answers() -> None:
    _answers.clear()


def _remembered(o: Any, what: str, find: Callable[[Any], Any]) -> Any:
    key = id(o), what
    if key not in _answers:
        _answers[key] = o, find(o)
    return _answers[key][1]


def is_inert(o: Any) -> bool:
    """Whether operators and iteration run no code of the user: constants, containers of them, arrays."""
    return _remembered(o, "inert", _is_inert)


def _is_inert(o: Any) -> bool:
    if type(o) in _CONTAINERS and holds_numbers(o):
        return True
    if type(o) is enum.EnumMeta:  # which is gone over as its members
        members = members_of_enum(o)
        if len(members) > FEW and not is_a(members[0], tuple, list, dict):
            if in_class(o, "__dataclass_fields__") is None:
                members = members[:1]
        return _all_familiar(members, 0) and not any(map(core.operators_run_code, members))
    if not _all_familiar([o], 0):
        return False
    if core.operators_run_code(o):
        step(100 if type(o) in _CONTAINERS else 1)
        return False
    return True


_CONTAINERS = (list, tuple, set, frozenset, dict)


def members_of_enum(o: Any) -> list[Any]:
    return list(dict_of(o)["_member_map_"].values())


# Classes of Python's library whose operators only look, also of classes derived from them; and only of
# themselves, as those make objects of their own class.
_LOOKING_CLASSES = {
    "builtins": frozenset(
        "object int float complex bool str bytes bytearray list tuple dict set frozenset range slice type function "
        "method builtin_function_or_method module memoryview NoneType ellipsis NotImplementedType dict_keys "
        "dict_values dict_items property staticmethod classmethod getset_descriptor member_descriptor "
        "method_descriptor wrapper_descriptor method-wrapper classmethod_descriptor".split()
    ),
    "collections": frozenset("deque defaultdict OrderedDict Counter".split()),
    "enum": frozenset("Enum IntEnum StrEnum ReprEnum Flag IntFlag EnumMeta EnumType".split()),
    "types": frozenset({"SimpleNamespace"}),
    "abc": frozenset({"ABC", "ABCMeta"}),
    "typing": frozenset({"Generic", "Protocol", "NamedTuple"}),
    "collections.abc": frozenset(
        "Mapping Sequence Collection Sized Iterable Container Hashable Reversible".split()
    ),
}
_LOOKING_THEMSELVES = {
    "datetime": frozenset("date time datetime timedelta timezone".split()),
    "pathlib": frozenset(
        "PurePath PurePosixPath PureWindowsPath Path PosixPath WindowsPath".split()
    ),
    "pathlib._local": frozenset(
        "PurePath PurePosixPath PureWindowsPath Path PosixPath WindowsPath".split()
    ),
    "re": frozenset({"Pattern"}),
    "array": frozenset({"array"}),
    "functools": frozenset({"partial"}),
    "_contextvars": frozenset({"ContextVar"}),
}


def _is_familiar_class(kind: type) -> bool:
    """Whether the operators of a class are those of the user, Python's common ones or NumPy's numbers and arrays."""
    if issubclass(kind, types.ModuleType) and kind is not types.ModuleType:
        return False
    for base in mro_of(kind):
        home = module_of(base)
        top = home.partition(".")[0]
        if top == "numpy":
            if is_heap(base) or numpy_calls_back():
                return False
            if name_of(base) == "ndarray" and kind is not base:
                return False
        elif name_of(base) in _LOOKING_CLASSES.get(home, ()):
            continue
        elif top in sys.stdlib_module_names:
            if base is not object and not _is_itself(kind, home, name_of(base)):
                return False
        elif not is_heap(base) or any(
            is_written_text(m, base, n) for n, m in dict_of(base).items()
        ):
            return False
    return True


def holds_numpy(o: Any) -> bool:
    """Whether a value is of NumPy, or holds such."""
    return _remembered(o, "numpy", _holds_numpy)


def _holds_numpy(o: Any) -> bool:
    items = [o]
    for _ in range(16):
        kinds = set(map(type, items)) - _NUMBERS
        if not kinds:
            return False
        if any(module_of(base).partition(".")[0] == "numpy" for k in kinds for base in mro_of(k)):
            return True
        holders = {id(x): x for x in items if type(x) not in _NUMBERS and _holds(type(x))}
        step(1 + (len(items) >> 4))
        items = list(chain.from_iterable(map(_items, holders.values())))
    return True


def _is_itself(kind: type, home: str, name: str) -> bool:
    allowed = _LOOKING_THEMSELVES.get(module_of(kind), ())
    return name_of(kind) in allowed and (name in allowed or name == "PathLike")


def numpy_calls_back() -> bool:
    """Whether NumPy's errors call something, or are printed."""
    numpy = sys.modules.get("numpy")
    if numpy is None:
        return False
    return _remembered(
        numpy,
        "calls",
        lambda n: (
            n.geterrcall() is not None or not {*n.geterr().values()} <= {"ignore", "warn", "raise"}
        ),
    )


def _all_familiar(items: Iterable[Any], depth: int) -> bool:
    """Whether the classes of objects and of what they hold are familiar: level by level, each object once."""
    while True:
        kinds = set(map(type, items)) - _NUMBERS
        if not kinds:
            return True
        if depth > 16 or not all(_remembered(k, "familiar", _is_familiar_class) for k in kinds):
            return False
        if types.ModuleType in kinds and any(
            type(x) is types.ModuleType and "__getattr__" in vars(x) for x in items
        ):
            return False  # to show a module is to ask it for members
        kinds = {k for k in kinds if _holds(k)}
        if not kinds:
            return True
        step(sum(1 for _ in items) >> 5)
        holders = {id(x): x for x in items if type(x) in kinds}
        items = list(chain.from_iterable(map(_items, holders.values())))
        step(1 + (len(items) >> 6))
        depth += 1


def _holds(kind: type) -> bool:
    """Whether operators of its objects go on with what they hold."""
    if issubclass(kind, (list, tuple, set, frozenset, dict, types.SimpleNamespace)):
        return True
    return name_of(kind) == "deque" or in_class(kind, "__dataclass_fields__") is not None


def _items(o: Any) -> list[Any]:
    """Of a container of Python, without methods of the user."""
    if is_a(o, dict):
        return [*dict.keys(o), *dict.values(o)]
    for kind in (list, tuple, set, frozenset):
        if is_a(o, kind):
            return list(kind.__iter__(o))
    if is_a(o, types.SimpleNamespace) or in_class(type(o), "__dataclass_fields__") is not None:
        return members_of(o)
    return list(o)  # a deque


def members_of(o: Any) -> list[Any]:
    """What an object holds under names."""
    found: list[Any] = []
    for base in mro_of(type(o)):
        if is_heap(base):
            for member in dict_of(base).values():
                if type(member) is types.MemberDescriptorType:
                    try:
                        found.append(member.__get__(o))
                    except AttributeError:
                        continue
    if in_class(type(o), "__dict__") is not None:
        found += object.__getattribute__(o, "__dict__").values()
    return found


def holds_numbers(o: Any) -> bool:
    return _remembered(o, "numbers", _holds_numbers)


def _holds_numbers(o: Any) -> bool:
    step(len(o) >> 6)
    kinds = set(map(type, o))
    if is_a(o, dict):
        kinds |= set(map(type, dict.values(o)))
    return all(map(_is_number_kind, kinds))


def is_data(o: Any) -> bool:
    """Whether a value has no methods but Python's own and NumPy's, nor has what it holds."""
    return _remembered(o, "data", lambda o: _is_data(o, 0))


_MOST_NESTED = 8


def _is_data(o: Any, depth: int) -> bool:
    items = [o]
    while items:
        kinds = {k for k in set(map(type, items)) if not _is_number_kind(k)}
        if not kinds:
            return True
        if depth > _MOST_NESTED:
            return False
        held = {k for k in kinds if k in _CONTAINERS or (issubclass(k, tuple) and holds_no_code(k))}
        holders = {}
        for x in items:
            if type(x) in held:
                holders[id(x)] = x
            elif type(x) in kinds and not _is_one_of_data(x):
                return False
        step(1 + (len(items) >> 4))
        items = list(chain.from_iterable(map(_items, holders.values())))
        depth += 1
    return True


def _is_one_of_data(o: Any) -> bool:
    kind = type(o)
    if is_array(o) or kind in (range, slice) or (is_a(o, type) and not is_heap(o)):
        return True
    step()
    if kind.__name__ in _LOOKING_THEMSELVES.get(module_of(kind), ()):
        return kind is not functools.partial
    # Of a class derived from numbers and texts: it has no members of its own.
    members = _members_of(o)
    if not is_a(o, enum.Enum, int, float, str, bytes):
        members = {"": o}
    return all(name.startswith("_") for name in members) and _remembered(
        kind, "no code", holds_no_code
    )


def _members_of(o: Any) -> dict[str, Any]:
    has = type(in_class(type(o), "__dict__")) is types.GetSetDescriptorType
    return object.__getattribute__(o, "__dict__") if has else {}


_NOT_SEEN = ("unknown", "some", "bound", "super", "pack", "lambda")


def are_data(v: Value) -> bool:
    """Whether a value is any of containers of data."""
    return v.kind == "some" and type(v.obj[0]) in _CONTAINERS and is_inert(v.obj) and is_data(v.obj)


def inert(*values: Value) -> Value:
    """The result of an operator: plain if its operands are, and not known if one has methods of the user."""
    for v in values:
        if v.kind in _NOT_SEEN or (v.kind == "known" and not is_inert(v.obj)):
            if not are_data(v):
                raise MayChange
    if all(map(is_plain, values)):
        return plain_of(values)
    return INERT if all(v.kind != "known" or is_data(v.obj) for v in values) else UNKNOWN


def data(*values: Value) -> Value:
    """The same of what native code may ask for members."""
    result = inert(*values)
    if result is UNKNOWN:
        raise MayChange
    return result


def is_plain(v: Value) -> bool:
    return v.kind == "plain" or (v.kind == "known" and is_number(v.obj))


def plain_of(values: Iterable[Value]) -> Value:
    return NUMBER if any(map(may_be_numpys_number, values)) else PLAIN


def may_be_numpys_number(v: Value) -> bool:
    return v is NUMBER if v.kind == "plain" else v.kind == "known" and type(v.obj) not in _NUMBERS


def joined(values: list[Value]) -> Value:
    first = values[0]
    step(len(values) >> 3)
    if all(v is first or (v.kind == first.kind and v.obj is first.obj) for v in values):
        return first
    if all(v.kind == "fresh" for v in values):
        return FRESH
    return plain_of(values) if all(map(is_plain, values)) else contained(values)


def contained(values: list[Value]) -> Value:
    try:
        return inert(*values)
    except TooLong:
        raise
    except MayChange:
        return UNKNOWN


FEW = 8
together = [False]  # whether many objects of one class are looked at as any of them


def items_of(over: Value) -> list[Value]:
    """What iteration gives: objects of the user one by one, or those of a class together."""
    o = over.obj
    if over.kind == "some":
        return any_of(pooled(o))
    if over.kind == "pack" and type(o) is tuple:
        return list(o)
    if type(o) is enum.EnumMeta and over.kind == "known":
        o = _remembered(o, "members", members_of_enum)
        return _remembered(o, "items", _grouped if together[0] and len(o) > FEW else _one_by_one)
    goes = is_a(o, list, tuple) and all(
        in_class(type(o), name, None) in (getattr(list, name), getattr(tuple, name))
        for name in ("__iter__", "__len__")
    )
    if over.kind != "known" or not goes or holds_numbers(o):
        return [item_of(over)]
    return _remembered(o, "items", _grouped if together[0] and len(o) > FEW else _one_by_one)


def pooled(objects: list[Any]) -> list[Any]:
    """What any of many lists or tuples holds."""
    kind = type(objects[0])
    if kind not in (list, tuple) and not (
        is_a(objects[0], tuple)
        and all(
            in_class(kind, name, None) is in_class(tuple, name)
            for name in ("__iter__", "__getitem__", "__len__")
        )
    ):
        raise MayChange
    return _remembered(objects, "pooled", _pooled)


def _pooled(objects: list[Any]) -> list[Any]:
    items = list(chain.from_iterable(map(_items, objects)))
    step(len(objects) + len(items) >> 5)
    return items


def _one_by_one(o: Any) -> list[Value]:
    items = _items(o)
    step(len(items))
    return [known(x) for x in items]


def _grouped(o: Any) -> list[Value]:
    items = _items(o)
    step(len(items) >> 5)
    groups: dict[type, list[Any]] = {}
    for x in items:
        groups.setdefault(type(x), []).append(x)
    return [v for group in groups.values() for v in any_of(group)]


def any_of(objects: list[Any]) -> list[Value]:
    """Objects of one class, as few values."""
    if not objects:
        return []
    return _remembered(objects, "any", _any_of)


def _any_of(objects: list[Any]) -> list[Value]:
    step(1 + (len(objects) >> 6))
    kinds = set(map(type, objects))
    if len(kinds) > FEW:
        step(len(objects))
        return [known(o) for o in objects]
    if len(kinds) > 1:
        return [v for k in kinds for v in any_of([o for o in objects if type(o) is k])]
    first = objects[0]
    if is_number(first):
        return [PLAIN if type(first) in _NUMBERS else NUMBER]
    if all(o is first for o in objects):
        return [known(first)]
    if type(first) in (dict, set, frozenset) and is_inert(objects) and is_data(objects):
        return [INERT]
    if type(first) in (list, tuple) or (
        is_heap(type(first)) and not is_a(first, type, list, dict, set, frozenset)
    ):
        return [Value("some", objects)]
    step(len(objects))
    return [known(o) for o in objects]


def item_of(over: Value) -> Value:
    """What iteration gives, of what can be gone over twice."""
    if over.kind in ("plain", "inert", "fresh"):
        return INERT if over.kind == "fresh" else over
    if over.kind == "some":
        return joined(any_of(pooled(over.obj)) or [PLAIN])
    if over.kind != "known" or not is_inert(over.obj):
        raise MayChange
    if type(over.obj) in (str, range):
        return PLAIN
    if type(over.obj) not in (list, tuple, set, frozenset, dict):
        return INERT if is_array(over.obj) else UNKNOWN
    return _remembered(over.obj, "item", _item)


def _item(o: Any) -> Value:
    kinds = set(map(type, o))
    step(1 + (len(o) >> 6))
    if all(map(_is_number_kind, kinds)):
        return PLAIN if kinds <= _NUMBERS else NUMBER
    items = list(o)
    return INERT if is_inert(items) and is_data(items) else UNKNOWN


def has_inert_keys(o: dict[Any, Any]) -> bool:
    return _remembered(o, "keys", lambda o: is_inert(list(o)))


def value_of(o: dict[Any, Any]) -> Value:
    """Any of a dict's values."""
    return _remembered(o, "value", lambda o: item_of(known(list(o.values()))))
