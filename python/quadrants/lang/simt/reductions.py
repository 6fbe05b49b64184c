"""Reductions and scans over tiles of a subgroup: aligned runs of `2 ** log2_size` lanes.

On a target without subgroups each lane is a tile of its own, and only `log2_size=0` compiles.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from quadrants.lang import ops
from quadrants.lang.exception import QuadrantsTypeError
from quadrants.lang.kernel_impl import func
from quadrants.lang.simt._target import no_subgroups


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


_OPS: dict[str, tuple[Any, Callable[[Any], Any]]] = {  # operation, its identity for a value
    "add": (_bin_add, ops.zero),
    "mul": (_bin_mul, ops.one),
    "min": (_bin_min, _typed_min_identity),
    "max": (_bin_max, _typed_max_identity),
    "and": (_bin_and, lambda value: ~ops.zero(value)),
    "or": (_bin_or, lambda value: ops.zero(value) | ops.zero(value)),
    "xor": (_bin_xor, lambda value: ops.zero(value) ^ ops.zero(value)),
}


def alone(name: str, log2_size: Any) -> None:
    """Checks that each lane is a tile of its own.

    Raises:
        QuadrantsTypeError: log2_size is not known at compile time.
        QuadrantsCompilationError: it is not 0, and the target has no subgroups.
    """
    if type(log2_size) is not int:
        raise QuadrantsTypeError(f"{name}: log2_size must be a compile-time integer")
    if log2_size != 0:
        raise no_subgroups(f"qd.simt.subgroup.{name}")


def _reduce_tiled(value: Any, op: Any, log2_size: int) -> Any:
    """The values of a tile combined by a func of two; its first lane gets the result."""
    alone("_reduce_tiled", log2_size)
    return _copy(value)


def _inclusive_scan_tiled(value: Any, op: Any, log2_size: int) -> Any:
    """The values of a tile up to each lane combined by a func of two."""
    alone("_inclusive_scan_tiled", log2_size)
    return _copy(value)


def _exclusive_scan_tiled(value: Any, op: Any, identity: Any, log2_size: int) -> Any:
    """The values of a tile before each lane combined by a func of two."""
    alone("_exclusive_scan_tiled", log2_size)
    return ops.cast(identity, _copy(value).dtype)


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


def _reduction(name: str) -> Callable[..., Any]:
    def reduction(value: Any, log2_size: int) -> Any:
        alone(name, log2_size)
        return _copy(value)

    return reduction


def _segmented(name: str) -> Callable[..., Any]:
    def segmented(value: Any, head_flag: Any, log2_size: int) -> Any:
        assert type(log2_size) is not int or log2_size <= 6, f"{name} requires log2_size <= 6"
        alone(name, log2_size)
        return _copy(value)

    return segmented


def _inclusive(name: str, op: Any) -> Callable[..., Any]:
    def inclusive(value: Any, log2_size: int) -> Any:
        alone(name, log2_size)
        op(value, value)  # bitwise operations take integers only
        return _copy(value)

    return inclusive


def _exclusive(name: str, identity: Callable[[Any], Any]) -> Callable[..., Any]:
    def exclusive(value: Any, log2_size: int) -> Any:
        alone(name, log2_size)
        return identity(_copy(value))

    return exclusive


def declare(namespace: dict[str, Any]) -> None:
    """Puts all reductions and scans, tiled and whole, into a module's globals."""

    def add(name: str, doc: str, tiled: Callable[..., Any]) -> None:
        namespace[f"{name}_tiled"] = _named(f"{name}_tiled", f"{doc} of each tile.", tiled)
        namespace[name] = _whole(name, tiled, f"{doc} of the subgroup.")
        for made in (name, f"{name}_tiled"):
            namespace[made].__module__ = namespace["__name__"]

    for op in ("add", "min", "max"):
        for kind, who in (("reduce", "for lane 0"), ("reduce_all", "for all lanes")):
            add(f"{kind}_{op}", f"Reduction by {op}, {who},", _reduction(f"{kind}_{op}_tiled"))
        name = f"segmented_reduce_{op}"
        add(name, f"Reduction by {op} from the last head on", _segmented(f"{name}_tiled"))
    for op, (combine, identity) in _OPS.items():
        name = f"inclusive_{op}"
        add(name, f"Scan by {op}", _inclusive(f"{name}_tiled", combine))
        name = f"exclusive_{op}"
        add(name, f"Scan by {op} of the lanes before", _exclusive(f"{name}_tiled", identity))
