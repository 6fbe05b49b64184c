"""Expressions made by hand, outside of kernels: constants and binary operators with their types."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

from quadrants._lib.core._errors import QuadrantsTypeError
from quadrants.types.primitive_types import DataType, integer_types

_OPERATORS = (
    "mul add sub truediv floordiv div mod max min bit_and bit_or bit_xor bit_shl bit_shr bit_sar "
    "cmp_lt cmp_le cmp_gt cmp_ge cmp_eq cmp_ne atan2 pow undefined"
)


class _Operator(IntEnum):
    def __repr__(self) -> str:
        return f"BinaryOpType.{self.name}"

    __str__ = __repr__


_make: Any = _Operator
BinaryOpType = _make("BinaryOpType", _OPERATORS.split(), start=0, module=__name__)


class Expression:
    """A value that a kernel would compute."""

    def __init__(self, dtype: DataType, operator: Any = None, operands: tuple[Any, ...] = ()):
        self._dtype, self._operator, self._operands = dtype, operator, operands

    @property
    def dtype(self) -> DataType:
        return self._dtype

    def __repr__(self) -> str:
        if self._operator is None:
            return f"{self._operands[0]}"
        return f"{self._operator.name}({self._operands[0]!r}, {self._operands[1]!r})"


def make_const_expr_int(dtype: DataType, value: int) -> Expression:
    """A constant."""
    if not isinstance(dtype, DataType):
        raise TypeError(f"make_const_expr_int takes a dtype, got {type(dtype).__name__}")
    if type(value) is not int:
        raise TypeError(f"make_const_expr_int takes an int, got {type(value).__name__}")
    return Expression(dtype, operands=(value,))


def make_binary_op_expr(operator: Any, left: Expression, right: Expression) -> Expression:
    """`left operator right`, in the type that the operands are promoted to."""
    if not isinstance(left, Expression) or not isinstance(right, Expression):
        raise TypeError(
            f"make_binary_op_expr takes expressions, got {type(left).__name__} and {type(right).__name__}"
        )
    a, b = left.dtype, right.dtype
    if operator.name.startswith("bit_") and not (a in integer_types and b in integer_types):
        raise QuadrantsTypeError(
            f"unsupported operand type(s) for '{operator.name}': '{a}' and '{b}'"
        )
    return Expression(_promoted(a, b), operator, (left, right))


def _promoted(a: DataType, b: DataType) -> DataType:
    floats = [t for t in (a, b) if t not in integer_types]
    return max(floats or (a, b), key=lambda t: (t.size, str(t)[0] == "u"))


def make_global_store_stmt(place: Any, value: Any) -> tuple[Any, Any]:
    """Where something is to be stored, and what; nobody runs it."""
    return place, value
