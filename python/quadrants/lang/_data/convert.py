"""Fields and ndarrays to and from NumPy and torch.

A container offers `_view()`, a buffer over its whole memory with canonical shape, or None where
strides cannot describe it; fields then offer `_parts(component)`. NumPy does all copying and casting.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from math import prod
from typing import Any

from quadrants._lazy import LazyNumpy
from quadrants._lib import core
from quadrants._lib.core import Arch
from quadrants.lang import impl
from quadrants.lang._data import packing
from quadrants.lang.exception import QuadrantsTypeError
from quadrants.lang.util import has_pytorch, to_numpy_type, to_pytorch_type
from quadrants.types.primitive_types import f32, f64, i32, i64, u1

np: Any = LazyNumpy(globals())

_VIEWABLE = (i32, i64, f32, f64, u1)


def _dtype_of(container: Any) -> Any:
    """Raises after a reset, which may be amid any call, and takes an array's dtype."""
    dtype = container.dtype
    if dtype is None:
        container._prepare()  # raises
    return dtype


def _is_sparse(container: Any) -> bool:
    return getattr(container, "_is_sparse", False)


def live_array(container: Any) -> Any:
    """A NumPy array over the container's memory, None where strides cannot describe it."""
    view = container._view()
    return None if view is None else np.asarray(view)


def _places(container: Any, element_shape: tuple[int, ...]) -> list[tuple[Any, Any, Any]]:
    """Views of the container, each with the components of elements that it holds, and as an array."""
    view = container._view()
    if view is not None:
        return [(..., np.asarray(view), view)]
    parts = []
    for number, where in enumerate(np.ndindex(*element_shape)):
        view = container._parts(number)
        parts.append(((..., *where), np.asarray(view), view))
    return parts


# Copies keep launches waiting, since NumPy gives up the GIL. They are listed first, as (to, from,
# shape, view, whether it is written), and made without any Python code that signal handlers could run
# amid.


def _is_packed(container: Any) -> bool:
    return getattr(container, "_is_packed", False)


def copied_array(container: Any, shape: tuple[int, ...], element_shape: tuple[int, ...]) -> Any:
    """A fresh array of the container's own dtype and canonical shape."""
    if _is_packed(container):
        parts = [packing.to_array(container._component(c)) for c in range(prod(element_shape))]
        return np.stack(parts, -1).reshape(shape + element_shape)
    places = _places(container, element_shape)
    out, copies = _read(places, _dtype_of(container), shape, element_shape)
    core.copy_alone(copies)
    return out


def write_array(container: Any, array: Any, element_shape: tuple[int, ...]) -> None:
    """Stores an array of canonical shape, or a number, in the container, cast to its dtype."""
    kind = getattr(array, "dtype", None)
    if kind is not None and kind.kind not in "biuf":
        raise TypeError(f"Unknown type {kind}: numbers are expected")
    if _is_packed(container):
        for number, where in enumerate(np.ndindex(*element_shape)):
            index = (..., *where)
            part = array[index] if getattr(array, "shape", ()) else array
            packing.from_array(container._component(number), part)
        return
    array = _in_active_cells(container, array)
    places = _places(container, element_shape)
    with np.errstate(all="ignore"):
        core.copy_alone(_written(places, array))


def _in_active_cells(container: Any, array: Any) -> Any:
    """The array, with zeros where a sparse field has no cells."""
    if not _is_sparse(container):
        return array
    return np.where(container._active(), array, np.zeros((), np.asarray(array).dtype))


def copy_array(source: Any, target: Any, shape: tuple[int, ...]) -> None:
    """Stores all elements of one container in another, cast to its dtype.

    As in an assignment in kernels a number becomes all components; it is made of the first one.

    Raises:
        QuadrantsTypeError: vectors or matrices of two shapes.
    """
    theirs, element_shape = source._element_shape, target._element_shape
    if theirs and element_shape and theirs != element_shape:
        raise QuadrantsTypeError(
            f"cannot copy elements of shape {theirs} to elements of shape {element_shape}"
        )
    if _is_sparse(target):
        from quadrants._library import sparse

        for number in range(len(target._places)):
            sparse.copy_cells(source._component(number if theirs else 0), target._component(number))
        return
    if theirs != element_shape:
        array = copied_array(source, shape, theirs)
        if theirs:
            return write_array(target, array.reshape((*shape, prod(theirs)))[..., 0], ())
        wide = array.reshape(shape + (1,) * len(element_shape))
        return write_array(target, np.broadcast_to(wide, shape + element_shape), element_shape)
    if _is_packed(source) or _is_packed(target):
        return write_array(target, copied_array(source, shape, element_shape), element_shape)
    read, written = _places(source, element_shape), _places(target, element_shape)
    array, copies = _read(read, _dtype_of(source), shape, element_shape)
    with np.errstate(all="ignore"):
        core.copy_alone(copies + _written(written, array))


def _read(places: Any, dtype: Any, shape: tuple[int, ...], element_shape: tuple[int, ...]) -> Any:
    """An array, and the copies that fill it."""
    if places and places[0][0] is ...:
        _, live, view = places[0]
        out = np.empty(live.shape, live.dtype)
        return out, [(out, live, None, view, False)]
    out = np.empty(shape + element_shape, to_numpy_type(dtype))
    return out, [(out[where], part, shape, view, False) for where, part, view in places]


