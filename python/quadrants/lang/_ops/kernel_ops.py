"""What only the kernel language has: compile-time helpers, loop options, hints, cells of trees."""

from __future__ import annotations

from typing import Any

from quadrants._lib import core
from quadrants.lang import impl
from quadrants.lang._ops.operation import (
    kernel_only,
    op,
    python_backend,
    python_scope_error,
    symbolic,
)
from quadrants.lang.exception import QuadrantsSyntaxError, not_initialised

# --- at compile time ---


@op
def static(x: Any, *xs: Any) -> Any:
    """Evaluates an expression while the kernel is compiled.

    `if qd.static(...)` keeps one branch, `for i in qd.static(range(n))` unrolls the loop.

    Args:
        x: compile-time value: a constant, a template argument, a global, a list, range or ndrange.
        *xs: more of them.

    Returns:
        x, or the list of all arguments if there are several.

    Raises:
        QuadrantsCompilationError: the value is known only when the kernel runs.
    """
    return [x, *xs] if xs else x


@op
def static_assert(cond: Any, msg: Any = None) -> None:
    """Checks a condition while the kernel is compiled.

    Args:
        cond: compile-time value.
        msg: text of the error.

    Raises:
        AssertionError: cond is false; kernels get it as a QuadrantsCompilationError.
    """
    assert cond, msg


@op
def static_print(*args: Any, **kwargs: Any) -> None:
    """Prints compile-time values once, while the kernel is compiled.

    Args:
        *args: values, as for Python's `print`; what is known at run time only prints as its type.
        **kwargs: `sep`, `end` and `file` of Python's `print`.

    Raises:
        AssertionError: called outside a kernel.
    """
    if not impl.inside_kernel() and not impl.is_python_backend():
        raise python_scope_error("static_print")
    print(*args, **kwargs)


@op
def grouped(x: Any) -> Any:
    """Loops over x with one integer vector instead of one index per axis.

    Args:
        x: field, ndarray or `qd.ndrange`.

    Raises:
        AssertionError: called outside a kernel.
        QuadrantsSyntaxError: x is none of these.
    """
    from quadrants.lang._ndrange import _Ndrange

    if impl.inside_kernel() or impl.is_python_backend():
        if isinstance(x, _Ndrange):
            return x.grouped()
        if impl.is_python_backend():
            return _Ndrange(*getattr(x, "_batch_shape", x.shape)).grouped()
        raise QuadrantsSyntaxError("Only 'qd.ndrange' is allowed in 'qd.static(qd.grouped(...))'")
    raise python_scope_error("grouped")


def _like(name: str, value: int, x: Any) -> Any:
    if impl.inside_kernel() or symbolic((x,)):
        return core.trace_op(name, (x,))
    if impl.is_python_backend():
        return python_backend().like(x, value)
    raise python_scope_error(name)


@op
def zero(x: Any) -> Any:
    """Zeros of the shape and type of x, a number, vector or matrix.

    Raises:
        AssertionError: called outside a kernel.
    """
    return _like("zero", 0, x)


@op
def one(x: Any) -> Any:
    """Ones of the shape and type of x, a number, vector or matrix.

    Raises:
        AssertionError: called outside a kernel.
    """
    return _like("one", 1, x)


# --- loops ---


