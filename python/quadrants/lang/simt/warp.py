"""CUDA warp operations; `mask` is a u32 with a bit for each lane that takes part."""

from __future__ import annotations

from typing import Any

from quadrants.lang import impl, ops
from quadrants.lang.simt._target import emit, needs, no_subgroups
from quadrants.types.primitive_types import f32, i32

_ROOM = "qd.simt.warp"
_of_lanes = needs(no_subgroups, _ROOM)


@_of_lanes
def all_nonzero(mask: Any, predicate: Any) -> Any:
    """1 if the predicate is not 0 in all lanes, else 0."""
    return emit("vote", "all", predicate, mask)


@_of_lanes
def any_nonzero(mask: Any, predicate: Any) -> Any:
    """1 if the predicate is not 0 in some lane, else 0."""
    return emit("vote", "any", predicate, mask)


@_of_lanes
def unique(mask: Any, predicate: Any) -> Any:
    """1 if the predicate is 0 in all lanes or in none."""
    return emit("vote", "same", predicate, mask)


@_of_lanes
def ballot(predicate: Any) -> Any:
    """A u32 whose bit i says whether the predicate of lane i is not 0."""
    return emit("vote", "bits", predicate, emit("active_mask"))


@_of_lanes
def shfl_sync_i32(mask: Any, val: Any, offset: Any) -> Any:
    """The value of a lane."""
    return emit("shuffle", "lane", ops.cast(val, i32), offset, mask)


@_of_lanes
def shfl_sync_f32(mask: Any, val: Any, offset: Any) -> Any:
    """The value of a lane."""
    return emit("shuffle", "lane", ops.cast(val, f32), offset, mask)


@_of_lanes
def shfl_up_i32(mask: Any, val: Any, offset: Any) -> Any:
    """The value of the lane `offset` before this one."""
    return emit("shuffle", "up", ops.cast(val, i32), offset, mask)


@_of_lanes
def shfl_up_f32(mask: Any, val: Any, offset: Any) -> Any:
    """The value of the lane `offset` before this one."""
    return emit("shuffle", "up", ops.cast(val, f32), offset, mask)


@_of_lanes
def shfl_down_i32(mask: Any, val: Any, offset: Any) -> Any:
    """The value of the lane `offset` behind this one."""
    return emit("shuffle", "down", ops.cast(val, i32), offset, mask)


@_of_lanes
def shfl_down_f32(mask: Any, val: Any, offset: Any) -> Any:
    """The value of the lane `offset` behind this one."""
    return emit("shuffle", "down", ops.cast(val, f32), offset, mask)


@_of_lanes
def shfl_xor_i32(mask: Any, val: Any, offset: Any) -> Any:
    """The value of the lane whose index is this one's `^ offset`."""
    return emit("shuffle", "flip", ops.cast(val, i32), offset, mask)


def _needs_compute_70(name: str) -> None:
    assert impl.get_cuda_compute_capability() >= 70, (
        f"{name} is only available on compute_70 or higher"
    )


@_of_lanes
def _match(mask: Any, value: Any, which: str) -> Any:
    """The lanes with this one's value, of a mask."""
    return emit("vote", which, value, mask)


def match_any(mask: Any, value: Any) -> Any:
    """The lanes whose value is this one's, as a mask."""
    _needs_compute_70("match_any")
    return _match(mask, value, "equal")


def match_all(mask: Any, val: Any) -> Any:
    """The mask if the value is the same in all lanes, else 0."""
    _needs_compute_70("match_all")
    return _match(mask, val, "all_equal")


@_of_lanes
def active_mask() -> Any:
    """The lanes that execute this call, as a mask."""
    return emit("active_mask")


@_of_lanes
def sync(mask: Any) -> None:
    """Waits for all lanes of the mask."""
    emit("subgroup_sync", mask)
