"""Ndarrays: arrays in the runtime's memory, passed to kernels as arguments.

Memory, shape, element access and exports are native; this module has the public methods. At reset
native code turns every array into an empty shell.
"""

from __future__ import annotations

import math
import weakref
from typing import Any

from quadrants._lazy import LazyNumpy
from quadrants._lib import core
from quadrants.lang import impl
from quadrants.lang._data import convert
from quadrants.lang._values.entries import entries_for
from quadrants.lang._values.fill_range import check_exact, check_fill
from quadrants.lang.exception import QuadrantsRuntimeError
from quadrants.lang.matrix import Matrix, MatrixType, Vector
from quadrants.lang.util import check_element_shape, cook_dtype, is_one_index
from quadrants.types.primitive_types import DataType, TensorType, by_name, i32, u32

np: Any = LazyNumpy(globals())

_MAX_EXTENT = 2**31 - 1


class NativeArray:
    """What `ndarray.arr` offers: facts about the memory."""

    def __init__(self, array: Ndarray) -> None:
        shape = array._physical_shape
        if shape is None:  # another thread has reset the runtime since it was allocated
            raise QuadrantsRuntimeError("the runtime was reset during this call")
        self._array = weakref.ref(array)
        self.shape = list(shape)
        self._element_shape = list(array.element_shape)

    def device_allocation_ptr(self) -> int:
        """Where the memory begins."""
        array = self._array()
        assert array is not None, "the ndarray is no more"
        return array._address

    def total_shape(self) -> list[int]:
        return self.shape + self._element_shape

    def element_shape(self) -> list[int]:
        return list(self._element_shape)


class Described:
    """What annotations of arrays are matched against: `ndarray.get_type()`."""

    def __init__(self, element_type: Any, shape: Any, needs_grad: bool) -> None:
        self.element_type = element_type
        self.shape = shape
        self.needs_grad = needs_grad
        self.layout = core.Layout.AOS


class Ndarray(core.NdarrayBase):
    """An array of numbers, vectors or matrices."""

    _element_shape: tuple[int, ...] = ()

    def _setup(
        self,
        dtype: Any,
        element_shape: tuple[int, ...],
        shape: tuple[int, ...],
        needs_grad: bool = False,
    ) -> None:
        runtime = impl.get_runtime()
        if element_shape:
            check_element_shape(*element_shape)
        n, m = (*element_shape, 1, 1)[:2]
        self._allocate(dtype.id, len(element_shape), n, m, shape)
        self._element_shape = element_shape
        self.dtype = dtype
        self.element_type = TensorType(element_shape, dtype) if element_shape else dtype
        self.grad: Any = None
        self.arr = NativeArray(self)
        runtime.ndarrays.add(self)
        if needs_grad:
            made = type(self).__new__(type(self))
            made._setup(dtype, element_shape, shape)
            made._describe()
            self.grad = made
            self._set_gradient(made)

    def _describe(self) -> None:
        """Sets what depends on the kind of element."""

    @property
    def element_shape(self) -> tuple[int, ...]:
        """() for numbers, (n,) for vectors, (n, m) for matrices."""
        return self._element_shape

    @property
    def layout(self) -> tuple[int, ...] | None:
        """Canonical axis at each memory level; None without a tag."""
        return self._qd_layout

    def get_type(self) -> Described:
        """Element type, shape and whether there is a gradient."""
        return Described(self.element_type, self.shape, self.grad is not None)

    def has_grad(self) -> bool:
        """Whether there is a gradient."""
        return self.grad is not None

    def has_dual(self) -> bool:
        """False: ndarrays have no duals."""
        return False

    def _get_element_size(self) -> int:
        return self.dtype.size * math.prod(self._element_shape)

    def _get_nelement(self) -> int:
        return math.prod(self.shape)

    def _loop_range(self) -> Any:
        return self.shape

    def _why_no_view(self) -> str | None:
        return None

    @impl.host_only
    def copy_from(self, other: Any) -> None:
        """Copies all elements of an ndarray of equal shape; dtypes may differ.

        A number becomes all components of a vector or matrix; it is made of the first one.

        Raises:
            AssertionError: not an ndarray, or of another shape.
            TypeError: vectors or matrices of two shapes.
        """
        assert isinstance(other, Ndarray), f"copy_from takes an ndarray, got {type(other)}"
        (_, mine), (_, theirs) = self._kind(), other._kind()
        assert mine == theirs, f"copy_from shape mismatch: destination {mine} vs source {theirs}"
        convert.copy_array(other, self, theirs)
        convert.count_kernel(self, "copy_from")

    def _kind(self) -> tuple[Any, tuple[int, ...]]:
        """Dtype and shape; raises after a reset, which may be amid any call, and takes both."""
        dtype, shape = self.dtype, self.shape
        if dtype is None or shape is None:
            self._prepare()  # raises
            raise QuadrantsRuntimeError("the runtime was reset during this call")
        return dtype, shape

    def _conversion_key(self) -> Any:
        dtype, shape = self._kind()
        return str(dtype), self._element_shape, len(shape)

    @impl.host_only
    def fill(self, val: Any) -> None:
        """Sets every element.

        Args:
            val: a number; for vectors and matrices also a value of their shape.

        Raises:
            TypeError: not a number, or a float for numbers of type i32 or u32.
            ValueError: a value of another shape.
            QuadrantsTypeError, TypeError, OverflowError: an integer out of range, see `check_fill`;
                for numbers of type i32 or u32; for vectors and matrices.
        """
        self._prepare()
        dtype, _ = self._kind()
        if self._element_shape:
            check_exact(dtype, val, OverflowError)
        elif dtype in (i32, u32):
            check_exact(dtype, val, TypeError)
        else:
            check_fill(dtype, val)
        entries = getattr(val, "entries", val)
        if self._element_shape and isinstance(entries, (list, tuple, np.ndarray)):
            entries = entries_for(dtype, entries)
            if entries.shape != self._element_shape:
                raise ValueError(
                    f"a value of shape {self._element_shape} is expected, got shape {entries.shape}"
                )
        else:
            whole = dtype in (i32, u32) and not self._element_shape
            if whole and isinstance(entries, (float, np.floating)):
                raise TypeError(f"an integer is required to fill elements of type {dtype}")
            entries = convert.number_as(dtype, entries)
        convert.write_array(self, entries, self._element_shape)
        if self._element_shape:
            convert.count_kernel(self, "fill")

    def to_dlpack(self, versioned: bool = False) -> Any:
        """A DLPack capsule over the memory."""
        return convert.capsule_of(self, versioned, needs_torch=False)

    def _slice(self, key: Any) -> Any:
        from quadrants.lang.buffer_view import view_of_slice

        return view_of_slice(self, key)

    def _element(self, key: Any) -> Any:
        return convert.live_element(self, key, self._element_shape)

    def _assign_element(self, key: Any, value: Any) -> None:
        convert.write_components(self, key, value, self._element_shape)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        physical, (dtype, _) = self._physical_shape, self._kind()
        made = _restored(dtype.name, self._element_shape, physical)
        made._qd_layout = self._qd_layout
        made.copy_from(self)
        return made

    @impl.host_only
    def __reduce__(self) -> tuple[Any, ...]:
        dtype, shape = self._kind()
        array = convert.copied_array(self, shape, self._element_shape)
        return _unpickled, (dtype.name, self._element_shape, array)

    def __repr__(self) -> str:
        return "<qd.ndarray>"


