"""Rules for arrays as kernel arguments, checked when a new specialisation is made.

Native code calls `check_array` for each array parameter; the texts are those that clients match on.
"""

from __future__ import annotations

from typing import Any

from quadrants._lib import core
from quadrants.lang.exception import QuadrantsRuntimeTypeError
from quadrants.lang.util import to_quadrants_type
from quadrants.types.buffer_view_type import BufferViewType
from quadrants.types.ndarray_type import NDArray
from quadrants.types.primitive_types import DataType

_ANY_ARRAY = NDArray()


class _ArrayType:
    """What an ndarray is, as `NDArray.check_matched` wants it."""

    def __init__(self, array: Any) -> None:
        self.element_type = array.element_type
        self.shape = array.shape
        self.needs_grad = array.grad is not None


def check_array(annotation: Any, value: Any, name: str) -> None:
    """Raises unless an argument fits an array annotation.

    Args:
        annotation: NDArray, BufferView or an instance of their annotation classes.
        value: the argument.
        name: the parameter's name, for the message.
    """
    if hasattr(value, "_unwrap"):
        value = value._unwrap()
    if (
        isinstance(annotation, BufferViewType)
        or getattr(annotation, "__name__", "") == "BufferView"
    ):
        _check_view(annotation, value, name)
        return
    if annotation is NDArray:
        annotation = _ANY_ARRAY
    if isinstance(value, core.NdarrayBase):
        if value.shape is not None:  # emptied by a reset: refused at the launch
            annotation.check_matched(_ArrayType(value), name)
    elif _is_external(value):
        _check_external(annotation, value, name)
    else:
        raise QuadrantsRuntimeTypeError(f"Invalid type for argument {name}, got {value}")


def _is_external(value: Any) -> bool:
    """Whether it is a NumPy array or a torch tensor; imports neither."""
    return any(
        (c.__module__, c.__name__) in (("numpy", "ndarray"), ("torch", "Tensor"))
        for c in type(value).__mro__
    )


def _check_view(annotation: Any, value: Any, name: str) -> None:
    if type(value).__name__ != "BufferView":
        raise QuadrantsRuntimeTypeError(f"Invalid type for argument {name}, got {value}")
    wanted = annotation.dtype if isinstance(annotation, BufferViewType) else None
    if wanted is not None:
        NDArray(wanted)._check_element(value.arr.element_type, name)


def _check_external(annotation: NDArray, value: Any, name: str) -> None:
    """A compound element type consumes the trailing axes; its scalar type is not enforced."""
    given = to_quadrants_type(value.dtype)
    shape = tuple(value.shape)
    wanted = annotation.dtype
    start = f"Invalid value for argument {name} - "
    element_dim = 0
    if isinstance(wanted, DataType):
        if wanted is not given:
            raise ValueError(
                f"{start}required array has dtype={wanted}, array with dtype={given} is provided"
            )
    elif wanted is not None:
        element_dim = wanted.ndim
    ndim = annotation.ndim
    if len(shape) < element_dim or ndim is not None and len(shape) != ndim + element_dim:
        compound = f" element_dim={element_dim}" if element_dim else ""
        raise ValueError(
            f"{start}required array has ndim={ndim}{compound}, "
            f"array with {len(shape)} dimensions is provided"
        )
    if element_dim:
        got = shape[-element_dim:]
        if any(w is not None and w != g for w, g in zip(wanted.get_shape(), got)):
            raise ValueError(
                f"{start}required element_shape={wanted.get_shape()}, "
                f"array with element shape of {got} is provided"
            )
