"""Operations of a thread block: index, barriers, shared memory, reductions and scans.

On targets without blocks what is checked first is checked, then they say so.
"""

from __future__ import annotations

import math
from typing import Any

from quadrants._lib import core
from quadrants.lang import impl, ops
from quadrants.lang._ops.operation import python_scope_error
from quadrants.lang._values.matrix_types import MatrixType
from quadrants.lang.exception import QuadrantsCompilationError, QuadrantsTypeError
from quadrants.lang.kernel_impl import func
from quadrants.lang.simt import reductions, subgroup
from quadrants.lang.simt._target import deprecated, emit, has_blocks, needs, no_blocks
from quadrants.lang.simt.reductions import _copy
from quadrants.types.primitive_types import DataType, i32, u32

_ROOM = "qd.block"


@needs(no_blocks, _ROOM)
def thread_idx() -> Any:
    """Index of the thread in its block."""
    return emit("thread_number", "in_block")


@needs(no_blocks, _ROOM)
def global_thread_idx() -> Any:
    """Index of the thread in the grid."""
    return emit("thread_number", "in_grid")


@needs(no_blocks, _ROOM, anywhere=True)
def sync() -> None:
    """Waits for all threads of the block and orders their memory accesses."""
    emit("block_sync")


@needs(no_blocks, _ROOM, anywhere=True)
def mem_fence() -> None:
    """Orders a thread's memory accesses for its block; nobody waits."""
    emit("fence", "block")


@needs(no_blocks, _ROOM, anywhere=True)
def sync_all_nonzero(predicate: Any) -> Any:
    """`sync` that gives 1 if the predicate is not 0 in all threads, else 0."""
    return emit("block_vote", "all", predicate)


@needs(no_blocks, _ROOM, anywhere=True)
def sync_any_nonzero(predicate: Any) -> Any:
    """`sync` that gives 1 if the predicate is not 0 in some thread, else 0."""
    return emit("block_vote", "any", predicate)


@needs(no_blocks, _ROOM, anywhere=True)
def sync_count_nonzero(predicate: Any) -> Any:
    """`sync` that gives the number of threads whose predicate is not 0."""
    return emit("block_vote", "number", predicate)


def mem_sync() -> None:
    """`mem_fence` under its old name."""
    deprecated("block", "mem_sync", "mem_fence")
    mem_fence()


class SharedArray:
    """Memory that the threads of a block share, for as long as their task runs.

    Args:
        shape: extents, known at compile time.
        dtype: scalar, vector or matrix type of the elements.

    Raises:
        ValueError: shape is no integer and no tuple of integers.
        QuadrantsTypeError: dtype is no type of the kernel language.
        QuadrantsCompilationError: the target has no blocks, or no block has that much.
    """

    def __init__(self, shape: int | tuple[int, ...], dtype: Any) -> None:
        extents = (shape,) if type(shape) is int else shape
        if not isinstance(extents, (tuple, list)) or any(type(n) is not int for n in extents):
            raise ValueError(
                "qd.simt.block.shared_array shape must be an integer or a tuple of integers, "
                f"but got {shape}"
            )
        if not isinstance(dtype, (DataType, MatrixType)):
            raise QuadrantsTypeError(
                f"qd.simt.block.SharedArray takes a dtype such as qd.f32, not {dtype}"
            )
        impl.check_initialised()
        if not impl.inside_kernel():
            raise python_scope_error("SharedArray")
        if not has_blocks():
            raise _not_here("SharedArray")
        if any(n <= 0 for n in extents) or math.prod(extents) >= 1 << 24:
            raise QuadrantsCompilationError(
                f"qd.simt.block.SharedArray cannot have the shape {tuple(extents)}"
            )
        self.shape = tuple(extents)
        self.dtype = dtype
        self._number = emit("shared_array")

    def __getitem__(self, index: Any) -> Any:
        return core.trace_op("subscript", (self, index))

    def __setitem__(self, index: Any, value: Any) -> None:
        _put(self, index, value, True)


def _not_here(name: str) -> QuadrantsCompilationError:
    return QuadrantsCompilationError(str(no_blocks(f"qd.simt.block.{name}")))


# --- reductions and scans -----------------------------------------------------------------------


def _subgroups(name: str, block_dim: Any) -> int:
    """Checks the block of a reduction and gives the number of its subgroups."""
    size = 1 << subgroup.log2_group_size()
    assert type(block_dim) is int and block_dim > 0 and block_dim % size == 0, (
        f"qd.simt.block.{name}: block_dim must be a positive multiple of subgroup size {size}"
    )
    return block_dim // size


@func
def _put(shared, at, value, is_mine):
    if is_mine:
        shared[at] = value


@func
def _get(shared, at):
    return shared[at]


def _of_subgroups(value: Any, count: int, last: bool) -> Any:
    """The values of each subgroup's first or last lane, as a shared array."""
    log2_size = subgroup.log2_group_size()
    shared = SharedArray((count,), _copy(value).dtype)
    speaks = (1 << log2_size) - 1 if last else 0
    _put(shared, thread_idx() >> log2_size, value, subgroup.invocation_id() == speaks)
    sync()
    return shared


