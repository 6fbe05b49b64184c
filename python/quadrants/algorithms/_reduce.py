"""Reductions of a whole array. The compiler makes them trees: they are ordinary `+=` loops."""

from __future__ import annotations

from typing import Any

from quadrants.algorithms import _common
from quadrants.algorithms._common import check, constant, highest, lowest
from quadrants.lang.kernel_impl import func
from quadrants.lang.ops import atomic_add, atomic_max, atomic_min, static
from quadrants.types.annotations import template


@func
def _reduce(
    arr: template(),
    out: template(),
    n,
    dtype: template(),
    depth: template(),
    combine: template(),
    identity: template(),
):
    static(check("device reduce", dtype, depth))
    out[0] = constant(identity, dtype)
    for i in range(n):
        combine(out[0], arr[i])


@func(requires_top_level=True)
def reduce_add(
    arr: template(),
    out: template(),
    scratch: template(),
    n,
    dtype: template(),
    log256_max_n: template(),
):
    """Sets `out[0]` to the sum of `arr[0:n]`; 0 if n is 0.

    Args:
        arr: 1-D tensor of i32, u32, f32, i64, u64 or f64.
        out: 1-D tensor of one element of that dtype, none of the other two.
        scratch: 1-D u32 (u64 for dtypes of 8 bytes) tensor of `reduce_scratch_slots(n)` slots.
        n: i32, may be a value of the kernel.
        dtype: the dtype of arr, at compile time.
        log256_max_n: D, at compile time: n is at most 256**D.
    """
    _reduce(arr, out, n, dtype, log256_max_n, atomic_add, 0)


@func(requires_top_level=True)
def reduce_min(
    arr: template(),
    out: template(),
    scratch: template(),
    n,
    dtype: template(),
    log256_max_n: template(),
):
    """Sets `out[0]` to the smallest of `arr[0:n]`; the largest value of the dtype if n is 0.

    Args:
        arr: 1-D tensor of i32, u32, f32, i64, u64 or f64.
        out: 1-D tensor of one element of that dtype, none of the other two.
        scratch: 1-D u32 (u64 for dtypes of 8 bytes) tensor of `reduce_scratch_slots(n)` slots.
        n: i32, may be a value of the kernel.
        dtype: the dtype of arr, at compile time.
        log256_max_n: D, at compile time: n is at most 256**D.
    """
    _reduce(arr, out, n, dtype, log256_max_n, atomic_min, static(highest(dtype)))


@func(requires_top_level=True)
def reduce_max(
    arr: template(),
    out: template(),
    scratch: template(),
    n,
    dtype: template(),
    log256_max_n: template(),
):
    """Sets `out[0]` to the largest of `arr[0:n]`; the smallest value of the dtype if n is 0.

    Args:
        arr: 1-D tensor of i32, u32, f32, i64, u64 or f64.
        out: 1-D tensor of one element of that dtype, none of the other two.
        scratch: 1-D u32 (u64 for dtypes of 8 bytes) tensor of `reduce_scratch_slots(n)` slots.
        n: i32, may be a value of the kernel.
        dtype: the dtype of arr, at compile time.
        log256_max_n: D, at compile time: n is at most 256**D.
    """
    _reduce(arr, out, n, dtype, log256_max_n, atomic_max, static(lowest(dtype)))


def reduce_scratch_slots(n: Any, log256_max_n: int | None = None) -> Any:
    """Slots of the workspace of a reduction of n elements.

    Args:
        n: number of elements; a value of the kernel if `log256_max_n` is given.
        log256_max_n: D of the call; the smallest that fits if it is left out.

    Raises:
        ValueError: D is above 4.
    """
    depth = _reduce_depth_for_n(n) if log256_max_n is None else log256_max_n
    return _common.at_least_one(_common.level_slots(n, depth))


def _reduce_depth_for_n(n: int) -> int:
    return _common.depth_for(n)
