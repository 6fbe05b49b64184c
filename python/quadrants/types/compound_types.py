"""Constructors of vector, matrix and struct types."""

from __future__ import annotations

from typing import Any


def vector(n: int | None = None, dtype: Any = None, *, unpacked: bool = False) -> Any:
    """A vector type of n elements.

    Args:
        n: number of elements; None matches any (in array annotations).
        dtype: element type.
        unpacked: as a member of a `@qd.dataclass`, store n separate scalars.
    """
    from quadrants.lang.matrix import UnpackedVectorType, VectorType

    if unpacked:
        return UnpackedVectorType(n, dtype)
    return VectorType(n, dtype)


def matrix(n: int | None = None, m: int | None = None, dtype: Any = None) -> Any:
    """A matrix type of n rows and m columns."""
    from quadrants.lang.matrix import MatrixType

    return MatrixType(n, m, 2, dtype)


def struct(**members: Any) -> Any:
    """A struct type with the given members."""
    from quadrants.lang.struct import StructType

    return StructType(**members)
