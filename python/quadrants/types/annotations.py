"""Annotations that say how a parameter is passed."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

T = TypeVar("T")


class OptionalAnnotation:
    """`X | None`: the parameter may be left out by passing None."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __repr__(self) -> str:
        return f"{getattr(self.inner, '__name__', self.inner)} | None"


def optional(inner: Any, other: Any) -> Any:
    """The meaning of `inner | other` in an annotation."""
    return OptionalAnnotation(inner) if other is None or other is type(None) else NotImplemented


class Template(Generic[T]):
    """A compile-time parameter: passed by reference, part of the specialisation.

    Args:
        element_type: for readers; any argument is accepted.
        ndim: for readers.
    """

    def __init__(self, element_type: Any = object, ndim: int | None = None) -> None:
        self.element_type = element_type
        self.ndim = ndim

    def __or__(self, other: Any) -> Any:
        return optional(self, other)

    __ror__ = __or__


template = Template


class sparse_matrix_builder:
    """A `qd.linalg.SparseMatrixBuilder` parameter."""
