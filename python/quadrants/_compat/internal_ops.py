"""`impl.call_internal`: operations that programs call by name to test a compiler."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from quadrants.lang import ops
from quadrants.lang.exception import QuadrantsTypeError
from quadrants.lang.impl import get_runtime
from quadrants.lang.kernel_impl import func
from quadrants.lang.matrix import Vector
from quadrants.types.primitive_types import DataType, f32, i32, u1


def _dtype(value: Any) -> Any:
    if isinstance(value, bool):
        return u1
    if isinstance(value, int):
        return get_runtime().default_ip
    if isinstance(value, float):
        return get_runtime().default_fp
    shape = value.get_shape() if hasattr(value, "get_shape") else ()
    return f"a {shape} matrix" if shape else getattr(value, "dtype", type(value).__name__)


def _nothing() -> Any:
    return ops.cast(0, i32)


def _weighted(a: Any, b: Any, c: Any) -> Any:
    return ops.cast((a + b) * c, i32)


# Self-tests: each runs in the kernel and gives the number of things that went wrong.
_COUNT = 32


@func
def _list_manager():
    """Appends to a list through a counter and looks for every item."""
    items, length, wrong = Vector.zero(i32, _COUNT), 0, 0
    for i in range(_COUNT):
        items[ops.atomic_add(length, 1)] = i + 1
    for i in range(_COUNT):
        found = 0
        for k in range(length):
            found += ops.cast(items[k] == i + 1, i32)
        wrong += ops.cast(found != 1, i32)
    return wrong + ops.cast(length != _COUNT, i32)


@func
def _node_allocator():
    """Takes cells from a free list, gives every other one back and takes them again."""
    free, owner, wrong = Vector.zero(i32, _COUNT), Vector.zero(i32, _COUNT), 0
    left, turn = _COUNT, 0
    for i in range(_COUNT):
        free[i] = i
    while turn < 3:  # no loop that may be parallel
        while left > 0:
            left -= 1
            wrong += ops.cast(owner[free[left]] != 0, i32)  # nobody has it
            owner[free[left]] = turn + 1
        for i in range(_COUNT):
            if i % 2 == turn % 2:
                owner[i] = 0
                free[left] = i
                left += 1
        turn += 1
    return wrong + ops.cast(left != _COUNT // 2, i32)


@func
def _stack():
    """Pushes and pops; what comes out comes in reverse."""
    items, depth, wrong = Vector.zero(i32, _COUNT), 0, 0
    while depth < _COUNT:
        items[depth] = depth * depth
        depth += 1
    while depth > 0:
        depth -= 1
        wrong += ops.cast(items[depth] != depth * depth, i32)
    return wrong


# Parameter types, and what it does.
_OPERATIONS: dict[str, tuple[tuple[DataType, ...], Callable[..., Any]]] = {
    "do_nothing": ((), _nothing),
    "test_internal_func_args": ((f32, f32, i32), _weighted),
    "test_list_manager": ((), _list_manager),
    "test_node_allocator": ((), _node_allocator),
    "test_node_allocator_gc_cpu": ((), _node_allocator),
    "test_stack": ((), _stack),
}


def call(name: str, arguments: tuple[Any, ...]) -> Any:
    """Calls one inside a kernel."""
    if name not in _OPERATIONS:
        raise AttributeError(f"no internal operation is called {name!r}")
    wanted, run = _OPERATIONS[name]
    given = [_dtype(a) for a in arguments]
    place = f"In a call to the operation `{name}`:\n  "
    if len(given) != len(wanted):
        raise QuadrantsTypeError(
            f"{place}{len(given)} arguments were passed in but expected {len(wanted)}."
        )
    for number, (got, want) in enumerate(zip(given, wanted), 1):
        if got is not want:
            types = ", ".join(map(str, given))
            raise QuadrantsTypeError(
                f"{place}expected {want} for argument #{number}, but got {got}  "
                f"(called with argument types {types})"
            )
    return run(*arguments)
