"""What is known of a value of the user that code was not run for, and what runs nothing of theirs."""

from __future__ import annotations

from typing import Any, NamedTuple

from quadrants._lib import core
from quadrants.lang._inspect.static_members import in_class

MOST_ITEMS = 4096


class MayChange(Exception):
    """Something was met that is not known to look only."""


class Value(NamedTuple):
    """What is known of a value: the object itself; that it is a number, a text or a tuple of such (plain);
    that operators and iteration run no code of the user (inert); and that it was made here (fresh)."""

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


def is_inert(o: Any) -> bool:
    """Whether operators and iteration run no code of the user: constants, containers of them, arrays."""
    return not core.operators_run_code(o)


def inert(*values: Value) -> Value:
    """The result of an operator: plain if its operands are."""
    for v in values:
        if v.kind == "unknown" or (v.kind == "known" and not is_inert(v.obj)):
            raise MayChange
    return PLAIN if all(map(is_plain, values)) else INERT


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
        inert(*values)
    except MayChange:
        return UNKNOWN
    return INERT


def items_of(over: Value) -> list[Value]:
    """What iteration gives: objects of the user one by one."""
    o = over.obj
    goes = is_a(o, list, tuple) and all(
        in_class(type(o), name, None) in (getattr(list, name), getattr(tuple, name))
        for name in ("__iter__", "__len__")
    )
    if over.kind != "known" or not goes or all(map(is_number, o)):
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
    items = over.obj if type(over.obj) in (list, tuple, set, frozenset, dict) else [[]]
    return PLAIN if all(map(is_number, items)) else INERT
