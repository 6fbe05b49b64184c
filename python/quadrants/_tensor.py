"""`qd.tensor`: one container interface over fields and ndarrays.

A `Tensor` holds a bare field or ndarray and shows it canonically: with a layout the memory has the
permuted shape, but shape, indices and conversions do not change. Kernels see the bare object.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Any

from quadrants._lib import core
from quadrants.lang import impl
from quadrants.lang._ndarray import Ndarray, create_matrix_ndarray, ndarray
from quadrants.lang.exception import QuadrantsRuntimeError
from quadrants.lang.field import Field, MatrixField, create_matrix_field, field
from quadrants.lang.matrix import MatrixType
from quadrants.lang.util import is_one_index


class Backend(enum.IntEnum):
    """What a tensor is made of."""

    FIELD = 0
    NDARRAY = 1


class Tensor(core.TensorBase):
    """A wrapper around a bare field or ndarray.

    Args:
        impl: the field or ndarray.
    """

    _qd_annotation = "class"
    _rank: int | None = None  # of elements

    def __init__(self, impl: Any) -> None:
        if not isinstance(impl, (Ndarray, Field)):
            raise TypeError(f"Tensor(impl) requires an Ndarray or Field; got {type(impl).__name__}")
        if self._rank is not None and len(getattr(impl, "_element_shape", ())) != self._rank:
            kind = "vector" if self._rank == 1 else "matrix"
            raise TypeError(
                f"{type(self).__name__} requires a {kind}-element impl; got {type(impl).__name__}"
            )
        self._impl = impl

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents by canonical axis; None once the runtime was reset."""
        shape = self._impl.shape
        return shape and tuple(shape)

    @property
    def dtype(self) -> Any:
        """Type of a number."""
        return self._impl.dtype

    @property
    def layout(self) -> tuple[int, ...] | None:
        """Canonical axis at each memory level; None if in order."""
        return self._impl.layout

    @property
    def grad(self) -> Any:
        """The gradient as a tensor; None if there is none."""
        bare = self._impl.grad
        if bare is None:
            return None
        made = self.__dict__.get("_grad")
        if made is None or made._impl is not bare:
            made = self.__dict__["_grad"] = wrap(bare)
        return made

    def has_grad(self) -> bool:
        """Whether the gradient has storage."""
        return self._impl.has_grad()

    def has_dual(self) -> bool:
        """Whether the dual has storage."""
        return self._impl.has_dual()

    def fill(self, value: Any) -> None:
        """Sets every element; see `fill` of fields and ndarrays."""
        self._impl.fill(value)

    def copy_from(self, other: Any) -> None:
        """Copies all elements of a tensor, field or ndarray of the same backend and shape.

        Raises:
            TypeError: a field was expected.
            AssertionError: an ndarray of the same shape was expected.
        """
        self._impl.copy_from(_bare(other))

    def to_numpy(self, dtype: Any = None, *, copy: bool | None = True) -> Any:
        """The elements as a NumPy array.

        Args:
            dtype: NumPy dtype of the result.
            copy: True copies, False shares the memory or raises, None shares if possible.
        """
        return self._impl.to_numpy(dtype=dtype, copy=copy)

    def from_numpy(self, arr: Any) -> None:
        """Sets the elements from an array of canonical shape."""
        self._impl.from_numpy(arr)

    def to_torch(self, device: Any = None, *, copy: bool | None = True) -> Any:
        """The elements as a torch tensor; `copy` as for `to_numpy`."""
        return self._impl.to_torch(device=device, copy=copy)

    def from_torch(self, arr: Any) -> None:
        """Sets the elements from a torch tensor of canonical shape."""
        self._impl.from_torch(arr)

    def to_dlpack(self, versioned: bool = False) -> Any:
        """A DLPack capsule over the memory."""
        return self._impl.to_dlpack(versioned)

    __iter__ = None  # else Python would index from 0 until an error

    def __getitem__(self, key: Any) -> Any:
        bare = self._impl
        return bare[key if isinstance(bare, Field) else _physical_key(bare, key)]

    def __setitem__(self, key: Any, value: Any) -> None:
        bare = self._impl
        bare[key if isinstance(bare, Field) else _physical_key(bare, key)] = value

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        self._impl._prepare()
        made = self._alike(self.shape)
        made.copy_from(self)
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        bare = self._impl
        facts = (
            _backend_of(bare).value,
            self.dtype,
            bare._element_shape,
            bare._qd_layout,
            self.shape,
        )
        return _unpickled, (facts, bare.to_numpy())

    def _alike(self, shape: tuple[int, ...]) -> Any:
        bare = self._impl
        return _built(
            _backend_of(bare), self.dtype, bare._element_shape, shape, bare._qd_layout, False
        )

    def __repr__(self) -> str:
        layout = "" if self.layout is None else f", layout={self.layout}"
        backend = _backend_of(self._impl).name
        return f"Tensor(shape={self.shape}, dtype={self.dtype!r}, backend={backend}{layout})"


