"""Which argument tuples a kernel was called with, by identity: what chapter 51, section 10 shows of two caches.

Launches here need neither table. They are kept for kernels whose tables somebody looks at, from the
first look on: calls then go through `KernelFace._call_doubles`, which notes them.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import Any

from quadrants._lib import core
from quadrants.lang.util import is_data_oriented
from quadrants.types.annotations import Template

_NUMBERS = (int, float, bool, type(None))
_INTERNED = range(-5, 257)  # ints of which CPython has one object each
_FIELDS = "__dataclass_fields__"


def _is_frozen(value: Any) -> bool:
    params = getattr(type(value), "__dataclass_params__", None)
    return params is not None and params.frozen


def _is_mutable(annotation: Any) -> bool:
    return (
        isinstance(annotation, type)
        and hasattr(annotation, _FIELDS)
        and not annotation.__dataclass_params__.frozen  # type: ignore[attr-defined]
    )


def _arrays_in(value: Any, depth: int = 0) -> Iterator[Any]:
    """The arrays that members lead to."""
    if isinstance(value, (core.NdarrayBase, core.TensorBase)):
        yield value
    elif depth < 8 and (is_data_oriented(value) or hasattr(type(value), _FIELDS)):
        names: Any = getattr(type(value), _FIELDS, None) or getattr(value, "__dict__", ())
        for name in tuple(names):
            yield from _arrays_in(getattr(value, name, None), depth + 1)


class IdentityTables:
    """Entries of calls and of prepared launches; one dies with the first of its arguments."""

    def __init__(self, annotations: list[Any], made: list[dict[str, Any]]) -> None:
        self.annotations = annotations
        self.calls: dict[Any, Any] = {}
        self.call_tracker: dict[Any, Any] = {}
        self.launches: dict[Any, Any] = {}
        self.launch_tracker: dict[Any, Any] = {}
        # Each specialisation was called; with what will be known when it is called again.
        for s in made:
            self._add(self.calls, self.call_tracker, s["number"], (), s["number"])
            floats, tensors = s["bound"][0], any(row[0] == "tensor" for row in s["passed"])
            if not floats and not tensors and not any(map(_is_mutable, annotations)):
                self._add(self.launches, self.launch_tracker, s["number"], (), s["number"])

    def note(self, args: tuple[Any, ...], number: int) -> None:
        """A call, and the specialisation that it took."""
        for table in (self.calls, self.call_tracker, self.launches, self.launch_tracker):
            table.pop(number, None)
        key = tuple((id(a), *(() if _is_frozen(a) else map(id, self._inside(a)))) for a in args)
        self._add(self.calls, self.call_tracker, key, args, number)
        if all(map(self._is_prepared, self.annotations, args)):
            own = [a for a in args if not _is_frozen(a)]
            inside = [array for a in args for array in self._inside(a)]
            self._add(self.launches, self.launch_tracker, key, own + inside, number)

    @staticmethod
    def _inside(arg: Any) -> Iterator[Any]:
        return (a for a in _arrays_in(arg) if a is not arg)

    @staticmethod
    def _is_prepared(annotation: Any, arg: Any) -> bool:
        if is_data_oriented(arg):
            return bool(getattr(type(arg), "_qd_template_primitives", True))
        if annotation is Template or isinstance(annotation, Template):
            return True
        if type(arg) in (int, bool):
            return arg in _INTERNED
        return isinstance(arg, (core.NdarrayBase, core.TensorBase)) or _is_frozen(arg)

    @staticmethod
    def _add(
        table: dict[Any, Any], tracker: dict[Any, Any], key: Any, args: Any, value: Any
    ) -> None:
        if key in table:
            return

        def forget(_: Any) -> None:
            table.pop(key, None)
            tracker.pop(key, None)

        try:
            refs = [weakref.ref(a, forget) for a in args if type(a) not in _NUMBERS]
        except TypeError:  # what no weak reference can watch is never in a table
            return
        table[key], tracker[key] = value, refs
