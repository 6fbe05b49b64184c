"""Exclusive prefix scans of a whole array."""

from __future__ import annotations

from typing import Any

from quadrants.algorithms import _blocks
from quadrants.algorithms._common import (
    BLOCK,
    blocks,
    check,
    constant,
    has_blocks,
    highest,
    lowest,
    unsigned,
)
from quadrants.algorithms._reduce import reduce_scratch_slots
from quadrants.lang.kernel_impl import func
from quadrants.lang.ops import bit_cast, static
from quadrants.lang.ops import max as _max
from quadrants.lang.ops import min as _min
from quadrants.types.annotations import template


@func
def _add(a, b):
    return a + b


@func
def _smaller(a, b):
    return _min(a, b)


@func
def _larger(a, b):
    return _max(a, b)


def _distinct(arr: Any, out: Any) -> None:
    if arr is out:
        raise ValueError("An exclusive scan cannot work in place: out must not be arr.")


@func
def _exclusive_scan(
    arr: template(),
    out: template(),
    scratch: template(),
    n,
    dtype: template(),
    depth: template(),
    combine: template(),
    identity: template(),
):
    static(check("device scan", dtype, depth))
    static(_distinct(arr, out))
    if static(has_blocks()):
        _blocks.scan(arr, out, scratch, 0, n, dtype, combine, identity, False)
    elif static(depth == 1):  # at most one block: the workspace may have a single slot
        for _ in range(1):
            running = constant(identity, dtype)
            for i in range(n):
                x = arr[i]
                out[i] = running
                running = combine(running, x)
    else:
        for b in range(blocks(n)):
            total = constant(identity, dtype)
            for i in range(b * BLOCK, _min(n, b * BLOCK + BLOCK)):
                total = combine(total, arr[i])
            scratch[b] = bit_cast(total, static(unsigned(dtype)))
        for _ in range(1):
            running = constant(identity, dtype)
            for b in range(blocks(n)):
                x = bit_cast(scratch[b], dtype)
                scratch[b] = bit_cast(running, static(unsigned(dtype)))
                running = combine(running, x)
        for b in range(blocks(n)):
            running = bit_cast(scratch[b], dtype)
            for i in range(b * BLOCK, _min(n, b * BLOCK + BLOCK)):
                x = arr[i]
                out[i] = running
                running = combine(running, x)


@func(requires_top_level=True)
def exclusive_scan_add(
    arr: template(),
    out: template(),
    scratch: template(),
    n,
    dtype: template(),
    log256_max_n: template(),
):
    """Sets `out[i]` to the sum of `arr[0:i]` for i below n; out keeps the rest.

    By blocks and a scan of what the blocks add up to (Blelloch, "Prefix sums and their applications",
    1990).

    Args:
        arr: 1-D tensor of i32, u32, f32, i64, u64 or f64.
        out: another 1-D tensor of that dtype, at least n long.
        scratch: 1-D u32 (u64 for dtypes of 8 bytes) tensor of `exclusive_scan_scratch_slots(n)` slots.
        n: i32, may be a value of the kernel.
        dtype: the dtype of arr, at compile time.
        log256_max_n: D, at compile time: n is at most 256**D.
    """
    _exclusive_scan(arr, out, scratch, n, dtype, log256_max_n, _add, 0)


@func(requires_top_level=True)
def exclusive_scan_min(
    arr: template(),
    out: template(),
    scratch: template(),
    n,
    dtype: template(),
    log256_max_n: template(),
):
    """Sets `out[i]` to the smallest of `arr[0:i]` for i below n, `out[0]` to the largest of the dtype.

    Args:
        arr: 1-D tensor of i32, u32, f32, i64, u64 or f64.
        out: another 1-D tensor of that dtype, at least n long.
        scratch: 1-D u32 (u64 for dtypes of 8 bytes) tensor of `exclusive_scan_scratch_slots(n)` slots.
        n: i32, may be a value of the kernel.
        dtype: the dtype of arr, at compile time.
        log256_max_n: D, at compile time: n is at most 256**D.
    """
    _exclusive_scan(arr, out, scratch, n, dtype, log256_max_n, _smaller, static(highest(dtype)))


@func(requires_top_level=True)
def exclusive_scan_max(
    arr: template(),
    out: template(),
    scratch: template(),
    n,
    dtype: template(),
    log256_max_n: template(),
):
    """Sets `out[i]` to the largest of `arr[0:i]` for i below n, `out[0]` to the smallest of the dtype.

    Args:
        arr: 1-D tensor of i32, u32, f32, i64, u64 or f64.
        out: another 1-D tensor of that dtype, at least n long.
        scratch: 1-D u32 (u64 for dtypes of 8 bytes) tensor of `exclusive_scan_scratch_slots(n)` slots.
        n: i32, may be a value of the kernel.
        dtype: the dtype of arr, at compile time.
        log256_max_n: D, at compile time: n is at most 256**D.
    """
    _exclusive_scan(arr, out, scratch, n, dtype, log256_max_n, _larger, static(lowest(dtype)))


def exclusive_scan_scratch_slots(n: Any, log256_max_n: int | None = None) -> Any:
    """Slots of the workspace of a scan of n elements.

    Args:
        n: number of elements; a value of the kernel if `log256_max_n` is given.
        log256_max_n: D of the call; the smallest that fits if it is left out.

    Raises:
        ValueError: D is above 4.
    """
    return reduce_scratch_slots(n, log256_max_n)
