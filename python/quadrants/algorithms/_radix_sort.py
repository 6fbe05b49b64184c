"""Stable radix sort of keys, with values if wanted.

Least significant digit first, 8 bits a pass. On a CPU: count digits per chunk, prefix sums over (digit,
chunk), scatter (Knuth, The Art of Computer Programming 3, section 5.2.5). On a GPU see `_block_sort`.
"""

from __future__ import annotations

from typing import Any

from quadrants.algorithms import _block_sort
from quadrants.algorithms._common import (
    BLOCK,
    at_least_one,
    blocks,
    check,
    depth_for,
    digit,
    has_blocks,
    level_slots,
    ordered_bits,
)
from quadrants.lang.kernel_impl import func
from quadrants.lang.ops import cast, static
from quadrants.lang.ops import min as _min
from quadrants.types.annotations import template
from quadrants.types.primitive_types import i32, u32

_RADIX_BITS = 8
_RADIX = 1 << _RADIX_BITS
_MAX_CHUNKS = 64  # a chunk's counters stay in the cache of the thread that fills them


@func
def _digit(key, dtype: template(), low_bit):
    return digit(ordered_bits(key, dtype), low_bit)


@func
def _chunk_pass(
    source: template(),
    target: template(),
    values: template(),
    values_to: template(),
    scratch: template(),
    n,
    dtype: template(),
    has_values: template(),
    low_bit: template(),
):
    chunks = _min(blocks(n), _MAX_CHUNKS)
    length = (n + chunks - 1) // _at_least_one(chunks)
    for c in range(chunks):
        for d in range(_RADIX):
            scratch[d * chunks + c] = u32(0)
        for i in range(c * length, _min(n, c * length + length)):
            at = _digit(source[i], dtype, low_bit) * chunks + c
            scratch[at] = scratch[at] + u32(1)  # not +=: the counter is this thread's own
    for _ in range(1):
        running = u32(0)
        for at in range(_RADIX * chunks):
            count = scratch[at]
            scratch[at] = running
            running += count
    for c in range(chunks):
        for i in range(c * length, _min(n, c * length + length)):
            key = source[i]
            at = _digit(key, dtype, low_bit) * chunks + c
            place = cast(scratch[at], i32)
            scratch[at] = cast(place + 1, u32)
            target[place] = key
            if static(has_values):
                values_to[place] = values[i]


@func
def _at_least_one(n):
    return at_least_one(n)


@func(requires_top_level=True)
def sort(
    keys: template(),
    tmp_keys: template(),
    values: template(),
    tmp_values: template(),
    scratch: template(),
    n: template(),
    key_dtype: template(),
    has_values: template(),
    end_bit: template(),
    log256_max_n: template(),
):
    """Sorts `keys[0:n]` in place, ascending and stable, and permutes `values[0:n]` alike.

    Integers by value; floats by -inf < ... < -0.0 < 0.0 < ... < inf < NaN. A radix sort from the low
    digits up (Knuth, "The Art of Computer Programming", volume 3, section 5.2.5), by counting and
    scanning (Blelloch, "Prefix sums and their applications", 1990).

    Args:
        keys: 1-D tensor of i32, u32, f32, i64, u64 or f64.
        tmp_keys: another tensor like keys; garbage afterwards.
        values, tmp_values: the same for the values; the keys again if there are none.
        scratch: 1-D u32 tensor of `sort_scratch_slots(n)` slots.
        n: 0-d i32 tensor: how many elements to sort.
        key_dtype: the dtype of the keys, at compile time.
        has_values: whether values are permuted, at compile time.
        end_bit: how many low bits of a key to look at, at compile time: a multiple of 16.
        log256_max_n: D, at compile time: n is at most 256**D.
    """
    static(check("sort key", key_dtype, log256_max_n))
    count = n[()]
    if static(has_blocks()):
        _block_sort.sort(
            keys,
            tmp_keys,
            values,
            tmp_values,
            scratch,
            count,
            key_dtype,
            has_values,
            static(2 * -(-end_bit // (2 * _RADIX_BITS))),
        )
    else:
        for low_bit in static(range(0, end_bit, 2 * _RADIX_BITS)):
            _chunk_pass(
                keys,
                tmp_keys,
                values,
                tmp_values,
                scratch,
                count,
                key_dtype,
                has_values,
                low_bit,
            )
            _chunk_pass(
                tmp_keys,
                keys,
                tmp_values,
                values,
                scratch,
                count,
                key_dtype,
                has_values,
                static(low_bit + _RADIX_BITS),
            )


def sort_scratch_slots(n: Any, log256_max_n: int | None = None) -> Any:
    """Slots of the workspace of a sort of n elements.

    Args:
        n: number of elements; a value of the kernel if `log256_max_n` is given.
        log256_max_n: D of the call; the smallest that fits if it is left out.

    Raises:
        ValueError: D is above 4.
    """
    depth = _min_log256_for_n(n) if log256_max_n is None else log256_max_n
    counters = blocks(n) * BLOCK
    return at_least_one(counters + level_slots(counters, depth))


def _min_log256_for_n(n: int) -> int:
    return depth_for(n)
