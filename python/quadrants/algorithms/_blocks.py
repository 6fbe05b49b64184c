"""The algorithms on targets whose threads work in blocks.

Arrays are cut into tiles of 2,048 elements, of which each subgroup has a run and goes through it 32 (or
64) neighbours at a time, so that what stands side by side is read together. A first loop leaves one
number of each tile in the workspace, one block turns these into prefixes, a last loop uses them
(Blelloch, "Prefix sums and their applications", 1990; Merrill and Grimshaw, "Parallel scan for stream
architectures", 2009).
"""

from __future__ import annotations

from typing import Any

from quadrants.algorithms._common import constant, unsigned
from quadrants.lang.kernel_impl import func
from quadrants.lang.matrix import Vector
from quadrants.lang.ops import atomic_add, bit_cast, cast, loop_config, popcnt, static
from quadrants.lang.ops import min as _min
from quadrants.lang.ops import select as choose
from quadrants.lang.simt import block, reductions, subgroup
from quadrants.types.annotations import template
from quadrants.types.primitive_types import i32, u32, u64

THREADS = 256  # of a block
_ITEMS = 8  # of a thread
TILE = THREADS * _ITEMS
_PREFIX_THREADS = 1024


def tiles(n: Any) -> Any:
    """Tiles of n elements; n may be a value of a kernel."""
    return (n + (TILE - 1)) // TILE


def _subgroups() -> int:
    return THREADS // subgroup.group_size()


@func
def _add(a, b):
    return a + b


# --- where a thread works -------------------------------------------------------------------------


@func
def _run_begin(i):
    """The first element of the run of the thread's subgroup; i is the iteration."""
    lanes = static(subgroup.group_size())
    return i // THREADS * TILE + i % THREADS // lanes * (lanes * _ITEMS)


@func
def _before_subgroup(total, dtype: template(), combine: template(), identity: template()):
    """The totals of the block's subgroups before this one combined; all lanes know their total."""
    lanes = static(subgroup.group_size())
    parts = block.SharedArray((_subgroups(),), dtype)
    own = block.thread_idx() // lanes
    if subgroup.invocation_id() == 0:
        parts[own] = total
    block.sync()
    before = constant(identity, dtype)
    for w in static(range(_subgroups() - 1)):
        if w < own:
            before = combine(before, parts[w])
    return before


# --- scans ----------------------------------------------------------------------------------------


