"""Operations of a subgroup: the threads that execute together.

On targets without subgroups their size is 0, and of the operations only those compile that need no
other lane.
"""

from __future__ import annotations

from typing import Any

from quadrants.lang import impl, ops
from quadrants.lang.kernel_impl import func
from quadrants.lang.simt import reductions
from quadrants.lang.simt._target import deprecated, emit, needs, no_subgroups
from quadrants.lang.simt.reductions import ALL_LANES, _copy, check_tile, lane_in_tile
from quadrants.types.primitive_types import i32, u32, u64

_of_lanes = needs(no_subgroups, "qd.simt.subgroup")

# --- size ---------------------------------------------------------------------------------------


def group_size() -> int:
    """Lanes of a subgroup, in kernels and on the host; 0 on a CPU."""
    impl.check_initialised()
    return 0 if impl.is_python_backend() else impl.pyquadrants.prog.subgroup_size()


def log2_group_size() -> int:
    """Logarithm of `group_size()`.

    Raises:
        AssertionError: the target has no subgroups, or of an odd size.
    """
    size = group_size()
    assert size > 0 and size & (size - 1) == 0, f"subgroup size {size} is not a power of two"
    return size.bit_length() - 1


# --- data of other lanes, barriers, votes -------------------------------------------------------


@_of_lanes
def invocation_id() -> Any:
    """Index of the lane."""
    return emit("thread_number", "lane")


@_of_lanes
def shuffle(value: Any, index: Any) -> Any:
    """The value of lane `index`."""
    return emit("shuffle", "lane", value, index, ALL_LANES)


@_of_lanes
def shuffle_up(value: Any, offset: Any) -> Any:
    """The value of the lane `offset` before this one."""
    return emit("shuffle", "up", value, offset, ALL_LANES)


@_of_lanes
def shuffle_down(value: Any, offset: Any) -> Any:
    """The value of the lane `offset` behind this one."""
    return emit("shuffle", "down", value, offset, ALL_LANES)


@_of_lanes
def shuffle_xor(value: Any, mask: Any) -> Any:
    """The value of the lane whose index is this one's `^ mask`."""
    return emit("shuffle", "flip", value, mask, ALL_LANES)


@_of_lanes
def broadcast(value: Any, index: Any) -> Any:
    """The value of lane `index`, which is the same for all lanes."""
    return emit("shuffle", "lane", value, index, ALL_LANES)


@_of_lanes
def broadcast_first(value: Any) -> Any:
    """The value of lane 0."""
    return emit("shuffle", "lane", value, 0, ALL_LANES)


@_of_lanes
def elect() -> Any:
    """1 on lane 0, else 0."""
    return ops.cast(emit("thread_number", "lane") == 0, i32)


@_of_lanes
def sync() -> None:
    """Waits for all lanes."""
    emit("subgroup_sync", ALL_LANES)


@_of_lanes
def mem_fence() -> None:
    """Orders a lane's memory accesses for the subgroup; nobody waits."""
    emit("fence", "subgroup")


def _bits(predicate: Any) -> Any:  # a u32
    return emit("vote", "bits", predicate, ALL_LANES)


@_of_lanes
def ballot(predicate: Any) -> Any:
    """A u64 whose bit i says whether the predicate of lane i is not 0."""
    return ops.cast(_bits(predicate), u64)


@_of_lanes
def ballot_first_n(predicate: Any, n: int) -> Any:
    """A u32 of the predicates of the first n lanes, 1 to 32."""
    assert type(n) is int and 1 <= n <= 32, (
        "ballot_first_n: n must be a compile-time integer from 1 to 32"
    )
    return _bits(predicate) & u32((1 << n) - 1)


def _of_tile(predicate: Any, log2_size: int) -> tuple[Any, Any]:
    """The predicates of the tile's lanes, and how they are if all hold; as u32."""
    first = invocation_id() & ~((1 << log2_size) - 1)
    mask = u32((1 << (1 << log2_size)) - 1) << ops.cast(first, u32)
    return _bits(predicate) & mask, mask


def all_true_tiled(predicate: Any, log2_size: int) -> Any:
    """1 if the predicate is not 0 in all lanes of the tile, else 0."""
    check_tile("all_true_tiled", log2_size)
    if log2_size == 0:
        return ops.cast(_copy(predicate) != 0, i32)
    if log2_size == log2_group_size():
        return emit("vote", "all", predicate, ALL_LANES)
    bits, mask = _of_tile(predicate, log2_size)
    return ops.cast(bits == mask, i32)


