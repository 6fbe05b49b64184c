"""Operations of a subgroup: the threads that execute together.

Of the targets of this build none has subgroups: their size is 0, and of the operations only those
compile that need no other lane.
"""

from __future__ import annotations

from typing import Any

from quadrants.lang import impl, ops
from quadrants.lang.kernel_impl import func
from quadrants.lang.simt import reductions
from quadrants.lang.simt._target import deprecated, needs, no_subgroups
from quadrants.lang.simt.reductions import _copy, alone
from quadrants.types.primitive_types import i32, u32

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


@_of_lanes
def shuffle(value: Any, index: Any) -> Any:
    """The value of lane `index`."""


@_of_lanes
def shuffle_up(value: Any, offset: Any) -> Any:
    """The value of the lane `offset` before this one."""


@_of_lanes
def shuffle_down(value: Any, offset: Any) -> Any:
    """The value of the lane `offset` behind this one."""


@_of_lanes
def shuffle_xor(value: Any, mask: Any) -> Any:
    """The value of the lane whose index is this one's `^ mask`."""


@_of_lanes
def broadcast(value: Any, index: Any) -> Any:
    """The value of lane `index`, which is the same for all lanes."""


@_of_lanes
def broadcast_first(value: Any) -> Any:
    """The value of lane 0."""


@_of_lanes
def elect() -> Any:
    """1 on lane 0, else 0."""


@_of_lanes
def sync() -> None:
    """Waits for all lanes."""


@_of_lanes
def mem_fence() -> None:
    """Orders a lane's memory accesses for the subgroup; nobody waits."""


@_of_lanes
def ballot(predicate: Any) -> Any:
    """A u64 whose bit i says whether the predicate of lane i is not 0."""


@_of_lanes
def ballot_first_n(predicate: Any, n: int) -> Any:
    """A u32 of the predicates of the first n lanes."""


def all_true_tiled(predicate: Any, log2_size: int) -> Any:
    """1 if the predicate is not 0 in all lanes of the tile, else 0."""
    alone("all_true_tiled", log2_size)
    return ops.cast(_copy(predicate) != 0, i32)


def any_true_tiled(predicate: Any, log2_size: int) -> Any:
    """1 if the predicate is not 0 in some lane of the tile, else 0."""
    return all_true_tiled(predicate, log2_size)


def all_equal_tiled(value: Any, log2_size: int) -> Any:
    """1 if the value is the same in all lanes of the tile, else 0."""
    alone("all_equal_tiled", log2_size)
    return ops.cast(_copy(value) == value, i32)


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
    """Sorts the pairs of each tile in ascending order; lane j gets the j-th one."""
    alone("bitonic_sort_kv_tiled", log2_size)
    return _copy(key), _copy(value)


def bitonic_sort_kv(key: Any, value: Any) -> tuple[Any, Any]:
    """Sorts the pairs of the subgroup in ascending order; lane j gets the j-th one."""
    return bitonic_sort_kv_tiled(key, value, log2_group_size())
