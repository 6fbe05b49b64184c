"""`qd.ndrange`: a box of indices, in kernels a loop header, on the host an iterable."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

from quadrants.lang import impl
from quadrants.lang.exception import QuadrantsSyntaxError, QuadrantsTypeError
from quadrants.lang.util import is_one_index

_NOT_A_PAIR = "Every argument of ndrange should be a scalar or a tuple/list like (begin, end)"
_NOT_AN_INT = "Every argument of ndrange should be an integer scalar or a tuple/list of (int, int)"


def _is_numpy_bool(x: Any) -> bool:
    return getattr(getattr(x, "dtype", None), "kind", "") == "b" and x.shape == ()


def _integer(x: Any) -> int:
    try:
        return int(x) if _is_numpy_bool(x) else x.__index__()
    except (AttributeError, TypeError):
        raise QuadrantsTypeError(_NOT_AN_INT) from None


def _bound(arg: Any) -> tuple[int, int]:
    if is_one_index(arg) or _is_numpy_bool(arg):
        begin, end = 0, _integer(arg)
    elif isinstance(arg, str) or hasattr(arg, "__len__") and hasattr(arg, "__getitem__"):
        if isinstance(arg, str) or len(arg) != 2:
            raise QuadrantsSyntaxError(_NOT_A_PAIR)
        begin, end = _integer(arg[0]), _integer(arg[1])
    elif hasattr(arg, "__next__"):
        raise ValueError(
            "A generator cannot be an argument of ndrange; use integers or (begin, end)"
        )
    else:
        raise QuadrantsTypeError(_NOT_AN_INT)
    return begin, max(begin, end)


def _checked_axes(axes: Any, count: int) -> tuple[int, ...] | None:
    """The permutation, None if it is the identity."""
    axes = tuple(axes)
    for entry in axes:
        if type(entry) is not int:
            raise QuadrantsTypeError(
                f"qd.ndrange(axes={axes}) entries must be Python ints; got {type(entry).__name__} ({entry!r})"
            )
    if len(axes) != count:
        raise QuadrantsSyntaxError(
            f"qd.ndrange(axes={axes}) has {len(axes)} entries but ndrange was called with {count} "
            "dimension argument(s); they must match"
        )
    if sorted(axes) != list(range(count)):
        raise QuadrantsSyntaxError(
            f"qd.ndrange(axes={axes}) is not a permutation of range({count})"
        )
    return None if axes == tuple(range(count)) else axes


class _Ndrange:
    """A box of indices, visited with the last axis fastest or in the order `axes` says."""

    def __init__(self, *args: Any, axes: Any = None) -> None:
        self.bounds = [_bound(arg) for arg in args]
        self.dimensions = [end - begin for begin, end in self.bounds]
        self.axes = None if axes is None else _checked_axes(axes, len(args))

    @property
    def acc_dimensions(self) -> list[int]:
        """For each axis, in the order of the visits, how many turns it and those after it make."""
        extents = [self.dimensions[a] for a in self.axes or range(len(self.dimensions))]
        return [prod(extents[n:]) for n in range(len(extents))]

    def __iter__(self) -> Iterator[tuple[int, ...]]:
        if len(self.bounds) == 1 and impl.is_python_backend():
            from quadrants.lang._python_backend import single_indices

            yield from single_indices(*self.bounds[0])
            return
        if self.axes is None:
            yield from _visits([range(*b) for b in self.bounds])
            return
        place = sorted(range(len(self.axes)), key=self.axes.__getitem__)
        for visited in _visits([range(*self.bounds[a]) for a in self.axes]):
            yield tuple(visited[p] for p in place)

    def grouped(self) -> GroupedNDRange:
        return GroupedNDRange(self)


def _visits(axes: list[range]) -> Iterator[tuple[int, ...]]:
    """As itertools.product, which keeps each axis as a tuple, however long it is."""
    if not axes:
        yield ()
        return
    *outer, last = axes
    for index in _visits(outer):
        for k in last:
            yield *index, k


class GroupedNDRange:
    """The same box, one vector per turn."""

    def __init__(self, r: _Ndrange) -> None:
        self.r = r

    def __iter__(self) -> Iterator[Any]:
        from quadrants.lang.matrix import Vector

        for index in self.r:
            yield Vector(list(index))


def ndrange(*args: Any, axes: Any = None) -> _Ndrange:
    """All index tuples of a box.

    Args:
        *args: per axis an extent or a pair (begin, end).
        axes: canonical axes in visiting order, outermost first.
    """
    return _Ndrange(*args, axes=axes)


ndrange._qd_op = "ndrange"  # type: ignore[attr-defined]
