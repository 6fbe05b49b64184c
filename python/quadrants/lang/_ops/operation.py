"""Decorators that make a Python function an operation of the kernel language.

The function gives name, parameters, documentation and, where there is one, the value that plain
Python gets. The operation carries its name as `_qd_op`, by which the native front end knows it
without calling it. When plain Python calls it, it traces the operation if an argument is symbolic.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from quadrants._lib import core
from quadrants.lang import impl
from quadrants.lang.exception import (
    QuadrantsAssertionError,
    QuadrantsSyntaxError,
    not_initialised,
)

F = TypeVar("F", bound=Callable[..., Any])

_NUMBERS = (int, float, bool)


def op(fn: F) -> F:
    """Marks a function as the operation of its name."""
    fn._qd_op = fn.__name__  # type: ignore[attr-defined]
    return fn


def replaced(old: Any, new: Any) -> Any:
    """`new` under the name, signature and documentation of `old`."""
    new.__name__ = new._qd_op = old.__name__
    new.__qualname__ = old.__qualname__
    new.__module__ = old.__module__
    new.__doc__ = old.__doc__
    new.__wrapped__ = old
    return new


def bound(fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """The arguments by position, defaults filled in; a `TypeError` if they do not fit."""
    if not kwargs and len(args) == fn.__code__.co_argcount:
        return args
    from inspect import signature

    try:
        found = signature(fn).bind(*args, **kwargs)
    except TypeError as e:
        raise TypeError(f"{fn.__name__}() {e}") from None
    found.apply_defaults()
    return found.args


def symbolic(args: tuple[Any, ...]) -> bool:
    """Whether an argument is a value of a kernel being traced."""
    for a in args:
        if type(a) not in _NUMBERS and core.is_expr(a):
            return True
    return False


def python_backend() -> Any:
    """The module of that name."""
    from quadrants.lang import _python_backend

    return _python_backend


def python_scope_error(name: str) -> QuadrantsAssertionError:
    """For what plain Python may not call; programs expect a runtime or an assertion error."""
    return QuadrantsAssertionError(f"{name} cannot be called in Python-scope")


def on_host(name: str, compute: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    """Applies a NumPy function; a matrix operand makes the result a matrix."""
    if impl.is_python_backend():
        return python_backend().apply(name, args)
    from quadrants.lang.matrix import Matrix

    if any(isinstance(a, Matrix) for a in args):
        return Matrix(compute(*(a.to_numpy() if isinstance(a, Matrix) else a for a in args)))
    return compute(*args)


def c_quotient(x1: Any, x2: Any) -> Any:
    """x1 / x2; of integers cut towards zero."""
    import numpy as np

    if isinstance(x1, int) and isinstance(x2, int):
        quotient = abs(x1) // abs(x2)
        return quotient if (x1 < 0) == (x2 < 0) else -quotient
    x1, x2 = (np.asarray(x) if isinstance(x, (list, tuple)) else x for x in (x1, x2))
    if np.issubdtype(np.result_type(x1, x2), np.floating):
        return np.true_divide(x1, x2)
    quotient = np.floor_divide(x1, x2)  # true_divide would lose digits beyond 2**53
    return quotient + ((quotient < 0) & (np.fmod(x1, x2) != 0))


def c_remainder(x1: Any, x2: Any) -> Any:
    """What c_quotient leaves."""
    import numpy as np

    if isinstance(x1, int) and isinstance(x2, int):
        return x1 - x2 * c_quotient(x1, x2)
    return np.fmod(x1, x2)


def elementwise(compute: F) -> F:
    """An operation on numbers and, component by component, on vectors and matrices."""
    name = compute.__name__

    def fn(*args: Any, **kwargs: Any) -> Any:
        args = bound(compute, args, kwargs)
        if symbolic(args):
            return core.trace_op(name, args)
        return on_host(name, compute, args)

    return replaced(compute, fn)


def rounding(compute: F) -> F:
    """An element-wise operation whose results are whole numbers, of any type."""
    name = compute.__name__

    def fn(x: Any, dtype: Any = None) -> Any:
        if symbolic((x,)):
            return core.trace_op(name, (x, dtype))
        if impl.is_python_backend():
            return python_backend().rounding(name, x, dtype)
        if dtype is None:
            return on_host(name, compute, (x,))
        import numpy as np

        from quadrants.lang.util import to_numpy_type

        kind = to_numpy_type(dtype)
        return on_host(name, lambda v: np.asarray(compute(v)).astype(kind)[()], (x,))

    return replaced(compute, fn)


def folded(compute: F) -> F:
    """An element-wise operation on two operands that takes any number of them, the last two first."""
    name = compute.__name__

    def fn(*args: Any) -> Any:
        assert args, f"{name} needs at least one argument"
        if symbolic(args):
            return core.trace_op(name, args)
        result = args[-1]
        for a in reversed(args[:-1]):
            result = on_host(name, compute, (a, result))
        return result

    return replaced(compute, fn)


def kernel_value(declared: F) -> F:
    """An element-wise operation of kernels, which plain Python has for the Python backend only."""
    name = declared.__name__

    def fn(*args: Any, **kwargs: Any) -> Any:
        args = bound(declared, args, kwargs)
        if impl.inside_kernel() or symbolic(args):
            return core.trace_op(name, args)
        if impl.is_python_backend():
            return python_backend().apply(name, args)
        raise python_scope_error(name)

    return replaced(declared, fn)


def bit_count(declared: F) -> F:
    """An operation on the bits of an integer, which plain Python does not have."""
    name = declared.__name__

    def fn(*args: Any, **kwargs: Any) -> Any:
        args = bound(declared, args, kwargs)
        if impl.inside_kernel() or symbolic(args):
            return core.trace_op(name, args)
        raise NotImplementedError(f"{name} has no Python fallback")

    return replaced(declared, fn)


def atomic(stored: F) -> F:
    """A read-modify-write operation, which plain Python has for the Python backend only.

    The decorated function gives what the first operand becomes.
    """
    name = stored.__name__

    def fn(*args: Any, **kwargs: Any) -> Any:
        args = bound(stored, args, kwargs)
        if impl.inside_kernel() or symbolic(args):
            return core.trace_op(name, args)
        if impl.is_python_backend():
            return python_backend().atomic(name, stored, args)
        raise QuadrantsSyntaxError(
            f"cannot use a non-writable target as the first operand of '{name}'"
        )

    return replaced(stored, fn)


def kernel_only(declared: F) -> F:
    """An operation that plain Python reaches only while a kernel is traced."""
    name = declared.__name__

    def fn(*args: Any, **kwargs: Any) -> Any:
        if impl.inside_kernel():
            return core.trace_op(name, args, **kwargs)
        if impl.is_python_backend():
            return python_backend().kernel_only(name, bound(declared, args, kwargs))
        if impl.pyquadrants._prog is None:
            raise not_initialised("_compiling_callable")
        raise python_scope_error(name)

    return replaced(declared, fn)
