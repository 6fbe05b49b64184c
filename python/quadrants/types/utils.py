"""Predicates over dtypes."""

from __future__ import annotations

from typing import Any

from quadrants.types.primitive_types import DataType, TensorType


def _checked(dt: Any) -> DataType | TensorType:
    if not isinstance(dt, (DataType, TensorType)):
        raise TypeError(f"an element type such as qd.f32 is expected, got {dt!r}")
    return dt


def is_signed(dt: Any) -> bool:
    """Whether dt is a signed integer."""
    return isinstance(_checked(dt), DataType) and dt.is_signed and not dt.is_real


def is_integral(dt: Any) -> bool:
    """Whether dt is an integer type, `u1` included."""
    return isinstance(_checked(dt), DataType) and not dt.is_real


def is_real(dt: Any) -> bool:
    """Whether dt is a floating-point type."""
    return isinstance(_checked(dt), DataType) and dt.is_real


def is_tensor(dt: Any) -> bool:
    """Whether dt is the element type of an array of vectors or matrices."""
    return isinstance(_checked(dt), TensorType)