def _written(places: Any, array: Any) -> list[tuple[Any, ...]]:
    """The copies that store an array or a number."""
    array = np.asarray(array)
    if places and places[0][0] is ...:
        _, live, view = places[0]
        return [(live, array, None, view, True)]
    copies = []
    for where, part, view in places:
        component = array[where] if array.shape else array
        shape = part.shape if component.shape else None
        copies.append((part, component, shape, view, True))
    return copies


def count_kernel(container: Any, operation: str) -> None:
    """Counts a conversion as a kernel, once per field or kind of array.

    None is compiled, but programs check that repeating a conversion compiles nothing, against a
    count of compiled functions and of files in the cache that its first time raises by one.
    """
    done = impl.get_runtime().conversions
    key = container._conversion_key(), operation
    if key not in done:
        done.add(key)
        container._note_conversion(operation)


def number_as(dtype: Any, value: Any) -> Any:
    """A host number cast to a dtype as a kernel would: integers wrap, floats are cut off."""
    kind = type(value)  # asked first: a kept value of a kernel has no attributes
    if hasattr(kind, "dtype") and hasattr(kind, "item"):  # of NumPy or torch
        value = _lone_number(value)
    if not hasattr(type(value), "__float__") and not hasattr(type(value), "__index__"):
        raise QuadrantsTypeError(f"a number is expected, got {value!r}")
    if dtype is u1 and isinstance(value, (float, np.floating)):
        return bool(value != 0)
    if not dtype.is_real:
        value = int(value)
        if not -(2**63) <= value < 2**64:
            raise QuadrantsTypeError(f"an integer of at most 64 bits is expected, got {value}")
        if dtype is u1:
            return value != 0
        value &= (1 << dtype.bits) - 1
        if dtype.is_signed and value >> (dtype.bits - 1):
            value -= 1 << dtype.bits
    with np.errstate(all="ignore"):
        return to_numpy_type(dtype)(value)


def _lone_number(value: Any) -> Any:
    """Python's number for NumPy's or torch's. Text, dates and complex numbers become no number."""
    shape = tuple(getattr(value, "shape", ()))
    if shape and (isinstance(value, np.ndarray) or set(shape) != {1}):
        raise QuadrantsTypeError(f"a number is expected, got an array of shape {shape}")
    # What a masked number holds is none.
    is_masked = isinstance(value, np.ma.MaskedArray) and value.mask.any()
    if is_masked or getattr(value.dtype, "kind", "") in ("c", "m", "M"):
        raise QuadrantsTypeError(f"a number is expected, got {value!r}")
    return value.item()


def _no_view(reason: str) -> ValueError:
    return ValueError(f"Zero-copy not available: {reason}")


def why_no_view(container: Any) -> str | None:
    """Why the container cannot be shared, None if it can."""
    arch = impl.current_cfg().arch
    if arch not in (Arch.x64, Arch.arm64, Arch.cuda, Arch.amdgpu, Arch.metal):
        return f"backend {arch.name} does not share memory"
    dtype = _dtype_of(container)
    if dtype not in _VIEWABLE:
        return f"dtype {dtype} is not one of i32, i64, f32, f64, u1"
    return container._why_no_view()


def _why_no_numpy_view() -> str | None:
    arch = impl.current_cfg().arch
    if arch in (Arch.x64, Arch.arm64):
        return None
    return f"NumPy arrays lie in the host's memory, the container in that of backend {arch.name}"


def numpy_of(
    container: Any,
    shape: tuple[int, ...],
    element_shape: tuple[int, ...],
    dtype: Any,
    copy: bool | None,
) -> Any:
    """The body of every `to_numpy`."""
    if copy is not True:
        own = np.dtype(to_numpy_type(_dtype_of(container)))
        if dtype is not None and np.dtype(dtype) != own:
            if copy is False:
                raise ValueError(
                    f"copy=False is incompatible with dtype conversion ({own} -> {dtype})"
                )
        else:
            reason = why_no_view(container) or _why_no_numpy_view()
            if reason is None:
                container._share()
                return live_array(container)
            if copy is False:
                raise _no_view(reason)
    count_kernel(container, "to_numpy")
    _warn_of_lists(container)
    array = copied_array(container, shape, element_shape)
    return array if dtype is None else array.astype(dtype, copy=False)


def _warn_of_lists(container: Any) -> None:
    if _is_sparse(container) and container._list_node is not None:
        from quadrants import _logging

        _logging.warn(
            "You are trying to convert a dynamic snode to a numpy array, be aware that inactive items "
            "in the snode will be converted to zeros in the resulting array."
        )


