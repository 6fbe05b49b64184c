"""Reductions and scans over tiles of a subgroup: aligned runs of `2 ** log2_size` lanes.

On a target without subgroups each lane is a tile of its own, and only `log2_size=0` compiles.
Scans are those of Hillis and Steele, "Data parallel algorithms", CACM 29 (1986).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from quadrants.lang import ops
from quadrants.lang.exception import QuadrantsTypeError
from quadrants.lang.kernel_impl import func
from quadrants.lang.simt._target import emit, has_blocks, no_subgroups
from quadrants.types.primitive_types import u32


@func
def _bin_add(a, b):
    return a + b


@func
def _bin_mul(a, b):
    return a * b


@func
def _bin_min(a, b):
    return ops.min(a, b)


@func
def _bin_max(a, b):
    return ops.max(a, b)


@func
def _bin_and(a, b):
    return a & b


@func
def _bin_or(a, b):
    return a | b


@func
def _bin_xor(a, b):
    return a ^ b


@func
def _copy(value):
    return value


def _typed_min_identity(value: Any) -> Any:
    """What changes no minimum of values of this type."""
    dtype = _copy(value).dtype
    if dtype.is_real:
        return ops.cast(float("inf"), dtype)
    return dtype((1 << (dtype.bits - dtype.is_signed)) - 1)


def _typed_max_identity(value: Any) -> Any:
    """What changes no maximum of values of this type."""
    dtype = _copy(value).dtype
    if dtype.is_real:
        return ops.cast(float("-inf"), dtype)
    return dtype(-(1 << (dtype.bits - 1)) if dtype.is_signed else 0)


OPS: dict[str, tuple[Any, Callable[[Any], Any]]] = {  # operation, its identity for a value
    "add": (_bin_add, ops.zero),
    "mul": (_bin_mul, ops.one),
    "min": (_bin_min, _typed_min_identity),
    "max": (_bin_max, _typed_max_identity),
    "and": (_bin_and, lambda value: ~ops.zero(value)),
    "or": (_bin_or, lambda value: ops.zero(value) | ops.zero(value)),
    "xor": (_bin_xor, lambda value: ops.zero(value) ^ ops.zero(value)),
}


ALL_LANES = -1  # as a mask


def check_tile(name: str, log2_size: Any) -> None:
    """Checks the size of tiles; without subgroups each lane is one of its own.

    Raises:
        QuadrantsTypeError: log2_size is not known at compile time.
        QuadrantsCompilationError: it is not 0, and the target has no subgroups.
    """
    if type(log2_size) is not int:
        raise QuadrantsTypeError(f"{name}: log2_size must be a compile-time integer")
    if log2_size != 0 and not has_blocks():
        raise no_subgroups(f"qd.simt.subgroup.{name}")


def lane_in_tile(log2_size: int) -> Any:
    check_tile("lane_in_tile", log2_size)
    return emit("thread_number", "lane") & ((1 << log2_size) - 1)


def _from_before(value: Any, distance: int) -> Any:
    return emit("shuffle", "up", value, distance, ALL_LANES)


def _reduce_tiled(value: Any, op: Any, log2_size: int) -> Any:
    """The values of a tile combined by a func of two; its first lane gets the result."""
    check_tile("_reduce_tiled", log2_size)
    value = _copy(value)
    for k in range(log2_size):  # neighbours first: the order of the lanes stays
        value = op(value, emit("shuffle", "down", value, 1 << k, ALL_LANES))
    return value


def _reduce_all_tiled(value: Any, op: Any, log2_size: int) -> Any:
    """The values of a tile combined by a commutative func of two; all its lanes get the result."""
    check_tile("_reduce_all_tiled", log2_size)
    value = _copy(value)
    for k in range(log2_size):
        value = op(value, emit("shuffle", "flip", value, 1 << k, ALL_LANES))
    return value


def _scan_from(value: Any, op: Any, lane: Any, first: Any, log2_size: int) -> Any:
    """The values of the lanes from `first` up to each lane combined by a func of two."""
    for k in range(log2_size):
        joined = op(_from_before(value, 1 << k), value)
        value = ops.select(lane - (1 << k) >= first, joined, value)
    return value


def _inclusive_scan_tiled(value: Any, op: Any, log2_size: int) -> Any:
    """The values of a tile up to each lane combined by a func of two."""
    check_tile("_inclusive_scan_tiled", log2_size)
    value = _copy(value)
    return _scan_from(value, op, lane_in_tile(log2_size), 0, log2_size) if log2_size else value


def _exclusive_scan_tiled(value: Any, op: Any, identity: Any, log2_size: int) -> Any:
    """The values of a tile before each lane combined by a func of two."""
    check_tile("_exclusive_scan_tiled", log2_size)
    value = _copy(value)
    nothing = ops.cast(identity, value.dtype)
    if log2_size == 0:
        return nothing
    lane = lane_in_tile(log2_size)
    value = ops.select(lane == 0, nothing, _from_before(value, 1))
    return _scan_from(value, op, lane, 0, log2_size)


def _segmented_reduce_tiled(value: Any, head_flag: Any, op: Any, log2_size: int) -> Any:
    """The values from the last head on, or from the tile's begin, combined by a func of two."""
    value = _copy(value)
    if log2_size == 0:
        return value
    lane = emit("thread_number", "lane")
    begin = lane & ~((1 << log2_size) - 1)
    heads = emit("vote", "bits", head_flag, ALL_LANES) | _bit(begin)
    bit = _bit(lane)
    first = 31 - ops.clz(heads & (bit | (bit - u32(1))))
    return _scan_from(value, op, lane, first, log2_size)


