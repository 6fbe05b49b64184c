"""Radix sort on targets whose threads work in blocks: a pass reads and writes the keys once.

Histograms of all digits are taken first. A pass sorts tiles of 4,096 (3,072) keys in shared memory and finds
where a tile's keys of one digit go by looking back over what the tiles before it have of that digit
(Adinets and Merrill, "Onesweep: a faster least significant digit radix sort for GPUs", 2022).

The workspace: a histogram and a ticket for each pass; two sets of a word for each tile and digit
(`_look_back`). A pass uses one set and clears the other for the next.
"""

from __future__ import annotations

from typing import Any

from quadrants.algorithms import _look_back
from quadrants.algorithms._common import (
    THREADS,
    constant,
    digit,
    key_of,
    lane_mask,
    ordered_bits,
    unsigned,
)
from quadrants.lang.kernel_impl import func
from quadrants.lang.matrix import Vector
from quadrants.lang.ops import atomic_add, atomic_or, cast, loop_config, popcnt, static
from quadrants.lang.ops import min as _min
from quadrants.lang.ops import select as choose
from quadrants.lang.simt import block, subgroup
from quadrants.types.annotations import template
from quadrants.types.primitive_types import i32, u16, u32

# Of a thread, by the size of a key. Two tiles must find room in the workspace.
_ITEMS = {4: 16, 8: 12}
_RADIX = THREADS  # a thread for each digit
_HISTOGRAM_BLOCKS = 1024


def _items(dtype: Any) -> int:
    return _ITEMS[dtype.size]


def _tile(dtype: Any) -> int:
    """Keys of a tile."""
    return THREADS * _items(dtype)


@func
def _loaded(source: template(), first, left, dtype: template(), step: template()):
    """Ordered bits of elements first, first + step and so on; all ones from `left` on."""
    none = static(2 ** (8 * dtype.size) - 1)
    held = Vector([constant(none, unsigned(dtype)) for _ in range(_items(dtype))])
    if left > static((_items(dtype) - 1) * step):
        for k in static(range(_items(dtype))):
            held[k] = ordered_bits(source[first + k * step], dtype)
    else:
        for k in static(range(_items(dtype))):
            if k * step < left:
                held[k] = ordered_bits(source[first + k * step], dtype)
    return held


@func
def _count_digits(
    keys: template(),
    scratch: template(),
    n,
    tiles,
    sweeps,
    i,
    dtype: template(),
    passes: template(),
):
    """Adds the digits of tiles b, b + sweeps and so on to the histograms; b is the block."""
    thread = i % THREADS
    bins = block.SharedArray((passes * _RADIX,), u32)
    for p in range(passes):
        bins[p * _RADIX + thread] = u32(0)
    block.sync()
    tile = i // THREADS
    while tile < tiles:
        left = n - tile * _tile(dtype) - thread
        held = _loaded(keys, tile * _tile(dtype) + thread, left, dtype, THREADS)
        for k in static(range(_items(dtype))):
            if k * THREADS < left:
                for p in static(range(passes)):
                    atomic_add(bins[p * _RADIX + digit(held[k], 8 * p)], u32(1))
        tile += sweeps
    block.sync()
    for p in range(passes):
        atomic_add(scratch[p * _RADIX + thread], bins[p * _RADIX + thread])


