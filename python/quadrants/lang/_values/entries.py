"""The entries of host vectors and matrices as NumPy arrays.

NumPy makes integers floats where a list has no common integer type: a u64 value of 2**63 or more
beside a smaller one, an i64 value beside a float. Floats lose digits beyond 2**53.
"""

from __future__ import annotations

from typing import Any

from quadrants._lazy import LazyNumpy
from quadrants.lang.util import real_numbers, to_numpy_type
from quadrants.types.primitive_types import DataType, u1

np: Any = LazyNumpy(globals())


def entries_for(dtype: DataType, values: Any) -> Any:
    """`np.asarray`, of numbers that are to become a dtype: integers are not made floats on the way.

    Raises:
        TypeError: something is no number.
    """
    array = np.asarray(values)
    if array.dtype.kind not in "biu":
        real_numbers(array)
        if not dtype.is_real and dtype is not u1 and not isinstance(values, np.ndarray):
            return cast_alone(to_numpy_type(dtype), values)
    return array


def check_range(dtype: DataType, values: list[Any]) -> None:
    """Raises if a number has no value of an integer dtype.

    Raises:
        ValueError: NaN.
        OverflowError: infinite, or out of the dtype's range.
    """
    if dtype.is_real or dtype is u1:
        return
    low = -(1 << dtype.bits - 1) if dtype.is_signed else 0
    for value in values:
        if isinstance(value, (int, float)) and not 0 <= int(value) - low < 1 << dtype.bits:
            raise OverflowError(f"{value} is out of the range of {dtype}")


def cast_alone(dtype: Any, values: Any) -> Any:
    """An array of an integer dtype of NumPy's; each number is cast as if it were alone."""
    try:
        return np.array(values, dtype)
    except (OverflowError, ValueError):  # out of its range, or NaN
        numbers = np.asarray(values, object)
        with np.errstate(all="ignore"):
            cast = [np.asarray(v).astype(dtype) for v in numbers.flat]
        return np.array(cast, dtype).reshape(numbers.shape)


def entries_of(values: Any) -> Any:
    """`np.asarray`, but integers that u64 holds stay integers."""
    array = np.asarray(values)
    if array.dtype.kind == "f" and isinstance(values, (list, tuple)) and _are_natural(values):
        return np.asarray(values, np.uint64)
    return array


def _are_natural(values: Any) -> bool:
    for v in values:
        if type(v) is float:
            return False
        if isinstance(v, (list, tuple)):
            if not _are_natural(v):
                return False
        elif not isinstance(v, (int, np.integer)) or v < 0:
            return False
    return True
