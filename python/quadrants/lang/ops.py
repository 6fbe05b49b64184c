"""Scalar and element-wise functions, atomics, and what only the kernel language has.

Each function carries its operation's name as `_qd_op`, by which the native front end knows it
without calling it. Called by plain Python, it traces the operation if an argument is symbolic and
else computes with NumPy.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable
from typing import Any, TypeVar

from quadrants._lazy import LazyNumpy
from quadrants._lib import core
from quadrants.lang import impl
from quadrants.lang.exception import QuadrantsSyntaxError, not_initialised

np: Any = LazyNumpy(globals())
F = TypeVar("F", bound=Callable[..., Any])

_NUMBERS = (builtins.int, builtins.float, builtins.bool)


def op(name: str) -> Callable[[F], F]:
    """Marks a function as the operation of that name."""

    def mark(fn: F) -> F:
        fn._qd_op = name  # type: ignore[attr-defined]
        return fn

    return mark


def _symbolic(args: tuple[Any, ...]) -> bool:
    for a in args:
        if type(a) not in _NUMBERS and core.is_expr(a):
            return True
    return False


def _python_backend() -> Any:
    from quadrants.lang import _python_backend

    return _python_backend


def _host(name: str, compute: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    """Applies a NumPy function; a matrix operand makes the result a matrix."""
    if impl.is_python_backend():
        return _python_backend().apply(name, args)
    from quadrants.lang.matrix import Matrix

    if builtins.any(isinstance(a, Matrix) for a in args):
        return Matrix(compute(*(a.to_numpy() if isinstance(a, Matrix) else a for a in args)))
    return compute(*args)


def _elementwise(
    name: str, compute: Callable[..., Any], doc: str, arity: builtins.int = 1
) -> Callable[..., Any]:
    """An operation of one or two operands."""
    if arity == 1:

        def fn(x: Any) -> Any:
            if _symbolic((x,)):
                return core.trace_op(name, (x,))
            return _host(name, compute, (x,))

    else:

        def fn(a: Any, b: Any) -> Any:  # type: ignore[misc]
            if _symbolic((a, b)):
                return core.trace_op(name, (a, b))
            return _host(name, compute, (a, b))

    fn.__name__ = fn.__qualname__ = name
    fn.__doc__ = doc
    return op(name)(fn)


def _kernel_only(name: str, doc: str) -> Callable[..., Any]:
    """An operation that plain Python reaches only while a kernel is traced."""

    def fn(*args: Any, **kwargs: Any) -> Any:
        if impl.inside_kernel():
            return core.trace_op(name, args, **kwargs)
        if impl.is_python_backend():
            return _python_backend().kernel_only(name, args)
        if impl.pyquadrants._prog is None:
            raise not_initialised("_compiling_callable")
        raise AssertionError(f"{name} cannot be called in Python-scope")

    fn.__name__ = fn.__qualname__ = name
    fn.__doc__ = doc
    return op(name)(fn)


def _python_scope_error(name: str) -> AssertionError:
    return AssertionError(f"{name} cannot be called in Python-scope")


def _raw_div(a: Any, b: Any) -> Any:
    if isinstance(a, builtins.int) and isinstance(b, builtins.int):
        quotient = builtins.abs(a) // builtins.abs(b)
        return quotient if (a < 0) == (b < 0) else -quotient
    quotient = np.true_divide(a, b)
    if np.issubdtype(np.result_type(a, b), np.floating):
        return quotient
    return np.trunc(quotient).astype(np.result_type(a, b))


def _raw_mod(a: Any, b: Any) -> Any:
    if isinstance(a, builtins.int) and isinstance(b, builtins.int):
        return a - b * _raw_div(a, b)
    return np.fmod(a, b)


sin = _elementwise("sin", lambda x: np.sin(x), "Sine.")
cos = _elementwise("cos", lambda x: np.cos(x), "Cosine.")
tan = _elementwise("tan", lambda x: np.tan(x), "Tangent.")
asin = _elementwise("asin", lambda x: np.arcsin(x), "Arc sine.")
acos = _elementwise("acos", lambda x: np.arccos(x), "Arc cosine.")
tanh = _elementwise("tanh", lambda x: np.tanh(x), "Hyperbolic tangent.")
exp = _elementwise("exp", lambda x: np.exp(x), "Exponential function.")
log = _elementwise("log", lambda x: np.log(x), "Natural logarithm.")
sqrt = _elementwise("sqrt", lambda x: np.sqrt(x), "Square root.")
rsqrt = _elementwise("rsqrt", lambda x: 1 / np.sqrt(x), "1 / sqrt(x).")
neg = _elementwise("neg", lambda x: -x, "-x.")
bit_not = _elementwise("bit_not", lambda x: ~x, "~x.")
logical_not = _elementwise("logical_not", lambda x: np.logical_not(x), "not x.")
abs = _elementwise("abs", lambda x: builtins.abs(x), "Absolute value.")  # noqa: A001

add = _elementwise("add", lambda a, b: a + b, "a + b.", 2)
sub = _elementwise("sub", lambda a, b: a - b, "a - b.", 2)
mul = _elementwise("mul", lambda a, b: a * b, "a * b.", 2)
truediv = _elementwise("truediv", lambda a, b: a / b, "a / b.", 2)
floordiv = _elementwise("floordiv", lambda a, b: a // b, "a // b.", 2)
mod = _elementwise("mod", lambda a, b: a % b, "a % b, with the sign of b.", 2)
pow = _elementwise("pow", lambda a, b: a**b, "a ** b.", 2)  # noqa: A001
raw_div = _elementwise("raw_div", _raw_div, "Division as in C: integers truncate.", 2)
raw_mod = _elementwise("raw_mod", _raw_mod, "Remainder as in C: the sign of a.", 2)
atan2 = _elementwise("atan2", lambda a, b: np.arctan2(a, b), "Angle of the point (b, a).", 2)
bit_and = _elementwise("bit_and", lambda a, b: a & b, "a & b.", 2)
bit_or = _elementwise("bit_or", lambda a, b: a | b, "a | b.", 2)
bit_xor = _elementwise("bit_xor", lambda a, b: a ^ b, "a ^ b.", 2)
bit_shl = _elementwise("bit_shl", lambda a, b: a << b, "a << b.", 2)
bit_sar = _elementwise("bit_sar", lambda a, b: a >> b, "a >> b.", 2)
logical_and = _elementwise(
    "logical_and", lambda a, b: np.logical_and(a, b), "a and b, element-wise.", 2
)
logical_or = _elementwise(
    "logical_or", lambda a, b: np.logical_or(a, b), "a or b, element-wise.", 2
)
cmp_lt = _elementwise("cmp_lt", lambda a, b: a < b, "a < b.", 2)
cmp_le = _elementwise("cmp_le", lambda a, b: a <= b, "a <= b.", 2)
cmp_gt = _elementwise("cmp_gt", lambda a, b: a > b, "a > b.", 2)
cmp_ge = _elementwise("cmp_ge", lambda a, b: a >= b, "a >= b.", 2)
cmp_eq = _elementwise("cmp_eq", lambda a, b: a == b, "a == b.", 2)
cmp_ne = _elementwise("cmp_ne", lambda a, b: a != b, "a != b.", 2)


def _rounding(name: str, compute: Callable[..., Any], doc: str) -> Callable[..., Any]:
    def fn(x: Any, dtype: Any = None) -> Any:
        if _symbolic((x,)):
            return core.trace_op(name, (x, dtype))
        if impl.is_python_backend():
            return _python_backend().rounding(name, x, dtype)
        if dtype is None:
            return _host(name, compute, (x,))
        from quadrants.lang.util import to_numpy_type

        return _host(name, lambda v: np.asarray(compute(v)).astype(to_numpy_type(dtype))[()], (x,))

    fn.__name__ = fn.__qualname__ = name
    fn.__doc__ = doc
    return op(name)(fn)


floor = _rounding(
    "floor", lambda x: np.floor(x), "Largest integer not above x, as `dtype` if given."
)
ceil = _rounding("ceil", lambda x: np.ceil(x), "Smallest integer not below x, as `dtype` if given.")
round = _rounding("round", lambda x: np.round(x), "Nearest integer, as `dtype` if given.")  # noqa: A001


@op("max")
def max(*args: Any) -> Any:  # noqa: A001
    """Largest of the arguments, element-wise."""
    return _fold("max", lambda a, b: np.maximum(a, b), args)


@op("min")
def min(*args: Any) -> Any:  # noqa: A001
    """Smallest of the arguments, element-wise."""
    return _fold("min", lambda a, b: np.minimum(a, b), args)


def _fold(name: str, compute: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    assert args, f"{name} needs at least one argument"
    if _symbolic(args):
        return core.trace_op(name, args)
    result = args[-1]
    for a in reversed(args[:-1]):
        result = _host(name, compute, (a, result))
    return result


@op("select")
def select(cond: Any, x1: Any, x2: Any) -> Any:
    """x1 where cond is not zero, else x2; both are evaluated."""
    if _symbolic((cond, x1, x2)):
        return core.trace_op("select", (cond, x1, x2))
    if impl.is_python_backend():
        return _python_backend().select(cond, x1, x2)
    return _host("select", lambda c, a, b: np.where(np.asarray(c) != 0, a, b)[()], (cond, x1, x2))


@op("ifte")
def ifte(cond: Any, x1: Any, x2: Any) -> Any:
    """x1 if cond is not zero, else x2."""
    if _symbolic((cond, x1, x2)):
        return core.trace_op("ifte", (cond, x1, x2))
    return x1 if cond else x2


@op("frexp")
def frexp(x: Any) -> Any:
    """Fraction in [0.5, 1) and exponent of x."""
    if impl.is_python_backend():
        return _python_backend().frexp(x)
    return core.trace_op("frexp", (x,)) if _symbolic((x,)) else np.frexp(x)


def _converting(name: str, doc: str) -> Callable[[Any, Any], Any]:
    def fn(obj: Any, dtype: Any) -> Any:
        if impl.inside_kernel() or _symbolic((obj,)):
            return core.trace_op(name, (obj, dtype))
        if impl.is_python_backend():
            return getattr(_python_backend(), name)(obj, dtype)
        from quadrants.lang.matrix import Matrix

        if isinstance(obj, Matrix):
            raise ValueError(f"Cannot apply {name} on a Matrix in Python-scope")
        if impl.pyquadrants._prog is None:
            raise not_initialised()
        raise _python_scope_error(name)

    fn.__name__ = fn.__qualname__ = name
    fn.__doc__ = doc
    return op(name)(fn)


cast = _converting("cast", "The value converted to dtype; floats truncate toward zero.")
bit_cast = _converting("bit_cast", "The same bits read as dtype, which must be as wide.")


@op("bit_shr")
def bit_shr(x1: Any, x2: Any) -> Any:
    """Logical shift to the right."""
    if impl.inside_kernel() or _symbolic((x1, x2)):
        return core.trace_op("bit_shr", (x1, x2))
    if impl.is_python_backend():
        return _python_backend().apply("bit_shr", (x1, x2))
    raise _python_scope_error("bit_shr")


@op("random")
def random(dtype: Any = builtins.float) -> Any:
    """A uniformly distributed number: floats in [0, 1), integers over their range."""
    if impl.inside_kernel():
        return core.trace_op("random", (dtype,))
    if impl.is_python_backend():
        raise _python_backend().unavailable("qd.random")
    if impl.pyquadrants._prog is None:
        raise not_initialised("_compiling_callable")
    raise _python_scope_error("random")


def _bit_count(name: str, doc: str) -> Callable[[Any], Any]:
    def fn(x: Any) -> Any:
        if impl.inside_kernel() or _symbolic((x,)):
            return core.trace_op(name, (x,))
        raise NotImplementedError(f"{name} has no Python fallback")

    fn.__name__ = fn.__qualname__ = name
    fn.__doc__ = doc
    return op(name)(fn)


popcnt = _bit_count("popcnt", "Number of set bits.")
clz = _bit_count("clz", "Number of leading zero bits.")
ffs = _bit_count("ffs", "One-based position of the lowest set bit, 0 if there is none.")


def _atomic(name: str, doc: str, operands: builtins.int = 2) -> Callable[..., Any]:
    def fn(x: Any, *values: Any) -> Any:
        if len(values) != operands - 1:
            raise TypeError(f"{name}() takes {operands} arguments, got {len(values) + 1}")
        if impl.inside_kernel() or _symbolic((x, *values)):
            return core.trace_op(name, (x, *values))
        if impl.is_python_backend():
            return _python_backend().atomic(name, x, values)
        raise QuadrantsSyntaxError(
            f"cannot use a non-writable target as the first operand of '{name}'"
        )

    fn.__name__ = fn.__qualname__ = name
    fn.__doc__ = doc
    return op(name)(fn)


atomic_add = _atomic("atomic_add", "x += y atomically; returns the old x.")
atomic_sub = _atomic("atomic_sub", "x -= y atomically; returns the old x.")
atomic_mul = _atomic("atomic_mul", "x *= y atomically; returns the old x.")
atomic_min = _atomic("atomic_min", "x = min(x, y) atomically; returns the old x.")
atomic_max = _atomic("atomic_max", "x = max(x, y) atomically; returns the old x.")
atomic_and = _atomic("atomic_and", "x &= y atomically; returns the old x.")
atomic_or = _atomic("atomic_or", "x |= y atomically; returns the old x.")
atomic_xor = _atomic("atomic_xor", "x ^= y atomically; returns the old x.")
atomic_exchange = _atomic("atomic_exchange", "Stores y in x atomically; returns the old x.")
atomic_cas = _atomic(
    "atomic_cas", "Stores new in x if x equals expected, atomically; returns the old x.", 3
)
volatile_load = _kernel_only("volatile_load", "Reads x anew, never a value read before.")


@op("static")
def static(x: Any, *xs: Any) -> Any:
    """Evaluates at compile time."""
    return [x, *xs] if xs else x


@op("static_assert")
def static_assert(cond: Any, msg: Any = None) -> None:
    """An assertion checked at compile time."""
    assert cond, msg


@op("static_print")
def static_print(*args: Any, **kwargs: Any) -> None:
    """Prints while the kernel is compiled."""
    if not impl.inside_kernel() and not impl.is_python_backend():
        raise _python_scope_error("static_print")
    print(*args, **kwargs)


@op("grouped")
def grouped(x: Any) -> Any:
    """Loops over x with one index vector."""
    from quadrants.lang._ndrange import _Ndrange

    if impl.inside_kernel() or impl.is_python_backend():
        if isinstance(x, _Ndrange):
            return x.grouped()
        if impl.is_python_backend():
            return _Ndrange(*getattr(x, "_batch_shape", x.shape)).grouped()
        raise QuadrantsSyntaxError("Only 'qd.ndrange' is allowed in 'qd.static(qd.grouped(...))'")
    raise _python_scope_error("grouped")


def _like(name: str, value: builtins.int) -> Callable[[Any], Any]:
    def fn(x: Any) -> Any:
        if impl.inside_kernel() or _symbolic((x,)):
            return core.trace_op(name, (x,))
        if impl.is_python_backend():
            return _python_backend().like(x, value)
        raise _python_scope_error(name)

    fn.__name__ = fn.__qualname__ = name
    fn.__doc__ = f"A value like x, filled with {value}."
    return op(name)(fn)


zero = _like("zero", 0)
one = _like("one", 1)


@op("loop_config")
def loop_config(
    *,
    block_dim: builtins.int | None = None,
    serialize: builtins.bool = False,
    parallelize: builtins.int | None = None,
    block_dim_adaptive: builtins.bool = True,
    bit_vectorize: builtins.bool = False,
    name: str | None = None,
) -> None:
    """Configures the next loop.

    Args:
        block_dim: threads per block on GPUs.
        serialize: run in order on one thread.
        parallelize: number of CPU threads.
        block_dim_adaptive: let the CPU choose its block size.
        bit_vectorize: copy whole words of 1-bit arrays.
        name: appears in dumps and device kernel names.
    """
    if impl.is_python_backend():
        return
    if not impl.inside_kernel():
        raise not_initialised("_compiling_callable")
    core.trace_op(
        "loop_config",
        (),
        block_dim=block_dim,
        serialize=serialize,
        parallelize=parallelize,
        block_dim_adaptive=block_dim_adaptive,
        bit_vectorize=bit_vectorize,
        name=name,
    )


block_local = _kernel_only(
    "block_local", "Stages the next loop's accesses to these fields in shared memory."
)
cache_read_only = _kernel_only(
    "cache_read_only", "Promises that the next loop does not write these fields."
)
assume_in_range = _kernel_only(
    "assume_in_range", "val, promised to lie in [base + low, base + high)."
)
no_activate = _kernel_only(
    "no_activate", "Promises that writes hit active cells of these nodes only."
)
mesh_local = _kernel_only("mesh_local", "Stages mesh attributes in shared memory.")
mesh_patch_idx = _kernel_only("mesh_patch_idx", "Number of the mesh patch being processed.")
global_thread_idx = _kernel_only("global_thread_idx", "Number of this thread.")
stop_grad = _kernel_only("stop_grad", "Keeps gradients from flowing into a field.")
clock_counter = _kernel_only("clock_counter", "Value of the device clock.")
get_addr = _kernel_only("get_addr", "Byte address of a field element.")
is_active = _kernel_only("is_active", "Whether a sparse cell is active.")
activate = _kernel_only("activate", "Activates a sparse cell.")
deactivate = _kernel_only("deactivate", "Deactivates a sparse cell.")
append = _kernel_only("append", "Appends to a dynamic node; returns the slot.")
length = _kernel_only("length", "Length of a dynamic node.")
rescale_index = _kernel_only(
    "rescale_index", "An index of one field scaled to the extents of another."
)
