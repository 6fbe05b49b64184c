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
    __str__ = __repr__ = lambda self: f"BinaryOpType.{self.name}"  # type: ignore[assignment]


BinaryOpType = _Operator("BinaryOpType", _OPERATORS.split(), start=0, module=__name__)  # type: ignore[call-overload]


class ExprCxx:
    """A value that a kernel would compute."""

    def __init__(self, dtype: DataType, operator: Any = None, operands: tuple[Any, ...] = ()):
        self._dtype, self._operator, self._operands = dtype, operator, operands

    def get_rvalue_type(self) -> DataType:
        return self._dtype

    get_ret_type = get_rvalue_type

    def __repr__(self) -> str:
        if self._operator is None:
            return f"{self._operands[0]}"
        return f"{self._operator.name}({self._operands[0]!r}, {self._operands[1]!r})"


class Stmt:
    """A statement."""


def make_const_expr_int(dtype: DataType, value: int) -> ExprCxx:
    """A constant."""
    if not isinstance(dtype, DataType):
        raise TypeError(f"make_const_expr_int takes a dtype, got {type(dtype).__name__}")
    if type(value) is not int:
        raise TypeError(f"make_const_expr_int takes an int, got {type(value).__name__}")
    return ExprCxx(dtype, operands=(value,))


def make_binary_op_expr(operator: Any, left: ExprCxx, right: ExprCxx) -> ExprCxx:
    """`left operator right`, in the type that the operands are promoted to."""
    if not isinstance(left, ExprCxx) or not isinstance(right, ExprCxx):
        raise TypeError(
            f"make_binary_op_expr takes expressions, got {type(left).__name__} and {type(right).__name__}"
        )
    a, b = left.get_rvalue_type(), right.get_rvalue_type()
    if operator.name.startswith("bit_") and not (a in integer_types and b in integer_types):
        raise QuadrantsTypeError(
            f"unsupported operand type(s) for '{operator.name}': '{a}' and '{b}'"
        )
    return ExprCxx(_promoted(a, b), operator, (left, right))


def _promoted(a: DataType, b: DataType) -> DataType:
    floats = [t for t in (a, b) if t not in integer_types]
    return max(floats or (a, b), key=lambda t: (t.size, str(t)[0] == "u"))


def make_global_store_stmt(place: Any, value: Any) -> Stmt:
    """A statement that stores; nobody runs it."""
    return Stmt()
