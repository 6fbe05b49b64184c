"""Compaction of an array, and sums of runs of equal keys."""

from __future__ import annotations

from typing import Any

from quadrants.algorithms import _blocks
from quadrants.algorithms._common import (
    BLOCK,
    MAX_DEPTH,
    at_least_one,
    blocks,
    check,
    check_depth,
    constant,
    depth_for,
    has_blocks,
)
from quadrants.lang.kernel_impl import func
from quadrants.lang.ops import atomic_add, cast, static
from quadrants.lang.ops import min as _min
from quadrants.lang.ops import select as choose
from quadrants.types.annotations import template
from quadrants.types.primitive_types import i32, u32


@func
def _prefixes(scratch: template(), count, total: template()):
    """Turns `scratch[0:count]` into the sums in front; their end goes to `total[0]`."""
    for _ in range(1):
        running = 0
        for b in range(count):
            x = cast(scratch[b], i32)
            scratch[b] = cast(running, u32)
            running += x
        total[0] = running


@func
def _select_chunks(
    arr: template(), flags: template(), out: template(), num_out: template(), scratch: template(), n
):
    for b in range(blocks(n)):
        found = 0
        for i in range(b * BLOCK, _min(n, b * BLOCK + BLOCK)):
            found += flags[i]
        scratch[b] = cast(found, u32)
    _prefixes(scratch, blocks(n), num_out)
    for b in range(blocks(n)):
        at = cast(scratch[b], i32)
        for i in range(b * BLOCK, _min(n, b * BLOCK + BLOCK)):
            if flags[i] != 0:
                out[at] = arr[i]
                at += 1


@func(requires_top_level=True)
def select(
    arr: template(),
    flags: template(),
    out: template(),
    num_out: template(),
    scratch: template(),
    n,
    log256_max_n: template(),
):
    """Copies the elements of `arr[0:n]` whose flag is 1 to the front of out, in order.

    Args:
        arr: 1-D tensor of scalars or structs.
        flags: 1-D i32 tensor of zeros and ones.
        out: another tensor like arr, at least n long; elements behind the copied ones keep theirs.
        num_out: 1-D i32 tensor of one element: the number copied.
        scratch: 1-D u32 tensor of `select_scratch_slots(n)` slots.
        n: i32, may be a value of the kernel.
        log256_max_n: D, at compile time: n is at most 256**D.
    """
    static(check_depth(log256_max_n))
    if static(has_blocks()):
        _blocks.select(arr, flags, out, num_out, scratch, n)
    else:
        _select_chunks(arr, flags, out, num_out, scratch, n)


@func
def _begins_run(keys: template(), i):
    begins = i == 0
    if not begins:
        begins = keys[i] != keys[i - 1]
    return begins


@func
def _reduce_chunks(
    keys_in: template(),
    values_in: template(),
    keys_out: template(),
    values_out: template(),
    num_runs: template(),
    scratch: template(),
    n,
    value_dtype: template(),
):
    for b in range(blocks(n)):
        found = 0
        for i in range(b * BLOCK, _min(n, b * BLOCK + BLOCK)):
            if _begins_run(keys_in, i):
                found += 1
        scratch[b] = cast(found, u32)
    _prefixes(scratch, blocks(n), num_runs)
    for r in range(num_runs[0]):
        values_out[r] = constant(0, value_dtype)
    for b in range(blocks(n)):
        run = cast(scratch[b], i32) - 1
        total = constant(0, value_dtype)
        for i in range(b * BLOCK, _min(n, b * BLOCK + BLOCK)):
            if _begins_run(keys_in, i):
                if i > b * BLOCK:
                    atomic_add(values_out[run], total)
                run += 1
                keys_out[run] = keys_in[i]
                total = constant(0, value_dtype)
            total += values_in[i]
        atomic_add(values_out[run], total)


@func(requires_top_level=True)
def reduce_by_key_add(
    keys_in: template(),
    values_in: template(),
    keys_out: template(),
    values_out: template(),
    num_runs: template(),
    scratch: template(),
    n,
    value_dtype: template(),
    log256_max_n: template(),
):
    """Adds up the values of every run of equal neighbouring keys.

    Args:
        keys_in, values_in: 1-D tensors of scalars, at least n long.
        keys_out, values_out: other tensors like these: a key and a sum for each run, in order.
        num_runs: 1-D i32 tensor of one element: the number of runs.
        scratch: 1-D u32 tensor of `reduce_by_key_scratch_slots(n)` slots.
        n: i32, may be a value of the kernel.
        value_dtype: the dtype of the values, at compile time.
        log256_max_n: D, at compile time: n is at most 256**D.
    """
    static(check("reduce_by_key value", value_dtype, log256_max_n))
    if static(has_blocks()):
        _blocks.reduce_by_key_add(
            keys_in, values_in, keys_out, values_out, num_runs, scratch, n, value_dtype
        )
    else:
        _reduce_chunks(keys_in, values_in, keys_out, values_out, num_runs, scratch, n, value_dtype)


def select_scratch_slots(n: Any) -> Any:
    """Slots of the workspace of a selection among n elements, for any depth.

    Args:
        n: number of elements, may be a value of the kernel.

    Raises:
        ValueError: n is above 256**4.
    """
    return at_least_one(n + blocks(n)) + _upper_levels(n)


def reduce_by_key_scratch_slots(n: Any) -> Any:
    """Slots of the workspace of sums over n keys, for any depth; arguments as `select_scratch_slots`."""
    return at_least_one(n + _if(n > BLOCK, blocks(n))) + _upper_levels(n)


def _upper_levels(n: Any) -> Any:
    """Blocks of the second level and above, where there are several."""
    if isinstance(n, int):
        check_depth(depth_for(n))
    count, total = blocks(n), 0
    for _ in range(MAX_DEPTH - 2):
        count = blocks(count)
        total = total + _if(count > 1, count)
    return total


def _if(condition: Any, value: Any) -> Any:
    """The value, or 0."""
    if isinstance(condition, bool):
        return value if condition else 0
    return choose(condition, value, 0)
