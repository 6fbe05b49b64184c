"""Which integers `fill` takes; elsewhere they wrap around.

An element of 32 or 64 bits takes what it can hold; fields and 64 bits take the negative numbers of that size
for an unsigned one, too. A narrower one takes what i32 holds, which wraps. Vectors and matrices of
ndarrays take what NumPy's number of that dtype takes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from quadrants._lazy import LazyNumpy
from quadrants._lib import core
from quadrants.lang.exception import QuadrantsTypeError
from quadrants.types.primitive_types import DataType, u1

np: Any = LazyNumpy(globals())


def check_fill(dtype: DataType, value: Any) -> None:
    """Raises if a field, or an ndarray of numbers, cannot be filled with an integer.

    Args:
        dtype: of the elements' numbers.
        value: what `fill` was given; what is no integer is left to others.

    Raises:
        QuadrantsTypeError: out of range.
    """
    if dtype.is_real:
        return
    bits = max(dtype.bits, 32)
    whole = dtype.bits >= 32 and not dtype.is_signed
    _check(dtype, value, range(-(1 << bits - 1), 1 << bits - (not whole)), QuadrantsTypeError)


def check_exact(dtype: DataType, value: Any, error: type[Exception]) -> None:
    """Raises `error` if an integer has no value of an integer dtype."""
    if dtype.is_real or dtype is u1:
        return
    low = -(1 << dtype.bits - 1) if dtype.is_signed else 0
    _check(dtype, value, range(low, low + (1 << dtype.bits)), error)


def _check(dtype: DataType, value: Any, allowed: range, error: type[Exception]) -> None:
    for number in _integers(value):
        if number not in allowed:
            raise error(
                f"{number} is out of range: elements of type {dtype} are filled with integers from "
                f"{allowed.start} to {allowed.stop - 1}"
            )


def _integers(value: Any) -> Iterator[int]:
    entries = value if core.is_expr(value) else getattr(value, "entries", value)
    if type(entries) is int:
        yield entries
    elif isinstance(entries, (list, tuple, np.ndarray)):
        for entry in np.asarray(entries, object).flat:
            if isinstance(entry, (int, np.integer)):
                yield int(entry)
    elif isinstance(entries, np.integer):
        yield int(entries)
