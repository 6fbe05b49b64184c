"""Scalar and element-wise functions.

Called by plain Python they compute with NumPy, and return a matrix if an operand is one. What the op
table writes (`_ops.elementary`, `_ops.arithmetic`) and what only kernels have are in modules of their
own; programs find them here too.
"""

from __future__ import annotations

import builtins
from typing import Any

from quadrants._lazy import LazyNumpy
from quadrants._lib import core
from quadrants.lang import impl
from quadrants.lang._ops.arithmetic import *  # noqa: F403
from quadrants.lang._ops.elementary import *  # noqa: F403
from quadrants.lang._ops.kernel_ops import (  # noqa: F401
    assume_in_range,
    block_local,
    cache_read_only,
    clock_counter,
    get_addr,
    global_thread_idx,
    grouped,
    loop_config,
    mesh_local,
    mesh_patch_idx,
    no_activate,
    one,
    rescale_index,
    static,
    static_assert,
    static_print,
    stop_grad,
    volatile_load,
    zero,
)
from quadrants.lang._ops.operation import (
    bit_count,
    elementwise,
    on_host,
    op,
    python_backend,
    python_scope_error,
    symbolic,
)
from quadrants.lang.exception import not_initialised

np: Any = LazyNumpy(globals())

# --- logic, choice ---


@elementwise
def logical_not(a: Any) -> Any:
    """`not a`, element-wise, as u1."""
    return np.logical_not(a)


@elementwise
def logical_and(a: Any, b: Any) -> Any:
    """`a and b`, element-wise: 0 or 1."""
    return np.logical_and(a, b)


@elementwise
def logical_or(a: Any, b: Any) -> Any:
    """`a or b`, element-wise: 0 or 1."""
    return np.logical_or(a, b)


@op
def select(cond: Any, x1: Any, x2: Any) -> Any:
    """x1 where cond is not zero, else x2, element-wise; both are evaluated.

    Args:
        cond: number, vector or matrix.
        x1: number, vector or matrix.
        x2: number, vector or matrix. The result has the promoted type of x1 and x2.
    """
    if symbolic((cond, x1, x2)):
        return core.trace_op("select", (cond, x1, x2))
    if impl.is_python_backend():
        return python_backend().select(cond, x1, x2)
    return on_host("select", lambda c, a, b: np.where(np.asarray(c) != 0, a, b)[()], (cond, x1, x2))


@op
def ifte(cond: Any, x1: Any, x2: Any) -> Any:
    """x1 if the scalar cond is not zero, else x2."""
    if symbolic((cond, x1, x2)):
        return core.trace_op("ifte", (cond, x1, x2))
    return x1 if cond else x2


# --- conversion, bits, random numbers ---


def _converted(name: str, obj: Any, dtype: Any) -> Any:
    if impl.inside_kernel() or symbolic((obj,)):
        return core.trace_op(name, (obj, dtype))
    if impl.is_python_backend():
        return getattr(python_backend(), name)(obj, dtype)
    from quadrants.lang.matrix import Matrix

    if isinstance(obj, Matrix):
        raise ValueError(f"Cannot apply {name} on a Matrix in Python-scope")
    if impl.pyquadrants._prog is None:
        raise not_initialised()
    raise python_scope_error(name)


@op
def cast(obj: Any, dtype: Any) -> Any:
    """The value converted to another type, element-wise.

    Floats are cut towards zero, narrower integers keep the low bits, u1 is `x != 0`.

    Args:
        obj: number, vector or matrix.
        dtype: `qd.i32` and so on; `int` and `float` mean the defaults.

    Raises:
        AssertionError: called outside a kernel with a number.
        ValueError: called outside a kernel with a matrix.
    """
    return _converted("cast", obj, dtype)


@op
def bit_cast(obj: Any, dtype: Any) -> Any:
    """The same bits read as another type, element-wise.

    Args:
        obj: number, vector or matrix.
        dtype: type as wide as that of obj.

    Raises:
        QuadrantsTypeError: the widths differ.
        AssertionError: called outside a kernel with a number.
        ValueError: called outside a kernel with a matrix.
    """
    return _converted("bit_cast", obj, dtype)


@bit_count
def ffs(x: Any) -> Any:
    """Position of the lowest set bit counted from 1, an i32; 0 for 0.

    Args:
        x: i32, u32, i64 or u64, or a vector of them.

    Raises:
        QuadrantsTypeError: x is a float.
        NotImplementedError: called outside a kernel.
    """


@op
def frexp(x: Any) -> Any:
    """Splits a float: x = fraction * 2**exponent with 0.5 <= |fraction| < 1, or both 0.

    Args:
        x: an f32 or f64.

    Returns:
        The fraction in the type of x, and the exponent as i32.
    """
    if impl.is_python_backend():
        return python_backend().frexp(x)
    return core.trace_op("frexp", (x,)) if symbolic((x,)) else np.frexp(x)


@op
def random(dtype: Any = builtins.float) -> Any:
    """A uniformly distributed random number: floats in [0, 1), integers over their whole range.

    A number is a function of seed (`qd.init(random_seed=)`), launch, call, iteration and draw, mixed by
    the finaliser of SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number
    generators", 2014): it does not depend on the number of threads, and launches differ.

    Args:
        dtype: f16 (where rounding may reach 1), f32, f64, i32, u32, i64, u64, or `float` or `int`.

    Raises:
        QuadrantsCompilationError: another dtype.
        AssertionError: called outside a kernel.
    """
    if impl.inside_kernel():
        return core.trace_op("random", (dtype,))
    if impl.is_python_backend():
        raise python_backend().unavailable("qd.random")
    if impl.pyquadrants._prog is None:
        raise not_initialised("_compiling_callable")
    raise python_scope_error("random")


def is_quadrants_expr(value: Any) -> bool:
    """Whether it is a value that a kernel computes."""
    return core.is_expr(value)


_CELLS = "activate append deactivate is_active length"  # kernel code, which imports this module


def __getattr__(name: str) -> Any:
    if name not in _CELLS.split():
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from quadrants._library import sparse

    return getattr(sparse, name)
