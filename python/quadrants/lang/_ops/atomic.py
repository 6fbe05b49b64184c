"""Atomic operations."""

from __future__ import annotations

from typing import Any

from quadrants.lang._ops.operation import atomic


@atomic
def atomic_add(x: Any, y: Any) -> Any:
    """Adds y to x, as one indivisible step; vectors component by component.

    Args:
        x: element of a field, an array or a shared array, or a local variable.
        y: number, cast to the type of x.

    Returns:
        The old x.

    Raises:
        QuadrantsSyntaxError: x cannot be written.
    """


@atomic
def atomic_sub(x: Any, y: Any) -> Any:
    """Subtracts y from x, as one indivisible step; vectors component by component.

    Args:
        x: element of a field, an array or a shared array, or a local variable.
        y: number, cast to the type of x.

    Returns:
        The old x.

    Raises:
        QuadrantsSyntaxError: x cannot be written.
    """


@atomic
def atomic_mul(x: Any, y: Any) -> Any:
    """Multiplies x by y, as one indivisible step; vectors component by component.

    Args:
        x: element of a field, an array or a shared array, or a local variable.
        y: number, cast to the type of x.

    Returns:
        The old x.

    Raises:
        QuadrantsSyntaxError: x cannot be written.
    """


@atomic
def atomic_min(x: Any, y: Any) -> Any:
    """Lowers x to y if y is smaller, as one indivisible step; vectors component by component.

    Args:
        x: element of a field, an array or a shared array, or a local variable.
        y: number, cast to the type of x.

    Returns:
        The old x.

    Raises:
        QuadrantsSyntaxError: x cannot be written.
    """


@atomic
def atomic_max(x: Any, y: Any) -> Any:
    """Raises x to y if y is larger, as one indivisible step; vectors component by component.

    Args:
        x: element of a field, an array or a shared array, or a local variable.
        y: number, cast to the type of x.

    Returns:
        The old x.

    Raises:
        QuadrantsSyntaxError: x cannot be written.
    """


@atomic
def atomic_and(x: Any, y: Any) -> Any:
    """Stores x & y in x, as one indivisible step; vectors component by component.

    Args:
        x: element of a field, an array or a shared array, or a local variable.
        y: integer, cast to the type of x.

    Returns:
        The old x.

    Raises:
        QuadrantsSyntaxError: x cannot be written.
        QuadrantsTypeError: an operand is a float.
    """


@atomic
def atomic_or(x: Any, y: Any) -> Any:
    """Stores x | y in x, as one indivisible step; vectors component by component.

    Args:
        x: element of a field, an array or a shared array, or a local variable.
        y: integer, cast to the type of x.

    Returns:
        The old x.

    Raises:
        QuadrantsSyntaxError: x cannot be written.
        QuadrantsTypeError: an operand is a float.
    """


@atomic
def atomic_xor(x: Any, y: Any) -> Any:
    """Stores x ^ y in x, as one indivisible step; vectors component by component.

    Args:
        x: element of a field, an array or a shared array, or a local variable.
        y: integer, cast to the type of x.

    Returns:
        The old x.

    Raises:
        QuadrantsSyntaxError: x cannot be written.
        QuadrantsTypeError: an operand is a float.
    """


@atomic
def atomic_exchange(x: Any, y: Any) -> Any:
    """Stores y in x, as one indivisible step; vectors component by component.

    Args:
        x: element of a field, an array or a shared array, or a local variable.
        y: number, cast to the type of x.

    Returns:
        The old x.

    Raises:
        QuadrantsSyntaxError: x cannot be written.
    """


@atomic
def atomic_cas(x: Any, expected: Any, desired: Any) -> Any:
    """Stores desired in x if x equals expected, as one indivisible step.

    Args:
        x: element of a field, an array or a shared array, or a local variable; a scalar.
        expected: value to compare with.
        desired: value to store.

    Returns:
        The old x.

    Raises:
        QuadrantsSyntaxError: x cannot be written.
    """
