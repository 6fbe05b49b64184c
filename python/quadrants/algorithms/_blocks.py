"""The algorithms on targets whose threads work in blocks.

Arrays are cut into tiles of 2,048 elements, of which each subgroup has a run and goes through it 32 (or
64) neighbours at a time, so that what stands side by side is read together. A first loop leaves one
number of each tile in the workspace, one block turns these into prefixes, a last loop uses them
(Blelloch, "Prefix sums and their applications", 1990; Merrill and Grimshaw, "Parallel scan for stream
architectures", 2009). Selection counts as it goes (`_look_back`).
"""

from __future__ import annotations

from typing import Any

from quadrants.algorithms import _look_back
from quadrants.algorithms._common import THREADS, constant, lane_mask, unsigned
from quadrants.lang.kernel_impl import func
from quadrants.lang.matrix import Vector
from quadrants.lang.ops import atomic_add, bit_cast, cast, loop_config, popcnt, static
from quadrants.lang.ops import select as choose
from quadrants.lang.simt import block, reductions, subgroup
from quadrants.types.annotations import template
from quadrants.types.primitive_types import i32, u32

_ITEMS = 8  # of a thread
TILE = THREADS * _ITEMS
_PREFIX_THREADS = 1024
_SELECTED_ITEMS = 16  # of a thread that looks back: fewer tiles are waited for


def tiles(n: Any) -> Any:
    """Tiles of n elements; n may be a value of a kernel."""
    return (n + (TILE - 1)) // TILE


def _prefix_items(dtype: Any) -> int:
    """Of a thread at one time: every device has 34 KB of shared memory."""
    return 32 // dtype.size


def _subgroups() -> int:
    return THREADS // subgroup.group_size()


@func
def _add(a, b):
    return a + b


# --- where a thread works -------------------------------------------------------------------------


@func
def _run_begin(tile):
    """The first element of the run of the thread's subgroup."""
    lanes = static(subgroup.group_size())
    return tile * TILE + block.thread_idx() // lanes * (lanes * _ITEMS)


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


def _spread(at: Any) -> Any:
    """Where a thread's neighbours lie in shared memory, so that lanes meet different banks."""
    return at + at // 32


