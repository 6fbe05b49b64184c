"""Windows into 1-D ndarrays: an array, an offset and a size, both run-time arguments of kernels."""

from __future__ import annotations

from typing import Any

from quadrants.lang import impl
from quadrants.lang._ndarray import Ndarray
from quadrants.types.buffer_view_type import BufferViewType


def _check_range(arr: Ndarray, offset: Any, size: Any) -> None:
    _, (length,) = arr._kind()
    if offset < 0 or size < 0 or offset + size > length:
        raise ValueError(
            f"BufferView out of range: offset={offset}, size={size}, ndarray length={length}"
        )


class BufferView:
    """A contiguous part of a 1-D ndarray.

    Args:
        arr: the array; without a gradient.
        offset: first element.
        size: number of elements.
    """

    _qd_annotation = "class"

    def __new__(cls, arr: Any, offset: Any, size: Any) -> Any:
        if impl.inside_kernel():
            return impl.core.trace_op("BufferView", (arr, offset, size))
        return object.__new__(cls)

    def __init__(self, arr: Any, offset: Any, size: Any) -> None:
        if isinstance(arr, BufferView):
            raise TypeError(
                "Cannot nest BufferView(view, ...); use view.subview(offset, size) instead"
            )
        bare = _bare(arr)
        if not isinstance(bare, Ndarray):
            raise TypeError(f"BufferView requires a 1D ndarray, got {type(arr)}")
        bare._prepare()
        _, shape = bare._kind()
        if len(shape) != 1:
            raise TypeError(f"BufferView requires a 1D ndarray, got shape {shape}")
        if bare.grad is not None:
            raise TypeError("BufferView does not support ndarrays with gradients (needs_grad=True)")
        _check_range(bare, offset, size)
        self.arr = bare
        self.offset = int(offset)
        self.size = int(size)
        self.shape = (self.size,)

    def __setattr__(self, name: str, value: Any) -> None:
        now = self.__dict__
        if name in ("offset", "size") and "shape" in now:  # kernels go by them
            _check_range(now["arr"], **{"offset": now["offset"], "size": now["size"], name: value})
            value = int(value)
            now["shape"] = (value if name == "size" else now["size"],)
        object.__setattr__(self, name, value)

    def __class_getitem__(cls, item: Any) -> BufferViewType:
        return BufferViewType(*item) if isinstance(item, tuple) else BufferViewType(item)

    def get_ndarray(self) -> Ndarray:
        """The array."""
        return self.arr

    def subview(self, offset: int, size: int) -> BufferView:
        """A part of this view; the offset counts from its start."""
        if offset < 0 or size < 0 or offset + size > self.size:
            raise ValueError(
                f"subview out of range: offset={offset}, size={size}, parent size={self.size}"
            )
        return BufferView(self.arr, self.offset + offset, size)

    def __getitem__(self, key: Any) -> BufferView:
        if not isinstance(key, slice):
            raise TypeError(
                f"BufferView host-side indexing requires a slice, got {type(key).__name__}"
            )
        start, size = _range_of(key, self.size)
        return self.subview(start, size)

    def __len__(self) -> int:
        return self.size

    def __repr__(self) -> str:
        return f"BufferView({self.arr!r}, offset={self.offset}, size={self.size})"


def _bare(arr: Any) -> Any:
    unwrap = getattr(arr, "_unwrap", None)
    return arr if unwrap is None else unwrap()


def _range_of(key: slice, length: int) -> tuple[int, int]:
    if key.step not in (None, 1):
        raise ValueError(f"BufferView slice requires step=1, got step={key.step}")
    start, stop, _ = key.indices(length)
    return start, max(0, stop - start)


def view_of_slice(array: Ndarray, key: Any) -> BufferView:
    """`array[a:b]`."""
    _, shape = array._kind()
    if len(shape) != 1 or not isinstance(key, slice):
        raise TypeError(f"only a 1D ndarray can be sliced, this one has {len(shape)} axes")
    start, size = _range_of(key, shape[0])
    return BufferView(array, start, size)