def _joined(name: str, value: Any, block_dim: int, op: Any, dtype: Any, everywhere: bool) -> Any:
    count = _subgroups(name, block_dim)
    value = reductions._reduce_tiled(ops.cast(value, dtype), op, subgroup.log2_group_size())
    if count == 1:
        return subgroup.broadcast_first(value) if everywhere else value
    parts = _of_subgroups(value, count, last=False)
    total = _get(parts, 0)
    for k in range(1, count):
        total = op(total, _get(parts, k))
    return total


def reduce(value: Any, block_dim: int, op: Any, dtype: Any) -> Any:
    """Combines the values of all threads by a func of two; thread 0 gets the result."""
    return _joined("reduce", value, block_dim, op, dtype, False)


def reduce_all(value: Any, block_dim: int, op: Any, dtype: Any) -> Any:
    """Combines the values of all threads by a func of two; all get the result."""
    return _joined("reduce_all", value, block_dim, op, dtype, True)


def _add_before(scanned: Any, total: Any, count: int, op: Any) -> Any:
    """Combines what each subgroup has scanned with the totals of those before it."""
    if count == 1:
        return scanned
    totals = _of_subgroups(total, count, last=True)
    own = thread_idx() >> subgroup.log2_group_size()
    before = _get(totals, 0)
    for k in range(1, count - 1):
        before = ops.select(own > k, op(before, _get(totals, k)), before)
    return ops.select(own > 0, op(before, scanned), scanned)


def inclusive_scan(value: Any, block_dim: int, op: Any, dtype: Any) -> Any:
    """Combines the values of the threads up to this one."""
    count = _subgroups("inclusive_scan", block_dim)
    value = ops.cast(value, dtype)
    scanned = reductions._inclusive_scan_tiled(value, op, subgroup.log2_group_size())
    return _add_before(scanned, scanned, count, op)


def exclusive_scan(value: Any, block_dim: int, op: Any, identity: Any, dtype: Any) -> Any:
    """Combines the values of the threads before this one; the first gets the identity."""
    count = _subgroups("exclusive_scan", block_dim)
    value = ops.cast(value, dtype)
    scanned = reductions._exclusive_scan_tiled(value, op, identity, subgroup.log2_group_size())
    return _add_before(scanned, op(scanned, value), count, op)


def _family(kind: str, op: str) -> Any:
    combine, identity = reductions.OPS[op]

    def apply(value: Any, block_dim: int, dtype: Any) -> Any:
        _subgroups(apply.__name__, block_dim)
        if kind == "exclusive":
            nothing = identity(ops.cast(value, dtype))
            return exclusive_scan(value, block_dim, combine, nothing, dtype)
        return _KINDS[kind](value, block_dim, combine, dtype)

    apply.__name__ = apply.__qualname__ = f"{kind}_{op}"
    apply.__doc__ = f"`{kind}` or scan by {op}, in the order of the threads."
    return apply


_KINDS = {"reduce": reduce, "reduce_all": reduce_all, "inclusive": inclusive_scan}
for _kind in ("reduce", "reduce_all", "inclusive", "exclusive"):
    for _op in ("add", "min", "max"):
        globals()[f"{_kind}_{_op}"] = _family(_kind, _op)


# --- ranks ----------------------------------------------------------------------------------------


@func
def _or_into(shared, at, bits):
    ops.atomic_or(shared[at], bits)


def radix_rank_match_atomic_or(
    key: Any,
    block_dim: int,
    radix_bits: int,
    bit_start: int,
    num_bits: int,
    bins: Any,
    excl_prefix: Any,
) -> Any:
    """Stable rank of a thread's key in the block by `num_bits` bits from `bit_start` on.

    Args:
        key: u32.
        block_dim: threads of the block, `1 << radix_bits`.
        bins: SharedArray of that many i32: gets how often each digit occurs.
        excl_prefix: the same: gets how many keys have smaller digits.
    """
    name = "block.radix_rank_match_atomic_or"
    assert subgroup.group_size() in (32, 64), f"{name}: subgroup size must be 32 or 64"
    assert block_dim == 1 << radix_bits, f"{name}: block_dim must be 1 << radix_bits"
    count = _subgroups("radix_rank_match_atomic_or", block_dim)
    thread, lane = thread_idx(), subgroup.invocation_id()
    own = (thread >> subgroup.log2_group_size()) * block_dim  # where its subgroup's words begin
    digit = ops.cast((key >> bit_start) & u32((1 << num_bits) - 1), i32)
    # A word for each subgroup and digit: the lanes that have it, then how many keys of the digit
    # stand in the subgroups before.
    words = SharedArray((count * block_dim,), u32)
    for k in range(count):
        _put(words, thread + k * block_dim, u32(0), True)
    sync()
    _or_into(words, own + digit, subgroup.lanemask_eq(lane))
    sync()
    before_me = ops.popcnt(_get(words, own + digit) & subgroup.lanemask_lt(lane))
    sync()
    total = ops.cast(_copy(0), i32)
    for k in range(count):  # this thread's digit is its index
        here = ops.popcnt(_get(words, thread + k * block_dim))
        _put(words, thread + k * block_dim, ops.cast(total, u32), True)
        total = total + here
    smaller = globals()["exclusive_add"](total, block_dim, i32)
    _put(bins, thread, total, True)
    _put(excl_prefix, thread, smaller, True)
    sync()
    return _get(excl_prefix, digit) + ops.cast(_get(words, own + digit), i32) + before_me