class _Convertible(Ndarray):
    """Adds the conversions; `Ndarray` itself does not show them."""

    @impl.host_only
    def to_numpy(self, dtype: Any = None, *, copy: bool | None = True) -> Any:
        """The elements as a NumPy array, element axes last.

        Args:
            dtype: NumPy dtype of the result.
            copy: True copies, False shares the memory or raises, None shares if possible.

        Returns:
            An array of shape `shape + element_shape`.

        Raises:
            ValueError: `copy=False` with another dtype, or of 8-bit, 16-bit or unsigned numbers.
        """
        self._prepare()
        return convert.numpy_of(self, self._kind()[1], self._element_shape, dtype, copy)

    @impl.host_only
    def to_torch(self, device: Any = None, *, copy: bool | None = True) -> Any:
        """The elements as a torch tensor; `copy` as for `to_numpy`."""
        self._prepare()
        return convert.torch_of(self, self._kind()[1], self._element_shape, device, copy)

    @impl.host_only
    def from_numpy(self, arr: Any) -> None:
        """Sets the elements from an array of shape `shape + element_shape`, cast to the dtype.

        Raises:
            TypeError: not a NumPy array of numbers.
            ValueError: another shape.
        """
        self._write(arr, "from_numpy")

    def _write(self, arr: Any, operation: str) -> None:
        if not isinstance(arr, np.ndarray):
            raise TypeError(f"{np.ndarray} expected, but {type(arr)} provided")
        self._prepare()
        expected = self._kind()[1] + self._element_shape
        if tuple(arr.shape) != expected:
            raise ValueError(f"Mismatch shape: {expected} expected, but {arr.shape} provided")
        convert.write_array(self, arr, self._element_shape)
        convert.count_kernel(self, operation)

    def from_torch(self, arr: Any) -> None:
        """Sets the elements from a tensor; as `from_numpy`."""
        self._write(convert.array_of_torch(arr), "from_torch")


class ScalarNdarray(_Convertible):
    """An array of numbers.

    Args:
        dtype: element type.
        arr_shape: extents.
    """

    def __init__(self, dtype: Any, arr_shape: Any) -> None:
        self._setup(cook_dtype(dtype), (), tuple(arr_shape))


class VectorNdarray(_Convertible):
    """An array of vectors.

    Args:
        n: components of a vector.
        dtype: type of a component.
        shape: extents.
    """

    def __init__(self, n: int, dtype: Any, shape: Any) -> None:
        self._setup(cook_dtype(dtype), (n,), tuple(shape))
        self._describe()

    def _describe(self) -> None:
        self.n = self._element_shape[0]

    def __repr__(self) -> str:
        return f"<{self.n} Layout.AOS qd.Vector.ndarray>"


