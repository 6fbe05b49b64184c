"""Annotation of an array parameter.

`NDArray` and `ndarray` are one class; `NDArray`, `NDArray[dtype]`, `NDArray[dtype, ndim]` and calls
of it are annotations. Its instances also hold the rules for matching a Quadrants array.
"""

from __future__ import annotations

from typing import Any

from quadrants._lib.core._enums import Layout
from quadrants.types.annotations import optional
from quadrants.types.enums import boundary_mode
from quadrants.types.primitive_types import DataType, TensorType


def _element_type(
    dtype: Any, element_dim: int | None, element_shape: tuple[int, ...] | None
) -> Any:
    """The element type from its legacy description by rank or shape."""
    from quadrants.lang.matrix import MatrixType, VectorType

    if isinstance(dtype, (MatrixType, VectorType)):
        raise TypeError(
            f'Cannot specifiy matrix dtype "{dtype}" and element shape or dim at the same time.'
        )
    if element_shape is None:
        if element_dim not in (0, 1, 2):
            raise ValueError(
                "Only scalars, vectors, and matrices are allowed as elements of qd.types.ndarray()"
            )
        if element_dim == 0:
            return dtype
        return VectorType(None, dtype) if element_dim == 1 else MatrixType(None, None, 2, dtype)
    element_shape = tuple(element_shape)
    if len(element_shape) > 2:
        raise ValueError(
            "Only scalars, vectors, and matrices are allowed as elements of qd.types.ndarray()"
        )
    if element_dim is not None and element_dim != len(element_shape):
        raise ValueError(
            "Both element_shape and element_dim are specified, but shape doesn't match specified dim: "
            f"{len(element_shape)}!={element_dim}"
        )
    if not element_shape:
        return dtype
    return (
        VectorType(*element_shape, dtype)
        if len(element_shape) == 1
        else MatrixType(*element_shape, 2, dtype)
    )


class NDArray:
    """An array parameter: a Quadrants ndarray, a NumPy array or a torch tensor."""

    def __init__(
        self,
        dtype: Any = None,
        ndim: int | None = None,
        element_dim: int | None = None,
        element_shape: tuple[int, ...] | None = None,
        field_dim: int | None = None,
        needs_grad: bool | None = None,
        boundary: str = "unsafe",
    ) -> None:
        if field_dim is not None:
            raise ValueError(
                "The field_dim argument for ndarray type is already deprecated. Please use ndim instead."
            )
        if element_dim is not None or element_shape is not None:
            dtype = _element_type(dtype, element_dim, element_shape)
        if dtype is float or dtype is int or dtype is bool:
            from quadrants.lang.util import cook_dtype

            dtype = cook_dtype(dtype)
        self.dtype = dtype
        self.ndim = ndim
        self.layout = Layout.AOS
        self.needs_grad = needs_grad
        self.boundary = boundary_mode(boundary)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        # Python 3.10's typing takes only callables as annotations of a NamedTuple.
        raise TypeError("an array annotation cannot be called")

    def __class_getitem__(cls, item: Any) -> NDArray:
        if not isinstance(item, tuple):
            item = (item,)
        return cls(*item)

    def __getitem__(self, item: Any) -> NDArray:
        return NDArray.__class_getitem__(item)

    def __or__(self, other: Any) -> Any:
        return optional(self, other)

    __ror__ = __or__

    __iter__ = None  # or `__getitem__`, which takes anything, makes an endless sequence of it

    def __repr__(self) -> str:
        return f"NdarrayType(dtype={self.dtype}, ndim={self.ndim}, layout={self.layout}, needs_grad={self.needs_grad})"

    def check_matched(self, array_type: Any, arg_name: str) -> None:
        """Raises unless an ndarray fits.

        Args:
            array_type: has `element_type`, `shape`, `needs_grad` (as `Ndarray.get_type()` returns).
            arg_name: the parameter's name, for the message.
        """
        self._check_element(array_type.element_type, arg_name)
        shape = tuple(array_type.shape)
        if self.ndim is not None and self.ndim != len(shape):
            raise ValueError(
                f"Invalid value for argument {arg_name} - required ndim={self.ndim}, but {len(shape)}d ndarray "
                f"with shape {shape} is provided"
            )
        if self.needs_grad and not array_type.needs_grad:
            raise ValueError(
                f"Invalid value for argument {arg_name} - required needs_grad={self.needs_grad}, "
                f"but {array_type.needs_grad} is provided"
            )

    def _check_element(self, got: DataType | TensorType, arg_name: str) -> None:
        want = self.dtype
        if want is None or want is got:
            return
        if not hasattr(want, "check_matched"):
            from quadrants.lang.util import cook_dtype

            want = cook_dtype(want)  # raises for what is no element type
            raise TypeError(f"Expect element type {want} for argument {arg_name}, but get {got}")
        if not want.check_matched(got):
            raise ValueError(
                f"Invalid value for argument {arg_name} - required element type: {want.to_string()}, "
                f"but {got} is provided"
            )


ndarray = NDArray
NdarrayType = NDArray