def any_true_tiled(predicate: Any, log2_size: int) -> Any:
    """1 if the predicate is not 0 in some lane of the tile, else 0."""
    check_tile("any_true_tiled", log2_size)
    if log2_size == 0:
        return ops.cast(_copy(predicate) != 0, i32)
    if log2_size == log2_group_size():
        return emit("vote", "any", predicate, ALL_LANES)
    bits, _ = _of_tile(predicate, log2_size)
    return ops.cast(bits != u32(0), i32)


def all_equal_tiled(value: Any, log2_size: int) -> Any:
    """1 if the value is the same in all lanes of the tile, else 0."""
    check_tile("all_equal_tiled", log2_size)
    value = _copy(value)
    if log2_size == 0:
        return ops.cast(value == value, i32)
    first = invocation_id() & ~((1 << log2_size) - 1)
    return all_true_tiled(value == shuffle(value, first), log2_size)


def all_true(predicate: Any) -> Any:
    """1 if the predicate is not 0 in all lanes, else 0."""
    return all_true_tiled(predicate, log2_group_size())


def any_true(predicate: Any) -> Any:
    """1 if the predicate is not 0 in some lane, else 0."""
    return any_true_tiled(predicate, log2_group_size())


def all_equal(value: Any) -> Any:
    """1 if the value is the same in all lanes, else 0."""
    return all_equal_tiled(value, log2_group_size())


# --- masks --------------------------------------------------------------------------------------


@func
def lanemask_eq(lane):
    """The bit of a lane, as u32."""
    return u32(1) << u32(lane)


@func
def lanemask_lt(lane):
    """The bits of all lanes before this one, as u32."""
    return (u32(1) << u32(lane)) - u32(1)


@func
def lanemask_le(lane):
    """The bits of all lanes up to this one, as u32."""
    bit = u32(1) << u32(lane)
    return bit | (bit - u32(1))


@func
def lanemask_ge(lane):
    """The bits of all lanes from this one on, as u32."""
    return ~((u32(1) << u32(lane)) - u32(1))


@func
def lanemask_gt(lane):
    """The bits of all lanes behind this one, as u32."""
    bit = u32(1) << u32(lane)
    return ~(bit | (bit - u32(1)))


# --- old names: each warns once in a process ----------------------------------------------------

_barrier_deprecation_warned = False
_memory_barrier_deprecation_warned = False
_ballot_full_subgroup_deprecation_warned = False


def barrier() -> None:
    """`sync` under its old name."""
    global _barrier_deprecation_warned
    if not _barrier_deprecation_warned:
        _barrier_deprecation_warned = True
        deprecated("subgroup", "barrier", "sync", " (matching block.sync())")
    return sync()


def memory_barrier() -> None:
    """`mem_fence` under its old name."""
    global _memory_barrier_deprecation_warned
    if not _memory_barrier_deprecation_warned:
        _memory_barrier_deprecation_warned = True
        deprecated("subgroup", "memory_barrier", "mem_fence", " (as in block and grid)")
    return mem_fence()


def ballot_full_subgroup(predicate: Any) -> Any:
    """`ballot` under its old name."""
    global _ballot_full_subgroup_deprecation_warned
    if not _ballot_full_subgroup_deprecation_warned:
        _ballot_full_subgroup_deprecation_warned = True
        why = " (operations on whole subgroups have no suffix; others end in _tiled)"
        deprecated("subgroup", "ballot_full_subgroup", "ballot", why)
    return ballot(predicate)


# --- reductions, scans, sorting ------------------------------------------------------------------

reductions.declare(globals())


def bitonic_sort_kv_tiled(key: Any, value: Any, log2_size: int) -> tuple[Any, Any]:
    """Sorts the pairs of each tile in ascending order; lane j gets the j-th one.

    Batcher's bitonic network ("Sorting networks and their applications", AFIPS 1968).
    """
    check_tile("bitonic_sort_kv_tiled", log2_size)
    key, value = _copy(key), _copy(value)
    lane: Any = lane_in_tile(log2_size) if log2_size else 0
    for run in range(1, log2_size + 1):
        for k in reversed(range(run)):
            other_key, other_value = shuffle_xor(key, 1 << k), shuffle_xor(value, 1 << k)
            same = key == other_key
            above = (key > other_key) | (same & (value > other_value))
            below = (key < other_key) | (same & (value < other_value))
            ascends = (lane & (1 << run)) == 0
            is_lower = (lane & (1 << k)) == 0
            swap = ops.select(ascends == is_lower, above, below)
            key = ops.select(swap, other_key, key)
            value = ops.select(swap, other_value, value)
    return key, value


def bitonic_sort_kv(key: Any, value: Any) -> tuple[Any, Any]:
    """Sorts the pairs of the subgroup in ascending order; lane j gets the j-th one."""
    return bitonic_sort_kv_tiled(key, value, log2_group_size())