class VectorTensor(Tensor):
    """A tensor of vectors."""

    _rank = 1

    @property
    def element_shape(self) -> tuple[int, ...]:
        """(n,)"""
        return tuple(self._impl._element_shape)


class MatrixTensor(Tensor):
    """A tensor of matrices."""

    _rank = 2

    @property
    def element_shape(self) -> tuple[int, ...]:
        """(n, m)"""
        return tuple(self._impl._element_shape)


def wrap(impl: Any) -> Any:
    """The tensor around a bare field or ndarray, of the class that fits its elements."""
    if isinstance(impl, (Ndarray, MatrixField)) and impl._element_shape:
        kind = VectorTensor if len(impl._element_shape) == 1 else MatrixTensor
        return kind(impl)
    return Tensor(impl)


def _bare(value: Any) -> Any:
    return value._impl if isinstance(value, Tensor) else value


def _backend_of(bare: Any) -> Backend:
    return Backend.FIELD if isinstance(bare, Field) else Backend.NDARRAY


def _physical_key(bare: Any, key: Any) -> Any:
    layout = bare._qd_layout
    if layout is None:
        return key
    if len(layout) == 1 and not isinstance(key, tuple):
        return key
    if not isinstance(key, (tuple, list)) or len(key) != len(layout):
        raise TypeError(f"a tensor with layout={layout} takes {len(layout)} indices, got {key!r}")
    return tuple(key[axis] for axis in layout)


def _with_layout(nd: Any, layout: Any) -> Any:
    """Tags an ndarray and its gradient; the allocated shape becomes the physical one."""
    bare = _bare(nd)
    rank = len(bare.shape)
    layout = tuple(layout)
    if len(layout) != rank:
        raise ValueError(f"layout has {len(layout)} entries but the array has {rank} axes")
    _check_permutation(layout, rank)
    bare._qd_layout = layout
    if bare.grad is not None:
        bare.grad._qd_layout = layout
    return nd


def _check_permutation(layout: tuple[Any, ...], rank: int) -> None:
    if sorted(layout) != list(range(rank)):
        raise ValueError(f"layout={layout} is not a permutation of range({rank})")


def _checked_backend(backend: Any) -> Backend:
    try:
        return Backend(backend)
    except ValueError:
        raise ValueError(
            f"backend={backend!r} is not a valid qd.Backend; expected qd.Backend.FIELD or qd.Backend.NDARRAY"
        ) from None


def _reject(who: str, extra: dict[str, Any]) -> None:
    if who == "qd.tensor" and "order" in extra:
        raise TypeError("qd.tensor(...) does not accept order=; pass layout=(...) instead")
    if "order" in extra or "layout" in extra:
        factory = who.replace("tensor", "field")
        raise TypeError(
            f"{who}(...) does not accept order= (or layout=); use {factory}(..., order=...) instead"
        )
    if extra:
        raise TypeError(f"{who}() got unexpected keyword argument(s) {sorted(extra)}")


