"""Counts over tiles while these are under way, on targets whose threads work in blocks.

A tile tells how much it has, then looks back over what those before it have until it meets one that knows
how much there is up to its end (Merrill and Garland, "Single-pass parallel prefix scan with decoupled
look-back", 2016). A word of the workspace says all of this: 0 that nothing is known yet, up to _MOST + 1
how much the tile has alone, plus one, else how much there is up to its end, plus _MOST + 2. What a tile
waits for is under way: blocks draw tickets for tiles.
"""

from __future__ import annotations

from quadrants.algorithms._common import THREADS, lane_mask
from quadrants.lang.kernel_impl import func
from quadrants.lang.matrix import Vector
from quadrants.lang.ops import atomic_add, cast, popcnt, static, volatile_load
from quadrants.lang.ops import select as choose
from quadrants.lang.simt import block, grid, reductions, subgroup
from quadrants.types.annotations import template
from quadrants.types.primitive_types import i32, u32

_MOST = 1 << 16  # that a tile has
_AHEAD = 4  # tiles that a thread looks at together


@func
def next_tile(tickets: template(), at, tiles):
    """The block's tile. A single tile uses no workspace, here and below."""
    ticket = block.SharedArray((1,), i32)
    if block.thread_idx() == 0:
        ticket[0] = 0
        if tiles > 1:
            ticket[0] = cast(atomic_add(tickets[at], u32(1)), i32)
            grid.mem_fence()  # who fences by hand gets atomics and loads that order nothing
    block.sync()
    return ticket[0]


@func
def tell_alone(words: template(), at, has):
    atomic_add(words[at], has + u32(1))


@func
def tell_up_to_end(words: template(), at, before):
    """After `tell_alone`."""
    atomic_add(words[at], before + u32(_MOST + 1))


@func
def before_tile_by_thread(words: template(), first, step, tile):
    """How much the tiles before have; the word of tile t is at `first + t * step`."""
    before = u32(0)
    end = tile
    while end > 0:
        seen = Vector([u32(_MOST + 2) for _ in range(_AHEAD)])
        for k in static(range(_AHEAD)):
            there = volatile_load(words[first + choose(end > k, end - 1 - k, 0) * step])
            seen[k] = choose(end > k, there, seen[k])
        known = True
        passed = 0
        for k in static(range(_AHEAD)):
            known = known and seen[k] != u32(0)
            if known:
                if seen[k] > u32(_MOST + 1):
                    before += seen[k] - u32(_MOST + 2)
                    known = False
                    passed = end
                else:
                    before += seen[k] - u32(1)
                    passed += 1
        end -= passed
    return before


@func
def _before_tile(words: template(), first, tile):
    """The same for all lanes of the subgroup that calls it; words lie side by side."""
    lanes = static(subgroup.group_size())
    none = static(lane_mask())(0)
    before = u32(0)
    end = tile
    while end > 0:
        other = end - 1 - subgroup.invocation_id()
        seen = choose(
            other >= 0, volatile_load(words[first + choose(other >= 0, other, 0)]), u32(_MOST + 2)
        )
        if subgroup.all_true(seen != u32(0)) != 0:
            complete = static(lane_mask())(subgroup.ballot(seen > u32(_MOST + 1)))
            has = choose(seen > u32(_MOST + 1), seen - u32(_MOST + 2), seen - u32(1))
            if lanes_before(complete) > 0:
                has = u32(0)
            before += reductions._reduce_all_tiled(
                has, reductions._bin_add, subgroup.log2_group_size()
            )
            end = choose(complete != none, 0, end - lanes)
    return before


@func
def lanes_before(mask):
    """How many lanes before this one are in a mask."""
    one = static(lane_mask())(1)
    return popcnt(mask & ((one << subgroup.invocation_id()) - one))


@func
def before_subgroup(words: template(), first, tiles, tile, has):
    """How much there is before the run of the thread's subgroup, which has `has`."""
    lanes = static(subgroup.group_size())
    subgroups = static(THREADS // subgroup.group_size())
    parts = block.SharedArray((subgroups,), u32)
    base = block.SharedArray((1,), u32)
    own = block.thread_idx() // lanes
    if subgroup.invocation_id() == 0:
        parts[own] = has
    block.sync()
    before = u32(0)
    of_tile = u32(0)
    for w in static(range(subgroups)):
        if w < own:
            before += parts[w]
        of_tile += parts[w]
    if tiles > 1:
        if own == 0:
            if subgroup.invocation_id() == 0:
                tell_alone(words, first + tile, of_tile)
            before_it = _before_tile(words, first, tile)
            if subgroup.invocation_id() == 0:
                tell_up_to_end(words, first + tile, before_it)
                base[0] = before_it
        block.sync()
        before += base[0]
    return before