class MatrixNdarray(_Convertible):
    """An array of matrices.

    Args:
        n: rows of a matrix.
        m: columns of a matrix.
        dtype: type of a component.
        shape: extents.
    """

    def __init__(self, n: int, m: int, dtype: Any, shape: Any) -> None:
        self._setup(cook_dtype(dtype), (n, m), tuple(shape))
        self._describe()

    def _describe(self) -> None:
        self.n, self.m = self._element_shape

    def __repr__(self) -> str:
        return f"<{self.n}x{self.m} Layout.AOS qd.Matrix.ndarray>"


_CLASSES = (ScalarNdarray, VectorNdarray, MatrixNdarray)


def _restored(name: str, element_shape: tuple[int, ...], shape: tuple[int, ...]) -> Any:
    made = _CLASSES[len(element_shape)].__new__(_CLASSES[len(element_shape)])
    made._setup(by_name(name), element_shape, shape)
    made._describe()
    return made


def _unpickled(name: str, element_shape: tuple[int, ...], array: Any) -> Any:
    if impl.get_runtime()._prog is None:
        raise QuadrantsRuntimeError("qd.init() must be called before unpickling ndarrays")
    made = _restored(name, element_shape, array.shape[: array.ndim - len(element_shape)])
    made.from_numpy(array)
    return made


# --- factories ---


def _checked_shape(shape: Any) -> tuple[int, ...]:
    original = shape
    if is_one_index(shape):
        shape = (shape,)
    if type(shape).__name__ == "ndarray":
        shape = shape.tolist()
    if not isinstance(shape, (tuple, list)):
        raise QuadrantsRuntimeError(f"{original} is not a valid shape for ndarray")
    for extent in shape:
        if (
            isinstance(extent, float)
            or not hasattr(type(extent), "__index__")
            or not 1 <= extent.__index__() <= _MAX_EXTENT
        ):
            raise QuadrantsRuntimeError(f"{original} is not a valid shape for ndarray")
    shape = tuple(extent.__index__() for extent in shape)
    if math.prod(shape) > 2**31:
        from quadrants import _logging

        _logging.warn(
            f"An ndarray of {math.prod(shape)} elements exceeds the range of int32 indices"
        )
    return shape


def _element_dtype(dtype: Any) -> DataType:
    try:
        return cook_dtype(dtype)
    except ValueError:
        raise QuadrantsRuntimeError(f"{dtype} is not supported as ndarray element type") from None


def _check_runtime(dtype: Any, needs_grad: bool) -> None:
    impl.check_initialised()
    if needs_grad and not dtype.is_real:
        raise QuadrantsRuntimeError(
            f"{dtype} is not supported for ndarray with `needs_grad=True` or `needs_dual=True`."
        )


def _made(
    kind: Any, dtype: Any, element_shape: tuple[int, ...], shape: Any, needs_grad: bool
) -> Any:
    if impl.is_python_backend():
        from quadrants.lang._python_backend import create_array

        return create_array(dtype, element_shape, shape)
    _check_runtime(dtype, needs_grad)
    shape = _checked_shape(shape)
    made = kind.__new__(kind)
    made._setup(dtype, element_shape, shape, needs_grad)
    made._describe()
    return made


@impl.host_only
def ndarray(dtype: Any, shape: Any, needs_grad: bool = False) -> Any:
    """An array in the runtime's memory, zeroed.

    Args:
        dtype: element type; a vector or matrix type makes an array of these.
        shape: extents, `()` for a single element.
        needs_grad: give it a gradient, an ndarray of the same type and shape.

    Returns:
        A `ScalarNdarray`, `VectorNdarray` or `MatrixNdarray`. Its memory is freed with it.

    Raises:
        QuadrantsRuntimeError: `dtype` is no element type, `shape` is no shape of extents from 1 to
            2**31 - 1, a gradient of integers, or no `qd.init`.
    """
    if isinstance(dtype, MatrixType):
        return create_matrix_ndarray(dtype.n, dtype.m, dtype.ndim, dtype.dtype, shape, needs_grad)
    return _made(ScalarNdarray, _element_dtype(dtype), (), shape, needs_grad)


def create_matrix_ndarray(
    n: Any, m: Any, ndim: int, dtype: Any, shape: Any, needs_grad: bool
) -> Any:
    """What `Vector.ndarray` (ndim 1) and `Matrix.ndarray` make."""
    element_shape = (n,) if ndim == 1 else (n, m)
    dtype = cook_dtype(dtype)
    if None in element_shape:
        raise ValueError("an ndarray needs elements of known size")
    kind = VectorNdarray if ndim == 1 else MatrixNdarray
    return _made(kind, dtype, element_shape, shape, needs_grad)


__all__ = [
    "Matrix",
    "MatrixNdarray",
    "Ndarray",
    "Described",
    "ScalarNdarray",
    "Vector",
    "VectorNdarray",
    "create_matrix_ndarray",
    "ndarray",
]