def torch_of(
    container: Any,
    shape: tuple[int, ...],
    element_shape: tuple[int, ...],
    device: Any,
    copy: bool | None,
) -> Any:
    """The body of every `to_torch`."""
    import torch

    # Tensor.to takes what is no device for a dtype.
    if isinstance(device, bool) or not isinstance(device, (str, int, torch.device, type(None))):
        raise TypeError(f"argument 'device' must be torch.device, not {type(device).__name__}")
    if copy is not True:
        home = "cuda" if impl.current_cfg().arch is Arch.cuda else "cpu"
        elsewhere = device is not None and torch.device(device).type != home
        reason = None if elsewhere else why_no_view(container)
        if elsewhere and copy is False:
            raise ValueError(f"copy=False is incompatible with device transfer to {device}")
        if not elsewhere:
            if reason is None:
                return torch.utils.dlpack.from_dlpack(container._capsule(False))
            if copy is False:
                raise _no_view(reason)
    to_pytorch_type(_dtype_of(container))  # raises if this torch has no such dtype
    count_kernel(container, "to_torch")
    tensor = torch.from_numpy(copied_array(container, shape, element_shape))
    return tensor if device is None else tensor.to(device)


def array_of_torch(tensor: Any) -> Any:
    """A NumPy array with the tensor's values."""
    import torch

    from quadrants.lang._data.arguments import tensor_problem

    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"from_torch takes a torch.Tensor, not {type(tensor).__name__}")
    if tensor.is_neg():
        tensor = tensor.resolve_neg()
    problem = tensor_problem(tensor)
    if problem is not None:
        raise ValueError(f"The argument {problem}")
    return tensor.detach().cpu().contiguous().numpy()


def capsule_of(container: Any, versioned: bool, needs_torch: bool) -> Any:
    """The body of every `to_dlpack`."""
    if needs_torch and not has_pytorch():
        raise ModuleNotFoundError("to_dlpack of a field needs torch")
    container._prepare()
    dtype = _dtype_of(container)
    if _is_sparse(container):
        raise RuntimeError("DLPack cannot export a field of a sparse tree; use to_numpy()")
    if _is_packed(container):
        raise RuntimeError("DLPack cannot export a quantised field; use to_numpy()")
    if dtype not in _VIEWABLE:
        raise RuntimeError(f"DLPack export does not support dtype {dtype}")
    capsule = container._capsule(bool(versioned))
    if capsule is None:
        raise RuntimeError("This layout cannot be described by strides, so DLPack cannot export it")
    return capsule


def write_components(owner: Any, key: Any, value: Any, shape: tuple[int, ...]) -> None:
    """Stores a list, tuple, array, vector or matrix in an element of a compound container.

    As in calls of vector types, surplus entries are ignored and a shortage is an `IndexError`.
    """
    numbers = _listed(_plain(value), shape[0])
    if len(shape) == 2:
        numbers = [v for row in numbers for v in _listed(_plain(row), shape[1])]
    for component, number in enumerate(numbers):
        owner._store(key, component, number)


def _plain(row: Any) -> Any:
    row = getattr(row, "entries", row)
    return row.tolist() if hasattr(row, "tolist") else row


def _listed(values: Any, count: int) -> list[Any]:
    # A set has no order, and a mapping is iterated by its keys.
    no_list = isinstance(values, (str, set, frozenset, Mapping))
    if no_list or not hasattr(values, "__iter__"):
        raise TypeError(f"{count} values are expected, got {values!r}")
    values = list(values)
    if len(values) < count:
        raise IndexError(f"{count} values are expected, got {len(values)}")
    return values[:count]


class ElementAccess:
    """The storage behind a live vector or matrix; see `Matrix`."""

    __slots__ = ("owner", "key", "shape")

    def __init__(self, owner: Any, key: Any, shape: tuple[int, ...]) -> None:
        self.owner = owner
        self.key = tuple(key) if isinstance(key, list) else key
        self.shape = shape

    def _component(self, indices: tuple[Any, ...]) -> int:
        number = 0
        for index, extent in zip(indices, self.shape):
            index = operator.index(index)
            index += extent if index < 0 else 0
            if not 0 <= index < extent:
                raise IndexError(f"index {indices} is out of range for shape {self.shape}")
            number = number * extent + index
        return number

    def get(self, *indices: Any) -> Any:
        return self.owner._load(self.key, self._component(indices))

    def set(self, value: Any, *indices: Any) -> None:
        self.owner._store(self.key, self._component(indices), value)

    def array(self) -> Any:
        count = self.shape[0] * (self.shape[1] if len(self.shape) > 1 else 1)
        numbers = [self.owner._load(self.key, c) for c in range(count)]
        array = np.array(numbers)  # of Python's numbers, so sums do not wrap
        if type(numbers[0]) is int and array.dtype.kind == "f":  # NumPy's type for 2**63 beside 1
            array = np.array(numbers, np.uint64)
        return array.reshape(self.shape)


def live_element(owner: Any, key: Any, shape: tuple[int, ...]) -> Any:
    """The live vector or matrix at a key."""
    from quadrants.lang.matrix import Matrix, Vector

    kind = Vector if len(shape) == 1 else Matrix
    return kind._live(ElementAccess(owner, key, shape), shape)


def fill_in_kernel(container: Any, value: Any) -> Any:
    """`x.fill(value)` while a kernel is traced."""
    from quadrants.lang._values import container_funcs

    return container_funcs.fill(container, value)
