"""What is known of a value of the user that code was not run for, and what runs nothing of theirs."""

from __future__ import annotations

import enum
import types
from typing import Any, NamedTuple

MOST_ITEMS, _DEEPEST = 64, 4


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


def is_inert(o: Any, depth: int = 0) -> bool:
    """Whether operators and iteration run no code of the user: constants, containers of them, arrays."""
    kind = type(o)
    if is_number(o) or kind in (range, types.ModuleType, types.FunctionType):
        return True
    if kind in (tuple, list, set, frozenset, dict):
        items = [*o, *o.values()] if kind is dict else [*o]
        return (
            depth < _DEEPEST
            and len(items) <= MOST_ITEMS
            and all(is_inert(x, depth + 1) for x in items)
        )
    if issubclass(kind, enum.Enum):
        return not _has_hooks(kind)
    if issubclass(kind, type):
        return kind is type  # a metaclass may have operators
    return is_array(o) or (kind.__module__.partition(".")[0] == "quadrants" and not callable(o))


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


def shown(*values: Value) -> None:
    """Raises if to print them may run code of the user."""
    if not all(is_plain(v) or (v.kind == "known" and _prints(v.obj)) for v in values):
        raise MayChange


def _prints(o: Any, depth: int = 0) -> bool:
    if (
        type(o) not in (tuple, list, set, frozenset, dict)
        or depth == _DEEPEST
        or len(o) > MOST_ITEMS
    ):
        return is_number(o)
    items = [*o, *o.values()] if type(o) is dict else o
    return all(_prints(x, depth + 1) for x in items)


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
