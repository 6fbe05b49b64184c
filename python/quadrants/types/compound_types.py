"""Constructors of vector, matrix and struct types."""

from __future__ import annotations

from typing import Any


def vector(n: int | None = None, dtype: Any = None, *, unpacked: bool = False) -> Any:
    """A vector type of n elements.

    Args:
        n: number of elements; None matches any (in array annotations).
        dtype: element type.
        unpacked: as a member of a `@qd.dataclass`, store n separate scalars.

    Returns:
        A type: called, it makes vectors from a number, the components, or lists and vectors that have
        as many components together; in annotations it says what is passed.
    """
    from quadrants.lang.matrix import UnpackedVectorType, VectorType

    if unpacked:
        return UnpackedVectorType(n, dtype)
    return VectorType(n, dtype)


def matrix(n: int | None = None, m: int | None = None, dtype: Any = None) -> Any:
    """A matrix type of n rows and m columns.

    Args:
        n: number of rows; None matches any (in array annotations).
        m: number of columns; None matches any.
        dtype: element type.

    Returns:
        A type: called, it makes matrices as `vector` types make vectors.
    """
    from quadrants.lang.matrix import MatrixType

    return MatrixType(n, m, 2, dtype)


def struct(**members: Any) -> Any:
    """A struct type with the given members."""
    from quadrants.lang.struct import StructType

    return StructType(**members)