@func
def _bit(lane):
    return u32(1) << u32(lane)


def _named(name: str, doc: str, fn: Callable[..., Any]) -> Callable[..., Any]:
    fn.__name__ = fn.__qualname__ = name
    fn.__doc__ = doc
    return fn


def _whole(name: str, tiled: Callable[..., Any], doc: str) -> Callable[..., Any]:
    """The operation on a whole subgroup."""
    from quadrants.lang.simt import subgroup

    if name.startswith("segmented"):
        return _named(
            name, doc, lambda value, head_flag: tiled(value, head_flag, subgroup.log2_group_size())
        )
    return _named(name, doc, lambda value: tiled(value, subgroup.log2_group_size()))


def _reduction(name: str, combine: Callable[..., Any], op: Any) -> Callable[..., Any]:
    def reduction(value: Any, log2_size: int) -> Any:
        check_tile(name, log2_size)
        return combine(value, op, log2_size)

    return reduction


def _segmented(name: str, op: Any) -> Callable[..., Any]:
    def segmented(value: Any, head_flag: Any, log2_size: int) -> Any:
        assert type(log2_size) is not int or log2_size <= 6, f"{name} requires log2_size <= 6"
        check_tile(name, log2_size)
        return _segmented_reduce_tiled(value, head_flag, op, log2_size)

    return segmented


def _inclusive(name: str, op: Any) -> Callable[..., Any]:
    def inclusive(value: Any, log2_size: int) -> Any:
        check_tile(name, log2_size)
        op(value, value)  # bitwise operations take integers only
        return _inclusive_scan_tiled(value, op, log2_size)

    return inclusive


def _exclusive(name: str, op: Any, identity: Callable[[Any], Any]) -> Callable[..., Any]:
    def exclusive(value: Any, log2_size: int) -> Any:
        check_tile(name, log2_size)
        return _exclusive_scan_tiled(value, op, identity(_copy(value)), log2_size)

    return exclusive


def declare(namespace: dict[str, Any]) -> None:
    """Puts all reductions and scans, tiled and whole, into a module's globals."""

    def add(name: str, doc: str, tiled: Callable[..., Any]) -> None:
        namespace[f"{name}_tiled"] = _named(f"{name}_tiled", f"{doc} of each tile.", tiled)
        namespace[name] = _whole(name, tiled, f"{doc} of the subgroup.")
        for made in (name, f"{name}_tiled"):
            namespace[made].__module__ = namespace["__name__"]

    kinds = (
        ("reduce", "for lane 0", _reduce_tiled),
        ("reduce_all", "for all lanes", _reduce_all_tiled),
    )
    for op in ("add", "min", "max"):
        combine = OPS[op][0]
        for kind, who, tiled in kinds:
            made = _reduction(f"{kind}_{op}_tiled", tiled, combine)
            add(f"{kind}_{op}", f"Reduction by {op}, {who},", made)
        name = f"segmented_reduce_{op}"
        add(name, f"Reduction by {op} from the last head on", _segmented(f"{name}_tiled", combine))
    for op, (combine, identity) in OPS.items():
        name = f"inclusive_{op}"
        add(name, f"Scan by {op}", _inclusive(f"{name}_tiled", combine))
        name = f"exclusive_{op}"
        scan = _exclusive(f"{name}_tiled", combine, identity)
        add(name, f"Scan by {op} of the lanes before", scan)