@func
def _scan_parked(
    parked: template(),
    items: template(),
    threads: template(),
    base,
    dtype: template(),
    combine: template(),
    identity: template(),
    inclusive: template(),
):
    """Scans what the block has in shared memory, `_spread`; returns base and all of it combined.

    A thread scans neighbours, its subgroup their totals.
    """
    lanes = static(subgroup.group_size())
    totals = block.SharedArray((static(threads // lanes),), dtype)
    own = _spread(block.thread_idx() * items)
    lane = subgroup.invocation_id()
    block.sync()
    held = Vector([constant(identity, dtype) for _ in range(items)])
    total = constant(identity, dtype)
    for k in static(range(items)):
        held[k] = total
        total = combine(total, parked[own + k])
        if static(inclusive):
            held[k] = total
    scanned = reductions._inclusive_scan_tiled(total, combine, subgroup.log2_group_size())
    before = choose(lane == 0, constant(identity, dtype), subgroup.shuffle_up(scanned, 1))
    if lane == lanes - 1:
        totals[block.thread_idx() // lanes] = scanned
    block.sync()
    for w in static(range(threads // lanes)):
        if w == block.thread_idx() // lanes:
            before = combine(base, before)
        base = combine(base, totals[w])
    for k in static(range(items)):
        parked[own + k] = combine(before, held[k])
    block.sync()
    return base


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
        held = Vector([constant(identity, dtype) for _ in range(_ITEMS)])
        for k in static(range(_ITEMS)):
            at = k * THREADS + i % THREADS
            if at < n - first:
                held[k] = arr[first + at]
        total = held[0]
        for k in static(range(1, _ITEMS)):
            total = combine(total, held[k])
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
        items = static(_prefix_items(dtype))
        piece = static(_PREFIX_THREADS * items)
        parked = block.SharedArray((static(_spread(piece)),), dtype)
        before = constant(identity, dtype)
        for p in range((count + (piece - 1)) // piece):
            block.sync()
            first = p * piece
            for k in static(range(items)):
                at = k * _PREFIX_THREADS + t
                x = constant(identity, dtype)
                if at < count - first:
                    x = bit_cast(scratch[behind + first + at], dtype)
                parked[_spread(at)] = x
            before = _scan_parked(
                parked, items, _PREFIX_THREADS, before, dtype, combine, identity, False
            )
            for k in static(range(items)):
                at = k * _PREFIX_THREADS + t
                if at < count - first:
                    scratch[behind + first + at] = bit_cast(
                        parked[_spread(at)], static(unsigned(dtype))
                    )
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
    """`out[i]` = what stands before i, in its tile and in those before; with i itself if inclusive.

    Threads scan neighbours, which they get from each other through shared memory.
    """
    loop_config(block_dim=THREADS)
    for i in range(tiles(n) * THREADS):
        parked = block.SharedArray((static(_spread(TILE)),), dtype)
        block.sync()
        first = i // THREADS * TILE
        for k in static(range(_ITEMS)):
            at = k * THREADS + block.thread_idx()
            x = constant(identity, dtype)
            if at < n - first:
                x = arr[first + at]
            parked[_spread(at)] = x
        base = bit_cast(scratch[behind + i // THREADS], dtype)
        _scan_parked(parked, _ITEMS, THREADS, base, dtype, combine, identity, inclusive)
        for k in static(range(_ITEMS)):
            at = k * THREADS + block.thread_idx()
            if at < n - first:
                out[first + at] = parked[_spread(at)]


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
def select(
    arr: template(), flags: template(), out: template(), num_out: template(), scratch: template(), n
):
    """See `_select.select`."""
    lanes = static(subgroup.group_size())
    mask = static(lane_mask())
    tile_size = static(THREADS * _SELECTED_ITEMS)
    count = (n + (tile_size - 1)) // tile_size
    num_out[0] = 0
    for j in range(choose(count > 1, count + 1, 0)):  # words of tiles, and their tickets
        scratch[j] = u32(0)
    loop_config(block_dim=THREADS)
    for i in range(count * THREADS):
        block.sync()
        tile = _look_back.next_tile(scratch, count, count)
        lane = subgroup.invocation_id()
        run = block.thread_idx() // lanes * (lanes * _SELECTED_ITEMS)
        first = tile * tile_size + run
        chosen = Vector([0 for _ in range(_SELECTED_ITEMS)])
        for k in static(range(_SELECTED_ITEMS)):
            if k * lanes + lane < n - first:
                chosen[k] = cast(flags[first + k * lanes + lane] != 0, i32)
        masks = Vector([mask(0) for _ in range(_SELECTED_ITEMS)])
        total = u32(0)
        for k in static(range(_SELECTED_ITEMS)):
            masks[k] = mask(subgroup.ballot(chosen[k]))
            total += cast(popcnt(masks[k]), u32)
        before = _look_back.before_subgroup(scratch, 0, count, tile, total)
        place = cast(before, i32)
        for k in static(range(_SELECTED_ITEMS)):
            if ((masks[k] >> lane) & mask(1)) != mask(0):
                out[place + _look_back.lanes_before(masks[k])] = arr[first + k * lanes + lane]
            place += popcnt(masks[k])
        if tile == count - 1 and i % THREADS == THREADS - 1:
            num_out[0] = place


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
        first = _run_begin(i // THREADS)
        lane = subgroup.invocation_id()
        mask = static(lane_mask())
        masks = Vector([mask(0) for _ in range(_ITEMS)])
        total = u32(0)
        for k in static(range(_ITEMS)):
            begins = 0
            if k * lanes + lane < n - first:
                begins = _begins_run(keys_in, first + k * lanes + lane)
            masks[k] = mask(subgroup.ballot(begins))
            total += cast(popcnt(masks[k]), u32)
        runs = cast(scratch[i // THREADS] + _before_subgroup(total, u32, _add, 0), i32)
        for k in static(range(_ITEMS)):
            begins = cast((masks[k] >> lane) & mask(1), i32)
            at = first + k * lanes + lane
            inside = k * lanes + lane < n - first
            value = constant(0, value_dtype)
            if inside:
                value = values_in[at]
            run = runs + _look_back.lanes_before(masks[k]) + begins - 1
            # The lane before the next run, or the last one, has the sum of what is here of the run.
            ends = cast(masks[k] >> 1 >> lane, u32) & u32(1)
            is_last = lane == lanes - 1 or k * lanes + lane == n - first - 1
            total_here = subgroup.segmented_reduce_add(value, begins)
            if inside:
                if begins != 0:
                    keys_out[run] = keys_in[at]
                if ends != u32(0) or is_last:
                    atomic_add(values_out[run], total_here)
            runs += popcnt(masks[k])
