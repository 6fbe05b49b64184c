"""Operations of a thread block: index, barriers, shared memory, reductions and scans.

Of the targets of this build none has blocks: what is checked first is checked, then they say so.
"""

from __future__ import annotations

from typing import Any

from quadrants.lang import impl
from quadrants.lang._ops.operation import python_scope_error
from quadrants.lang._values.matrix_types import MatrixType
from quadrants.lang.exception import QuadrantsCompilationError, QuadrantsTypeError
from quadrants.lang.simt import subgroup
from quadrants.lang.simt._target import deprecated, needs, no_blocks
from quadrants.types.primitive_types import DataType

_ROOM = "qd.block"


@needs(no_blocks, _ROOM)
def thread_idx() -> Any:
    """Index of the thread in its block."""


@needs(no_blocks, _ROOM)
def global_thread_idx() -> Any:
    """Index of the thread in the grid."""


@needs(no_blocks, _ROOM, anywhere=True)
def sync() -> None:
    """Waits for all threads of the block and orders their memory accesses."""


@needs(no_blocks, _ROOM, anywhere=True)
def mem_fence() -> None:
    """Orders a thread's memory accesses for its block; nobody waits."""


@needs(no_blocks, _ROOM, anywhere=True)
def sync_all_nonzero(predicate: Any) -> Any:
    """`sync` that gives 1 if the predicate is not 0 in all threads, else 0."""


@needs(no_blocks, _ROOM, anywhere=True)
def sync_any_nonzero(predicate: Any) -> Any:
    """`sync` that gives 1 if the predicate is not 0 in some thread, else 0."""


@needs(no_blocks, _ROOM, anywhere=True)
def sync_count_nonzero(predicate: Any) -> Any:
    """`sync` that gives the number of threads whose predicate is not 0."""


def mem_sync() -> None:
    """`mem_fence` under its old name."""
    deprecated("block", "mem_sync", "mem_fence")
    mem_fence()


class SharedArray:
    """Memory that the threads of a block share, for as long as their task runs.

    Args:
        shape: extents, known at compile time.
        dtype: scalar, vector or matrix type of the elements.

    Raises:
        ValueError: shape is no integer and no tuple of integers.
        QuadrantsTypeError: dtype is no type of the kernel language.
        QuadrantsCompilationError: the target has no blocks.
    """

    def __init__(self, shape: int | tuple[int, ...], dtype: Any) -> None:
        extents = (shape,) if type(shape) is int else shape
        if not isinstance(extents, (tuple, list)) or any(type(n) is not int for n in extents):
            raise ValueError(
                "qd.simt.block.shared_array shape must be an integer or a tuple of integers, "
                f"but got {shape}"
            )
        if not isinstance(dtype, (DataType, MatrixType)):
            raise QuadrantsTypeError(
                f"qd.simt.block.SharedArray takes a dtype such as qd.f32, not {dtype}"
            )
        _no_shared_memory()


def _not_here(name: str) -> QuadrantsCompilationError:
    return QuadrantsCompilationError(str(no_blocks(f"qd.simt.block.{name}")))


def _no_shared_memory() -> None:
    impl.check_initialised()
    if not impl.inside_kernel():
        raise python_scope_error("SharedArray")
    raise _not_here("SharedArray")


# --- reductions and scans -----------------------------------------------------------------------


def _whole_subgroups(name: str, block_dim: Any) -> None:
    """Checks the block of a reduction; raises on targets without subgroups."""
    size = 1 << subgroup.log2_group_size()
    assert type(block_dim) is int and block_dim > 0 and block_dim % size == 0, (
        f"qd.simt.block.{name}: block_dim must be a positive multiple of subgroup size {size}"
    )
    raise _not_here(name)


def reduce(value: Any, block_dim: int, op: Any, dtype: Any) -> Any:
    """Combines the values of all threads by a func of two; thread 0 gets the result."""
    return _whole_subgroups("reduce", block_dim)


def reduce_all(value: Any, block_dim: int, op: Any, dtype: Any) -> Any:
    """Combines the values of all threads by a func of two; all get the result."""
    return _whole_subgroups("reduce_all", block_dim)


def inclusive_scan(value: Any, block_dim: int, op: Any, dtype: Any) -> Any:
    """Combines the values of the threads up to this one."""
    return _whole_subgroups("inclusive_scan", block_dim)


def exclusive_scan(value: Any, block_dim: int, op: Any, identity: Any, dtype: Any) -> Any:
    """Combines the values of the threads before this one; the first gets the identity."""
    return _whole_subgroups("exclusive_scan", block_dim)


def _family(kind: str, op: str) -> Any:
    def combine(value: Any, block_dim: int, dtype: Any) -> Any:
        return _whole_subgroups(combine.__name__, block_dim)

    combine.__name__ = combine.__qualname__ = f"{kind}_{op}"
    combine.__doc__ = f"`{kind}` or scan by {op}, in the order of the threads."
    return combine


for _kind in ("reduce", "reduce_all", "inclusive", "exclusive"):
    for _op in ("add", "min", "max"):
        globals()[f"{_kind}_{_op}"] = _family(_kind, _op)


def radix_rank_match_atomic_or(
    key: Any,
    block_dim: int,
    radix_bits: int,
    bit_start: int,
    num_bits: int,
    bins: Any,
    excl_prefix: Any,
) -> Any:
    """Stable rank of a thread's key in the block by `num_bits` bits from `bit_start` on."""
    name = "block.radix_rank_match_atomic_or"
    assert subgroup.group_size() in (32, 64), f"{name}: subgroup size must be 32 or 64"
    assert block_dim == 1 << radix_bits, f"{name}: block_dim must be 1 << radix_bits"
    raise _not_here("radix_rank_match_atomic_or")
