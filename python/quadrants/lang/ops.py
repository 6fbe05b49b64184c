"""Scalar and element-wise functions.

Called by plain Python they compute with NumPy, and return a matrix if an operand is one. Atomics,
what only kernels have and the functions that the op table writes (`_ops.elementary`) are in modules of
their own; programs find them here too.
"""

from __future__ import annotations

import builtins
from typing import Any

from quadrants._lazy import LazyNumpy
from quadrants._lib import core
from quadrants.lang import impl
from quadrants.lang._ops.atomic import (  # noqa: F401
    atomic_add,
    atomic_and,
    atomic_cas,
    atomic_exchange,
    atomic_max,
    atomic_min,
    atomic_mul,
    atomic_or,
    atomic_sub,
    atomic_xor,
)
from quadrants.lang._ops.elementary import *  # noqa: F403
from quadrants.lang._ops.kernel_ops import (  # noqa: F401
    activate,
    append,
    assume_in_range,
    block_local,
    cache_read_only,
    clock_counter,
    deactivate,
    get_addr,
    global_thread_idx,
    grouped,
    is_active,
    length,
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
    elementwise,
    on_host,
    op,
    python_backend,
    python_scope_error,
    symbolic,
)
from quadrants.lang.exception import not_initialised

np: Any = LazyNumpy(globals())

# --- functions of one operand ---


@elementwise
def neg(x: Any) -> Any:
    """-x, element-wise."""
    return -x


@elementwise
def abs(x: Any) -> Any:  # noqa: A001
    """Absolute value, element-wise.

    Args:
        x: number, vector or matrix; the result has its shape and type.
    """
    return builtins.abs(x)


@elementwise
def bit_not(a: Any) -> Any:
    """~a, element-wise, for integers."""
    return ~a


@elementwise
def logical_not(a: Any) -> Any:
    """`not a`, element-wise, as u1."""
    return np.logical_not(a)


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


# --- operators ---


@elementwise
def add(a: Any, b: Any) -> Any:
    """a + b."""
    return a + b


@elementwise
def sub(a: Any, b: Any) -> Any:
    """a - b."""
    return a - b


@elementwise
def mul(a: Any, b: Any) -> Any:
    """a * b, element-wise."""
    return a * b


@elementwise
def truediv(a: Any, b: Any) -> Any:
    """a / b; integers become the default float."""
    return a / b


@elementwise
def floordiv(a: Any, b: Any) -> Any:
    """a // b, rounded down."""
    return a // b


@elementwise
def mod(x1: Any, x2: Any) -> Any:
    """x1 % x2, with the sign of x2."""
    return x1 % x2


@elementwise
def pow(base: Any, exponent: Any) -> Any:  # noqa: A001
    """base ** exponent, element-wise.

    Args:
        base: number, vector or matrix.
        exponent: number, vector or matrix. If it is an integer the result has the type of base.

    Raises:
        QuadrantsRuntimeError: a constant negative integer exponent of an integer base. One that is
            computed is checked with `debug=True` and undefined without.
    """
    return base**exponent


def _c_quotient(x1: Any, x2: Any) -> Any:
    if isinstance(x1, int) and isinstance(x2, int):
        quotient = builtins.abs(x1) // builtins.abs(x2)
        return quotient if (x1 < 0) == (x2 < 0) else -quotient
    quotient = np.true_divide(x1, x2)
    kind = np.result_type(x1, x2)
    return quotient if np.issubdtype(kind, np.floating) else np.trunc(quotient).astype(kind)


@elementwise
def raw_div(x1: Any, x2: Any) -> Any:
    """Division as in C, element-wise: the quotient of integers is cut towards zero.

    Args:
        x1: number, vector or matrix.
        x2: number, vector or matrix.
    """
    return _c_quotient(x1, x2)


@elementwise
def raw_mod(x1: Any, x2: Any) -> Any:
    """Remainder as in C, element-wise: it has the sign of x1.

    Args:
        x1: integer, vector or matrix of integers.
        x2: integer, vector or matrix of integers.

    Raises:
        QuadrantsTypeError: an operand is a float (in kernels).
    """
    if isinstance(x1, int) and isinstance(x2, int):
        return x1 - x2 * _c_quotient(x1, x2)
    return np.fmod(x1, x2)


@elementwise
def atan2(x1: Any, x2: Any) -> Any:
    """Angle in radians, from -pi to pi, of the point (x2, x1), element-wise.

    Args:
        x1: ordinate: number, vector or matrix.
        x2: abscissa. Integers become the default float, f16 becomes f32.
    """
    return np.arctan2(x1, x2)