@func
def _sort_tile(
    source: template(),
    target: template(),
    values: template(),
    values_to: template(),
    scratch: template(),
    n,
    tiles,
    number,
    i,
    dtype: template(),
    has_values: template(),
    passes: template(),
):
    """Moves the keys of one tile from source to where their digits of pass `number` belong.

    What a subgroup has of each digit is counted first, so that other tiles hear of it early.
    """
    lanes = static(subgroup.group_size())
    subgroups = static(THREADS // subgroup.group_size())
    mask = static(lane_mask())
    low_bit = 8 * number
    sets = static(passes * (_RADIX + 1))
    own_set = sets + number % 2 * (tiles * _RADIX)
    next_set = sets + (number + 1) % 2 * (tiles * _RADIX)
    thread = i % THREADS
    lane = subgroup.invocation_id()
    counts = block.SharedArray((subgroups * _RADIX,), u32)
    same = block.SharedArray((subgroups * _RADIX,), lane_mask())
    for w in static(range(subgroups)):
        counts[w * _RADIX + thread] = u32(0)
        same[w * _RADIX + thread] = mask(0)
    tile = _look_back.next_tile(scratch, passes * _RADIX + number, tiles)  # and all wait
    items = static(_items(dtype))
    size = static(_tile(dtype))
    first = tile * size
    left = _min(n - first, size)
    run = thread // lanes * (lanes * items) + lane  # where the thread's keys begin in the tile
    own = thread // lanes * _RADIX
    keys = _loaded(source, first + run, left - run, dtype, lanes)
    for k in static(range(items)):
        atomic_add(counts[own + digit(keys[k], low_bit)], u32(1))
    block.sync()
    total = u32(0)
    for w in static(range(subgroups)):
        here = counts[w * _RADIX + thread]
        counts[w * _RADIX + thread] = total
        total += here
    word = own_set + tile * _RADIX + thread
    if tiles > 1:
        _look_back.tell_alone(scratch, word, total)
    smaller = block.exclusive_add(total, THREADS, u32)  # keys of the tile
    for w in static(range(subgroups)):
        counts[w * _RADIX + thread] += smaller
    ordered = block.SharedArray((size,), unsigned(dtype))
    origins = block.SharedArray((size if has_values else 1,), u16)
    block.sync()
    for k in static(range(items)):
        at = own + digit(keys[k], low_bit)
        atomic_or(same[at], mask(1) << lane)
        subgroup.sync()
        lanes_of = same[at]
        before = _look_back.lanes_before(lanes_of)
        place = cast(counts[at], i32) + before
        subgroup.sync()
        if before == 0:
            counts[at] = cast(place + popcnt(lanes_of), u32)
            same[at] = mask(0)
        ordered[place] = keys[k]
        if static(has_values):
            origins[place] = cast(run + k * lanes, u16)
        subgroup.sync()
    starts = block.SharedArray((_RADIX,), u32)
    start = u32(0)
    if tiles > 1:
        before_it = _look_back.before_tile_by_thread(scratch, own_set + thread, _RADIX, tile)
        _look_back.tell_up_to_end(scratch, word, before_it)
        start = scratch[number * _RADIX + thread] - smaller + before_it
        scratch[next_set + tile * _RADIX + thread] = u32(0)
    starts[thread] = start
    block.sync()
    for k in static(range(items)):
        at = k * THREADS + thread
        if at < left:
            key = ordered[at]
            place = cast(starts[digit(key, low_bit)] + cast(at, u32), i32)
            target[place] = key_of(key, dtype)
            if static(has_values):
                values_to[place] = values[first + cast(origins[at], i32)]


@func
def sort(
    keys: template(),
    tmp_keys: template(),
    values: template(),
    tmp_values: template(),
    scratch: template(),
    n,
    dtype: template(),
    has_values: template(),
    passes: template(),
):
    """See `_radix_sort.sort`; the number of passes is even."""
    size = static(_tile(dtype))
    tiles = (n + (size - 1)) // size
    several = tiles > 1  # one needs no workspace, and may have less of it
    words = choose(several, tiles * _RADIX + passes * (_RADIX + 1), 0)
    sweeps = choose(several, _min(tiles, _HISTOGRAM_BLOCKS), 0)
    counters = choose(several, passes * _RADIX, 0)
    counting = sweeps * THREADS
    sorting = tiles * THREADS
    for j in range(words):
        scratch[j] = u32(0)
    loop_config(block_dim=THREADS)
    for i in range(counting):
        block.sync()
        _count_digits(keys, scratch, n, tiles, sweeps, i, dtype, passes)
    loop_config(block_dim=THREADS)
    for i in range(counters):  # of each pass: how many keys have a smaller digit
        block.sync()
        scratch[i] = block.exclusive_add(scratch[i], THREADS, u32)
    for p in static(range(0, passes, 2)):
        loop_config(block_dim=THREADS)
        for i in range(sorting):
            block.sync()
            _sort_tile(
                keys,
                tmp_keys,
                values,
                tmp_values,
                scratch,
                n,
                tiles,
                p,
                i,
                dtype,
                has_values,
                passes,
            )
        loop_config(block_dim=THREADS)
        for i in range(sorting):
            block.sync()
            _sort_tile(
                tmp_keys,
                keys,
                tmp_values,
                values,
                scratch,
                n,
                tiles,
                p + 1,
                i,
                dtype,
                has_values,
                passes,
            )