@op
def loop_config(
    *,
    block_dim: int | None = None,
    serialize: bool = False,
    parallelize: int | None = None,
    block_dim_adaptive: bool = True,
    bit_vectorize: bool = False,
    name: str | None = None,
) -> None:
    """Configures the loop that follows.

    Args:
        block_dim: threads per block on GPUs, a power of two up to 1024.
        serialize: run in order on one thread.
        parallelize: number of CPU threads, a positive integer.
        block_dim_adaptive: let the CPU choose its block size.
        bit_vectorize: copy whole words of 1-bit arrays.
        name: appears in dumps and device kernel names.

    Raises:
        QuadrantsCompilationError: a value is out of range.
        QuadrantsRuntimeError: called outside a kernel.
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


@kernel_only
def block_local(*args: Any) -> Any:
    """Wishes that the next loop's accesses to these fields are staged in shared memory; so far they are not.

    Args:
        *args: fields.
    """


@kernel_only
def cache_read_only(*args: Any) -> Any:
    """Promises that the next loop does not write these fields, so loads may be cached.

    Args:
        *args: fields.
    """


@kernel_only
def mesh_local(*args: Any) -> Any:
    """Stages attributes of mesh elements in shared memory for the next loop.

    Args:
        *args: fields of mesh elements.
    """


@kernel_only
def mesh_patch_idx() -> Any:
    """Number of the mesh patch that the enclosing loop is processing, an i32."""


@kernel_only
def assume_in_range(val: Any, base: Any, low: Any, high: Any) -> Any:
    """Promises that base + low <= val < base + high; the value is not checked.

    Args:
        val: integer.
        base: integer, usually a loop index.
        low: compile-time integer.
        high: compile-time integer.

    Returns:
        val.
    """


@kernel_only
def no_activate(*args: Any) -> Any:
    """Promises that the next loop writes only to cells of these nodes that are active.

    Args:
        *args: sparse nodes.
    """


# --- threads and memory ---


@kernel_only
def global_thread_idx() -> Any:
    """Number of this thread within the task, an i32."""


@kernel_only
def clock_counter() -> Any:
    """Value of the clock of the device, an i64; see `qd.clock_freq_hz` for its unit."""


@kernel_only
def volatile_load(target: Any) -> Any:
    """Reads memory now: the compiler neither reuses an earlier load nor moves this one.

    Args:
        target: element of a field or an ndarray.

    Returns:
        The element.

    Raises:
        QuadrantsSyntaxError: target cannot be assigned to, is a whole field or a local variable.
    """


@kernel_only
def stop_grad(x: Any) -> Any:
    """Keeps gradients from flowing into a field: its loads in the enclosing block are constants to them.

    Args:
        x: field.
    """


# --- cells ---


@kernel_only
def get_addr(f: Any, indices: Any) -> Any:
    """Byte address of an element, a u64; does not activate sparse cells.

    Args:
        f: field.
        indices: list of integers, one per axis; an integer if there is one axis.
    """


@op
def rescale_index(a: Any, b: Any, I: Any) -> Any:  # noqa: E741
    """An index of one field or node, scaled to the extents of another.

    Args:
        a: field or node that the index is for.
        b: field or node that the result is for.
        I: integer vector or list of integers.

    Returns:
        An integer vector: where the extents of a are n times those of b, component / n and so on.

    Raises:
        AssertionError: not given a field or node, or no index; kernels get a QuadrantsTypeError.
    """
    if impl.inside_kernel() or symbolic((I,)):
        return core.trace_op("rescale_index", (a, b, I))
    if impl.is_python_backend():
        return python_backend().kernel_only("rescale_index", (a, b, I))
    from quadrants.lang.field import Field
    from quadrants.lang.matrix import Matrix, Vector
    from quadrants.lang.snode import SNode

    for which, given in (("first", a), ("second", b)):
        assert isinstance(given, (Field, SNode)), (
            f"The {which} argument must be a field or an SNode, got {given!r}"
        )
    assert isinstance(I, (list, Matrix)), f"The third argument must be an index, got {I!r}"
    scaled = Vector(I.to_numpy() if isinstance(I, Matrix) else I)
    for k, (count, extent, target) in enumerate(zip(scaled, a.shape, b.shape)):
        scaled[k] = count * (target // extent) if target > extent else count // (extent // target)
    return scaled


@kernel_only
def index_vector(indices: Any, count: int, name: str) -> Any:
    """Indices as kernels take them, as an i32 vector; for operations on nodes.

    Args:
        indices: integer, list of integers or integer vector.
        count: how many it must be.
        name: of what is indexed.

    Raises:
        QuadrantsRuntimeError: it is another number of them.
    """


@kernel_only
def struct_leaf(val: Any, k: int) -> Any:
    """The k-th member of a struct, members of inner structs counted singly."""
