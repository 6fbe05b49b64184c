"""What is known of a value of the user that code was not run for, and what runs nothing of theirs."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any, NamedTuple

from quadrants._lib import core
from quadrants.lang._inspect.static_members import holds_no_code, in_class, is_heap

MOST_ITEMS = 4096


class MayChange(Exception):
    """Something was met that is not known to look only."""


class Value(NamedTuple):
    """What is known of a value: the object itself; that it is a number, a text or a tuple of such (plain);
    that operators, iteration and methods run no code of the user (inert); and that it was made here (fresh)."""

    kind: str  # known, plain, inert, fresh, unknown
    obj: Any = None


PLAIN, INERT, FRESH, UNKNOWN = map(Value, ("plain", "inert", "fresh", "unknown"))


def known(o: Any) -> Value:
    return Value("known", o)


def is_a(o: Any, *kinds: type) -> bool:
    """isinstance, which asks the object for its class."""
    return issubclass(type(o), kinds)


def is_number(o: Any) -> bool:
    kind = type(o)
    if o is None or kind in (int, float, bool, complex, str, bytes):
        return True
    return is_number_type(kind) and kind.__name__ not in ("void", "object_")


def is_number_type(kind: type) -> bool:
    return kind.__module__ == "numpy" and any(base.__name__ == "generic" for base in kind.__mro__)


def is_array(o: Any) -> bool:
    kind = type(o)
    return kind.__module__ == "numpy" and kind.__name__ == "ndarray" and not o.dtype.hasobject


# Of containers, while one question is looked at: each is gone through once.
_answers: dict[tuple[int, str], tuple[Any, Any]] = {}


def forget_answers() -> None:
    _answers.clear()


def _remembered(o: Any, what: str, find: Callable[[Any], Any]) -> Any:
    if (id(o), what) not in _answers:
        _answers[id(o), what] = o, find(o)
    return _answers[id(o), what][1]


def is_inert(o: Any) -> bool:
    """Whether operators and iteration run no code of the user: constants, containers of them, arrays."""
    return _remembered(o, "inert", _is_inert)


def _is_inert(o: Any) -> bool:
    if type(o) is enum.EnumMeta:  # which is gone over as its members
        return not any(map(core.operators_run_code, dict(vars(o)["_member_map_"]).values()))
    return not core.operators_run_code(o)


def _holds_numbers(o: Any) -> bool:
    return _remembered(o, "numbers", lambda o: all(map(is_number, o)))


def is_data(o: Any) -> bool:
    """Whether a value has no methods but Python's own and NumPy's, nor has what it holds."""
    return _remembered(o, "data", lambda o: _is_data(o, 0))


_MOST_NESTED = 8


def _is_data(o: Any, depth: int) -> bool:
    kind = type(o)
    if is_number(o) or is_array(o) or kind in (range, slice) or (is_a(o, type) and not is_heap(o)):
        return True
    if depth > _MOST_NESTED:
        return False
    if kind is dict:
        return all(_is_data(x, depth + 1) for pair in o.items() for x in pair)
    if is_a(o, tuple) and (kind is tuple or holds_no_code(kind)) or kind in (list, set, frozenset):
        return all(_is_data(x, depth + 1) for x in o)
    members = object.__getattribute__(o, "__dict__") if is_a(o, enum.Enum) else {"": o}
    return holds_no_code(kind) and all(name.startswith("_") for name in members)


def inert(*values: Value) -> Value:
    """The result of an operator: plain if its operands are, and not known if one has methods of the user."""
    for v in values:
        if v.kind == "unknown" or (v.kind == "known" and not is_inert(v.obj)):
            raise MayChange
    if all(map(is_plain, values)):
        return PLAIN
    return INERT if all(v.kind != "known" or is_data(v.obj) for v in values) else UNKNOWN


def data(*values: Value) -> Value:
    """The same of what native code may ask for members."""
    result = inert(*values)
    if result is UNKNOWN:
        raise MayChange
    return result


def is_plain(v: Value) -> bool:
    return v.kind == "plain" or (v.kind == "known" and is_number(v.obj))


def joined(values: list[Value]) -> Value:
    first = values[0]
    if all(v.kind == "known" and v.obj is first.obj for v in values):
        return first
    if all(v.kind == "fresh" for v in values):
        return FRESH
    return PLAIN if all(map(is_plain, values)) else contained(values)


def contained(values: list[Value]) -> Value:
    try:
        return inert(*values)
    except MayChange:
        return UNKNOWN


def items_of(over: Value) -> list[Value]:
    """What iteration gives: objects of the user one by one."""
    o = over.obj
    goes = is_a(o, list, tuple) and all(
        in_class(type(o), name, None) in (getattr(list, name), getattr(tuple, name))
        for name in ("__iter__", "__len__")
    )
    if over.kind != "known" or not goes or _holds_numbers(o):
        return [item_of(over)]
    if len(o) > MOST_ITEMS:
        raise MayChange
    return [known(x) for x in o]


def item_of(over: Value) -> Value:
    """What iteration gives, of what can be gone over twice."""
    if over.kind in ("plain", "inert", "fresh"):
        return INERT if over.kind == "fresh" else over
    if over.kind != "known" or not is_inert(over.obj):
        raise MayChange
    if type(over.obj) in (str, range):
        return PLAIN
    if type(over.obj) not in (list, tuple, set, frozenset, dict):
        return INERT if is_array(over.obj) else UNKNOWN
    if _holds_numbers(over.obj):
        return PLAIN
    return _remembered(over.obj, "item", lambda o: contained([known(x) for x in o]))