@elementwise
def bit_and(a: Any, b: Any) -> Any:
    """a & b, for integers."""
    return a & b


@elementwise
def bit_or(a: Any, b: Any) -> Any:
    """a | b, for integers."""
    return a | b


@elementwise
def bit_xor(a: Any, b: Any) -> Any:
    """a ^ b, for integers."""
    return a ^ b


@elementwise
def bit_shl(a: Any, b: Any) -> Any:
    """a << b, in the type of a."""
    return a << b


@elementwise
def bit_sar(a: Any, b: Any) -> Any:
    """a >> b, in the type of a, which keeps its sign."""
    return a >> b


@op
def bit_shr(x1: Any, x2: Any) -> Any:
    """Logical shift to the right: zeros come in, whatever the sign; element-wise.

    Args:
        x1: integer, vector or matrix; the result has its type.
        x2: number of bits, less than the width of x1.

    Raises:
        AssertionError: called outside a kernel.
    """
    if impl.inside_kernel() or symbolic((x1, x2)):
        return core.trace_op("bit_shr", (x1, x2))
    if impl.is_python_backend():
        return python_backend().apply("bit_shr", (x1, x2))
    raise python_scope_error("bit_shr")


@elementwise
def logical_and(a: Any, b: Any) -> Any:
    """`a and b`, element-wise: 0 or 1."""
    return np.logical_and(a, b)


@elementwise
def logical_or(a: Any, b: Any) -> Any:
    """`a or b`, element-wise: 0 or 1."""
    return np.logical_or(a, b)


@elementwise
def cmp_lt(a: Any, b: Any) -> Any:
    """a < b, element-wise."""
    return a < b


@elementwise
def cmp_le(a: Any, b: Any) -> Any:
    """a <= b, element-wise."""
    return a <= b


@elementwise
def cmp_gt(a: Any, b: Any) -> Any:
    """a > b, element-wise."""
    return a > b


@elementwise
def cmp_ge(a: Any, b: Any) -> Any:
    """a >= b, element-wise."""
    return a >= b


@elementwise
def cmp_eq(a: Any, b: Any) -> Any:
    """a == b, element-wise."""
    return a == b


@elementwise
def cmp_ne(a: Any, b: Any) -> Any:
    """a != b, element-wise."""
    return a != b


# --- choice ---


def _fold(name: str, compute: Any, args: tuple[Any, ...]) -> Any:
    assert args, f"{name} needs at least one argument"
    if symbolic(args):
        return core.trace_op(name, args)
    result = args[-1]
    for a in reversed(args[:-1]):
        result = on_host(name, compute, (a, result))
    return result


@op
def max(*args: Any) -> Any:  # noqa: A001
    """Largest of the arguments, element-wise; a number beats NaN on the CPU.

    Args:
        *args: one or more numbers, vectors or matrices; one alone is returned as it is.
    """
    return _fold("max", lambda a, b: np.maximum(a, b), args)


@op
def min(*args: Any) -> Any:  # noqa: A001
    """Smallest of the arguments, element-wise; a number beats NaN on the CPU.

    Args:
        *args: one or more numbers, vectors or matrices; one alone is returned as it is.
    """
    return _fold("min", lambda a, b: np.minimum(a, b), args)


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


def _bit_count(name: str, x: Any) -> Any:
    if impl.inside_kernel() or symbolic((x,)):
        return core.trace_op(name, (x,))
    raise NotImplementedError(f"{name} has no Python fallback")


@op
def popcnt(x: Any) -> Any:
    """Number of set bits, an i32.

    Args:
        x: i32, u32, i64 or u64, or a vector of them.

    Raises:
        QuadrantsTypeError: x is a float.
        NotImplementedError: called outside a kernel.
    """
    return _bit_count("popcnt", x)


@op
def clz(x: Any) -> Any:
    """Number of zero bits above the highest set one, an i32; the width for 0.

    Args:
        x: i32, u32, i64 or u64, or a vector of them.

    Raises:
        QuadrantsTypeError: x is a float.
        NotImplementedError: called outside a kernel.
    """
    return _bit_count("clz", x)


@op
def ffs(x: Any) -> Any:
    """Position of the lowest set bit counted from 1, an i32; 0 for 0.

    Args:
        x: i32, u32, i64 or u64, or a vector of them.

    Raises:
        QuadrantsTypeError: x is a float.
        NotImplementedError: called outside a kernel.
    """
    return _bit_count("ffs", x)


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