def _built(
    backend: Backend,
    dtype: Any,
    element_shape: tuple[int, ...],
    shape: Any,
    layout: tuple[int, ...] | None,
    needs_grad: bool,
) -> Any:
    n, m = (*element_shape, 1)[:2] if element_shape else (1, 1)
    if element_shape:
        rank = len(element_shape)
        if backend is Backend.NDARRAY:
            return wrap(create_matrix_ndarray(n, m, rank, dtype, shape, needs_grad))
        return wrap(
            create_matrix_field(
                n, m, rank, dtype, shape, None, "", None, needs_grad, False, core.Layout.AOS
            )
        )
    if layout is not None and layout == tuple(range(len(layout))):
        layout = None
    if backend is Backend.FIELD:
        order = None if layout is None else "".join(chr(ord("i") + axis) for axis in layout)
        return wrap(field(dtype, shape, order=order, needs_grad=needs_grad))
    if layout is None:
        return wrap(ndarray(dtype, shape, needs_grad))
    return wrap(
        _with_layout(ndarray(dtype, tuple(shape[axis] for axis in layout), needs_grad), layout)
    )


def tensor(
    dtype: Any,
    shape: Any,
    *,
    backend: Any = Backend.NDARRAY,
    layout: Sequence[int] | None = None,
    needs_grad: bool = False,
    **extra: Any,
) -> Any:
    """A tensor: a field or an ndarray behind one interface.

    Args:
        dtype: element type; a vector or matrix type makes a tensor of these.
        shape: extents.
        backend: `qd.Backend.NDARRAY` or `qd.Backend.FIELD`.
        layout: canonical axis at each memory level, outermost first.
        needs_grad: give it a gradient.
        **extra: nothing; named to say what to use instead.

    Returns:
        A `Tensor`, `VectorTensor` or `MatrixTensor`.

    Raises:
        ValueError: an unknown backend, or a layout that is no permutation of the axes.
        TypeError: a layout of vectors or matrices, a container as dtype, an unknown keyword.
        QuadrantsRuntimeError: as `qd.ndarray` and `qd.field`.
    """
    _reject("qd.tensor", extra)
    backend = _checked_backend(backend)
    if isinstance(dtype, (Tensor, Field, Ndarray)):
        raise TypeError(
            "qd.tensor() allocates a new tensor; to wrap an existing container, use qd.wrap(impl) instead"
        )
    if isinstance(dtype, MatrixType):
        if layout is not None:
            raise TypeError("layout= is not supported with compound dtypes (vectors, matrices)")
        return _built(backend, dtype.dtype, dtype.get_shape(), shape, None, needs_grad)
    if layout is not None:
        layout = tuple(layout)
        shape = (shape,) if is_one_index(shape) else tuple(shape)
        if len(layout) != len(shape):
            raise ValueError(
                f"layout has {len(layout)} entries but shape has {len(shape)} dimensions; they must match"
            )
        _check_permutation(layout, len(shape))
    return _built(backend, dtype, (), shape, layout, needs_grad)


def create_matrix_tensor(
    n: int,
    m: int,
    ndim: int,
    dtype: Any,
    shape: Any,
    *,
    backend: Any = Backend.NDARRAY,
    needs_grad: bool = False,
    **extra: Any,
) -> Any:
    """What `Vector.tensor` (ndim 1) and `Matrix.tensor` make."""
    _reject("qd.Vector.tensor" if ndim == 1 else "qd.Matrix.tensor", extra)
    element_shape = (n,) if ndim == 1 else (n, m)
    return _built(_checked_backend(backend), dtype, element_shape, shape, None, needs_grad)


def _unpickled(facts: tuple[Any, ...], array: Any) -> Any:
    if impl.get_runtime()._prog is None:
        raise QuadrantsRuntimeError("qd.init() must be called before unpickling ndarrays")
    backend, dtype, element_shape, layout, shape = facts
    made = _built(Backend(backend), dtype, element_shape, shape, layout, False)
    made.from_numpy(array)
    return made


__all__ = [
    "Backend",
    "MatrixTensor",
    "Tensor",
    "VectorTensor",
    "create_matrix_tensor",
    "tensor",
    "wrap",
]
