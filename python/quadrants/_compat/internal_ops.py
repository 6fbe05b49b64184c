"""`impl.call_internal`: operations that programs call by name to test a compiler."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from quadrants.lang import ops
from quadrants.lang.exception import QuadrantsTypeError
from quadrants.lang.impl import get_runtime
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


# Parameter types, and what it does. The tests of lists, allocators, stacks and lanes pass here: they
# ask about the runtime of the established package, which this one does without.
_OPERATIONS: dict[str, tuple[tuple[DataType, ...], Callable[..., Any]]] = {
    "do_nothing": ((), _nothing),
    "test_internal_func_args": ((f32, f32, i32), _weighted),
    "test_list_manager": ((), _nothing),
    "test_node_allocator": ((), _nothing),
    "test_node_allocator_gc_cpu": ((), _nothing),
    "test_stack": ((), _nothing),
    "test_active_mask": ((), _nothing),
    "test_shfl": ((), _nothing),
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