@func
def tile_totals(
    arr: template(),
    scratch: template(),
    behind,
    n,
    dtype: template(),
    combine: template(),
    identity: template(),
):
    """`scratch[behind + t]` = the elements of tile t combined."""
    loop_config(block_dim=THREADS)
    for i in range(tiles(n) * THREADS):
        block.sync()
        first = i // THREADS * TILE
        total = constant(identity, dtype)
        for k in static(range(_ITEMS)):
            at = k * THREADS + i % THREADS
            if at < n - first:
                total = combine(total, arr[first + at])
        total = block.reduce(total, THREADS, combine, dtype)
        if i % THREADS == 0:
            scratch[behind + i // THREADS] = bit_cast(total, static(unsigned(dtype)))


@func
def prefixes(
    scratch: template(),
    behind,
    count,
    dtype: template(),
    combine: template(),
    identity: template(),
    total_to: template(),
    has_total: template(),
):
    """Turns `count` slots of scratch into what stands before each combined; one block does.

    All of them combined goes to `total_to[0]`, an i32, if `has_total`.
    """
    loop_config(block_dim=_PREFIX_THREADS)
    for t in range(_PREFIX_THREADS):
        each = (count + (_PREFIX_THREADS - 1)) // _PREFIX_THREADS
        begin = t * each
        end = _min(count, begin + each)
        total = constant(identity, dtype)
        for b in range(begin, end):
            total = combine(total, bit_cast(scratch[behind + b], dtype))
        before = block.exclusive_scan(
            total, _PREFIX_THREADS, combine, constant(identity, dtype), dtype
        )
        for b in range(begin, end):
            x = bit_cast(scratch[behind + b], dtype)
            scratch[behind + b] = bit_cast(before, static(unsigned(dtype)))
            before = combine(before, x)
        if static(has_total):
            if t == _PREFIX_THREADS - 1:
                total_to[0] = cast(before, i32)


@func
def scan_tiles(
    arr: template(),
    out: template(),
    scratch: template(),
    behind,
    n,
    dtype: template(),
    combine: template(),
    identity: template(),
    inclusive: template(),
):
    """`out[i]` = what stands before i, in its tile and in those before; with i itself if inclusive."""
    lanes = static(subgroup.group_size())
    loop_config(block_dim=THREADS)
    for i in range(tiles(n) * THREADS):
        block.sync()
        first = _run_begin(i)
        lane = subgroup.invocation_id()
        held = Vector([constant(identity, dtype) for _ in range(_ITEMS)])
        running = constant(identity, dtype)
        for k in static(range(_ITEMS)):
            x = constant(identity, dtype)
            if k * lanes + lane < n - first:
                x = arr[first + k * lanes + lane]
            scanned = reductions._inclusive_scan_tiled(x, combine, subgroup.log2_group_size())
            before = choose(lane == 0, constant(identity, dtype), subgroup.shuffle_up(scanned, 1))
            held[k] = combine(running, before)
            running = combine(running, subgroup.broadcast(scanned, static(lanes - 1)))
        base = combine(
            bit_cast(scratch[behind + i // THREADS], dtype),
            _before_subgroup(running, dtype, combine, identity),
        )
        for k in static(range(_ITEMS)):
            at = first + k * lanes + lane
            if k * lanes + lane < n - first:
                result = combine(base, held[k])
                if static(inclusive):
                    result = combine(result, arr[at])
                out[at] = result


@func
def scan(
    arr: template(),
    out: template(),
    scratch: template(),
    behind,
    n,
    dtype: template(),
    combine: template(),
    identity: template(),
    inclusive: template(),
):
    """A scan of `arr[0:n]`; out may be arr. Totals of tiles go to scratch, from `behind` on."""
    tile_totals(arr, scratch, behind, n, dtype, combine, identity)
    prefixes(scratch, behind, tiles(n), dtype, combine, identity, scratch, False)
    scan_tiles(arr, out, scratch, behind, n, dtype, combine, identity, inclusive)


# --- selection ------------------------------------------------------------------------------------


@func
def _lanes_before(mask):
    """How many lanes before this one are in a mask (u64)."""
    below = (u64(1) << cast(subgroup.invocation_id(), u64)) - u64(1)
    return popcnt(mask & below)


@func
def _counts(holds: template(), a: template(), scratch: template(), n):
    """`scratch[t]` = for how many elements of tile t `holds(a, i)` is 1."""
    loop_config(block_dim=THREADS)
    for i in range(tiles(n) * THREADS):
        block.sync()
        first = i // THREADS * TILE
        found = u32(0)
        for k in static(range(_ITEMS)):
            at = k * THREADS + i % THREADS
            if at < n - first:
                found += cast(holds(a, first + at), u32)
        found = block.reduce_add(found, THREADS, u32)
        if i % THREADS == 0:
            scratch[i // THREADS] = found


@func
def _is_flagged(flags: template(), i):
    return cast(flags[i] != 0, i32)


@func
def select(
    arr: template(), flags: template(), out: template(), num_out: template(), scratch: template(), n
):
    """See `_select.select`."""
    lanes = static(subgroup.group_size())
    _counts(_is_flagged, flags, scratch, n)
    prefixes(scratch, 0, tiles(n), u32, _add, 0, num_out, True)
    loop_config(block_dim=THREADS)
    for i in range(tiles(n) * THREADS):
        block.sync()
        first = _run_begin(i)
        lane = subgroup.invocation_id()
        masks = Vector([u64(0) for _ in range(_ITEMS)])
        total = u32(0)
        for k in static(range(_ITEMS)):
            flag = 0
            if k * lanes + lane < n - first:
                flag = _is_flagged(flags, first + k * lanes + lane)
            masks[k] = subgroup.ballot(flag)
            total += cast(popcnt(masks[k]), u32)
        place = cast(scratch[i // THREADS] + _before_subgroup(total, u32, _add, 0), i32)
        for k in static(range(_ITEMS)):
            if ((masks[k] >> cast(lane, u64)) & u64(1)) != u64(0):
                out[place + _lanes_before(masks[k])] = arr[first + k * lanes + lane]
            place += popcnt(masks[k])


@func
def _begins_run(keys: template(), i):
    begins = 1
    if i > 0:
        begins = cast(keys[i] != keys[i - 1], i32)
    return begins


@func
def reduce_by_key_add(
    keys_in: template(),
    values_in: template(),
    keys_out: template(),
    values_out: template(),
    num_runs: template(),
    scratch: template(),
    n,
    value_dtype: template(),
):
    """See `_select.reduce_by_key_add`."""
    lanes = static(subgroup.group_size())
    _counts(_begins_run, keys_in, scratch, n)
    prefixes(scratch, 0, tiles(n), u32, _add, 0, num_runs, True)
    for r in range(num_runs[0]):
        values_out[r] = constant(0, value_dtype)
    loop_config(block_dim=THREADS)
    for i in range(tiles(n) * THREADS):
        block.sync()
        first = _run_begin(i)
        lane = subgroup.invocation_id()
        masks = Vector([u64(0) for _ in range(_ITEMS)])
        total = u32(0)
        for k in static(range(_ITEMS)):
            begins = 0
            if k * lanes + lane < n - first:
                begins = _begins_run(keys_in, first + k * lanes + lane)
            masks[k] = subgroup.ballot(begins)
            total += cast(popcnt(masks[k]), u32)
        runs = cast(scratch[i // THREADS] + _before_subgroup(total, u32, _add, 0), i32)
        for k in static(range(_ITEMS)):
            begins = cast((masks[k] >> cast(lane, u64)) & u64(1), i32)
            at = first + k * lanes + lane
            inside = k * lanes + lane < n - first
            value = constant(0, value_dtype)
            if inside:
                value = values_in[at]
            run = runs + _lanes_before(masks[k]) + begins - 1
            # The lane before the next run, or the last one, has the sum of what is here of the run.
            ends = cast(masks[k] >> u64(1) >> cast(lane, u64), u32) & u32(1)
            is_last = lane == lanes - 1 or k * lanes + lane == n - first - 1
            total_here = subgroup.segmented_reduce_add(value, begins)
            if inside:
                if begins != 0:
                    keys_out[run] = keys_in[at]
                if ends != u32(0) or is_last:
                    atomic_add(values_out[run], total_here)
            runs += popcnt(masks[k])


# --- sorting --------------------------------------------------------------------------------------


@func
def _same_digit(digit, bits: template()):
    """The lanes with this one's digit, as u64."""
    same = subgroup.ballot(1)  # of all lanes that there are
    for k in static(range(bits)):
        mask = subgroup.ballot((digit >> k) & 1)
        same &= choose(((digit >> k) & 1) != 0, mask, ~mask)
    return same


def _items_to_sort(dtype: Any) -> int:
    """Of a thread, so that a tile's keys fit into shared memory."""
    return 16 if dtype.size == 4 else 8


@func
def sort_pass(
    source: template(),
    target: template(),
    values: template(),
    values_to: template(),
    scratch: template(),
    n,
    digit_of: template(),
    dtype: template(),
    low_bit: template(),
    has_values: template(),
    is_small: template(),
):
    """One pass of a radix sort by 8 bits: counts by tile, prefixes over (digit, tile), scatter.

    A tile is sorted in shared memory first, so that neighbours are written together.
    """
    lanes = static(subgroup.group_size())
    radix = static(THREADS)  # a thread each
    items = static(_items_to_sort(dtype))
    tile = static(THREADS * _items_to_sort(dtype))
    count = (n + (tile - 1)) // tile
    loop_config(block_dim=THREADS)
    for i in range(count * THREADS):
        block.sync()
        thread = i % THREADS
        first = i // THREADS * tile
        bins = block.SharedArray((radix,), u32)
        bins[thread] = u32(0)
        block.sync()
        for k in static(range(items)):
            at = k * THREADS + thread
            if at < n - first:
                atomic_add(bins[digit_of(source[first + at], dtype, low_bit)], u32(1))
        block.sync()
        scratch[thread * count + i // THREADS] = bins[thread]
    if static(is_small):
        prefixes(scratch, 0, radix * count, u32, _add, 0, scratch, False)
    else:
        counters = radix * count  # the totals of their tiles lie behind them
        scan(scratch, scratch, scratch, counters, counters, u32, _add, 0, False)
    loop_config(block_dim=THREADS)
    for i in range(count * THREADS):
        block.sync()
        thread = i % THREADS
        lane = subgroup.invocation_id()
        first = i // THREADS * tile
        left = _min(n - first, tile)
        run = thread // lanes * (lanes * items)  # where the subgroup's elements begin in the tile
        own = thread // lanes * radix
        places = block.SharedArray((_subgroups() * radix,), u32)
        starts = block.SharedArray((radix,), u32)
        for k in static(range(_subgroups())):
            places[k * radix + thread] = u32(0)
        block.sync()
        keys = Vector([constant(0, dtype) for _ in range(items)])
        ranks = Vector([u32(0) for _ in range(items)])
        for k in static(range(items)):
            at = run + k * lanes + lane
            digit = radix
            if at < left:
                keys[k] = source[first + at]
                digit = digit_of(keys[k], dtype, low_bit)
            same = _same_digit(digit, 9)
            before = _lanes_before(same)
            if at < left:
                ranks[k] = places[own + digit] + cast(before, u32)
            subgroup.sync()
            if at < left and before == 0:
                places[own + digit] = places[own + digit] + cast(popcnt(same), u32)
            subgroup.sync()
        block.sync()
        total = u32(0)
        for k in static(range(_subgroups())):
            total += places[k * radix + thread]
        running = block.exclusive_add(total, THREADS, u32)
        starts[thread] = scratch[thread * count + i // THREADS] - running
        for k in static(range(_subgroups())):
            here = places[k * radix + thread]
            places[k * radix + thread] = running
            running += here
        block.sync()
        ordered = block.SharedArray((tile,), dtype)
        origins = block.SharedArray((tile if has_values else 1,), i32)
        for k in static(range(items)):
            at = run + k * lanes + lane
            if at < left:
                place = places[own + digit_of(keys[k], dtype, low_bit)] + ranks[k]
                ordered[cast(place, i32)] = keys[k]
                if static(has_values):
                    origins[cast(place, i32)] = at
        block.sync()
        for k in static(range(items)):
            at = k * THREADS + thread
            if at < left:
                key = ordered[at]
                place = cast(starts[digit_of(key, dtype, low_bit)] + cast(at, u32), i32)
                target[place] = key
                if static(has_values):
                    values_to[place] = values[first + origins[at]]
