"""Quantised number types: descriptions of how a number is packed into bits."""

from __future__ import annotations

import builtins
from math import inf
from typing import Any

from quadrants.lang.exception import QuadrantsRuntimeError
from quadrants.lang.util import cook_dtype as _cook_dtype
from quadrants.types.primitive_types import DataType, f64

_int = builtins.int
_float = builtins.float
_bool = builtins.bool
_MOST_EXPONENT_BITS, _MOST_DIGITS = 8, 23  # those of f32


class _Row:
    """Plain values that stay as they are. (`dataclasses` takes longer to import than a first call.)"""

    __slots__: tuple[str, ...] = ()
    _kind = 0  # equal in all processes, as a class's hash is not

    def __init__(self, *values: Any) -> None:
        for name, value in zip(self.__slots__, values, strict=True):
            object.__setattr__(self, name, value)

    def _values(self) -> tuple[Any, ...]:
        return tuple(getattr(self, name) for name in self.__slots__)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"cannot assign to field {name!r}")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"cannot delete field {name!r}")

    def __eq__(self, other: object) -> _bool:
        if type(other) is not type(self):
            return NotImplemented
        return self._values() == other._values()

    def __hash__(self) -> _int:
        return hash((self._kind, *self._values()))

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self._values()

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__slots__)
        return f"{type(self).__name__}({shown})"


class QuantInt(_Row):
    """An integer of `bits` bits."""

    __slots__: tuple[str, ...] = ("bits", "signed", "compute")
    _kind = 1
    bits: _int
    signed: _bool
    compute: DataType


class QuantFixed(_Row):
    """A fixed-point number: stored integer = value / scale, rounded to nearest."""

    __slots__: tuple[str, ...] = ("digits", "scale", "compute")
    _kind = 2
    digits: QuantInt
    scale: _float
    compute: DataType


class QuantFloat(_Row):
    """A float of `exponent.bits` and `digits.bits`."""

    __slots__: tuple[str, ...] = ("digits", "exponent", "signed", "compute")
    _kind = 3
    digits: QuantInt
    exponent: QuantInt
    signed: _bool
    compute: DataType


def _checked_bits(bits: Any) -> _int:
    if not isinstance(bits, _int) or not 1 <= bits <= 64:
        raise ValueError(f"a quantised number has 1 to 64 bits, got {bits!r}")
    return bits


def _checked_sign(signed: Any) -> _bool:
    if not isinstance(signed, _int):
        raise TypeError(f"signed is True or False, got {signed!r}")
    return bool(signed)


def _checked_step(number: Any, name: str, compute: DataType) -> _float:
    """A number that divides others in `compute`."""
    from numbers import Real

    if not isinstance(number, Real):
        raise TypeError(f"{name} is a number, got {number!r}")
    step = builtins.float(number)
    least, most = (2.0**-1022, inf) if compute.bits == 64 else (2.0**-126, 2.0**128)
    if compute.bits == 16:
        least, most = 2.0**-14, 65520.0
    if not least <= abs(step) < most:
        raise QuadrantsRuntimeError(
            f"{name} must be a number that {compute} can divide by, got {number!r}"
        )
    return step


def _compute_int(compute: Any, signed: _bool) -> DataType:
    from quadrants.lang.impl import get_runtime

    if compute is not None:
        return _cook_dtype(compute)
    return get_runtime().default_ip if signed else get_runtime().default_up


def _compute_float(compute: Any) -> DataType:
    from quadrants.lang.impl import get_runtime

    if compute is None:
        return get_runtime().default_fp
    if not _cook_dtype(compute).is_real:
        raise QuadrantsRuntimeError(f"the type in kernels is a float, got {compute}")
    return _cook_dtype(compute)


def int(bits: _int, signed: _bool = True, compute: Any = None) -> QuantInt:  # noqa: A001
    """A quantised integer type.

    Args:
        bits: width.
        signed: whether one bit is the sign.
        compute: type in kernels, the default integer of that sign if None.

    Raises:
        TypeError: signed is no boolean.
        ValueError: bits is not 1 to 64.
    """
    signed = _checked_sign(signed)
    return QuantInt(_checked_bits(bits), signed, _compute_int(compute, signed))


def fixed(
    bits: _int,
    signed: _bool = True,
    max_value: _float = 1.0,
    compute: Any = None,
    scale: _float | None = None,
) -> QuantFixed:
    """A fixed-point type: the stored integer is value / scale, rounded to nearest.

    Args:
        bits: width.
        signed: whether one bit is the sign.
        max_value: values lie below it, and above its negative if signed.
        compute: type in kernels, the default float if None.
        scale: the step, if not derived from max_value.

    Raises:
        TypeError: signed is no boolean, or max_value or scale no number.
        ValueError: bits is not 1 to 64.
        RuntimeError: the step is 0, not finite, or none that `compute` has.
    """
    _checked_bits(bits)
    signed, compute = _checked_sign(signed), _compute_float(compute)
    if scale is None:
        scale = _checked_step(max_value, "max_value", f64) / 2 ** (bits - 1 if signed else bits)
    scale = _checked_step(scale, "scale", compute)
    return QuantFixed(QuantInt(bits, signed, _compute_int(None, signed)), scale, compute)


def float(exp: _int, frac: _int, signed: _bool = True, compute: Any = None) -> QuantFloat:  # noqa: A001
    """A quantised floating-point type.

    Args:
        exp: exponent bits.
        frac: mantissa bits, the sign included.
        signed: whether one mantissa bit is the sign.
        compute: type in kernels, the default float if None.

    Raises:
        TypeError: signed is no boolean.
        RuntimeError: more than 8 bits of exponent, or more than 23 digits beside the sign.
    """
    signed = _checked_sign(signed)
    if _checked_bits(exp) > _MOST_EXPONENT_BITS or _checked_bits(frac) - signed > _MOST_DIGITS:
        raise QuadrantsRuntimeError(
            f"a quantised float has an exponent of at most {_MOST_EXPONENT_BITS} bits and "
            f"{_MOST_DIGITS} digits beside its sign, got {exp} and {frac - signed}"
        )
    if frac - signed < 1:
        raise QuadrantsRuntimeError("a quantised float has at least one digit beside its sign")
    return QuantFloat(
        QuantInt(_checked_bits(frac), signed, _compute_int(None, signed)),
        QuantInt(_checked_bits(exp), False, _compute_int(None, False)),
        signed,
        _compute_float(compute),
    )
