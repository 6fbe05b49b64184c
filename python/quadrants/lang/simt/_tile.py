"""Square matrices whose rows lie in the registers of a subgroup's lanes.

A tile is a struct of its row; what it does is in src/frontend/values/tile.cpp. Making one on a
target without subgroups says so. What stands for parts of arrays in operations on tiles exists
everywhere, since using it as a value is a mistake on every target.
"""

from __future__ import annotations

from typing import Any, NoReturn

from quadrants.lang import impl
from quadrants.lang._ops.operation import python_scope_error
from quadrants.lang.exception import QuadrantsSyntaxError
from quadrants.lang.simt._target import emit, has_blocks
from quadrants.lang.struct import StructType
from quadrants.types.compound_types import vector
from quadrants.types.primitive_types import f32, f64

# --- tile types ---------------------------------------------------------------------------------


def _load(self: Any, arr: Any, r0: Any, r1: Any, c0: Any, c1: Any) -> None:
    """Loads `arr[r0:r1, c0:c1]`."""
    emit("tile_load", self, _TileSliceProxy(arr, r0, r1, c0, c1))


def _load3d(self: Any, arr: Any, b: Any, r0: Any, r1: Any, c0: Any, c1: Any) -> None:
    """Loads `arr[b, r0:r1, c0:c1]`."""
    emit("tile_load", self, _TileSliceProxy(arr, r0, r1, c0, c1, b))


def _store(self: Any, arr: Any, r0: Any, r1: Any, c0: Any, c1: Any) -> None:
    """Stores to `arr[r0:r1, c0:c1]`."""
    emit("tile_store", self, _TileSliceProxy(arr, r0, r1, c0, c1))


def _store3d(self: Any, arr: Any, b: Any, r0: Any, r1: Any, c0: Any, c1: Any) -> None:
    """Stores to `arr[b, r0:r1, c0:c1]`."""
    emit("tile_store", self, _TileSliceProxy(arr, r0, r1, c0, c1, b))


def _ger_sub(self: Any, a: Any, b: Any) -> None:
    """`self -= qd.outer(a, b)`."""
    emit("tile_subtract", self, a, b)


def _trsm(self: Any, L: Any) -> None:
    """Replaces this tile B by the X with `X L^T = B`."""
    emit("tile_solve", L, self)


def _get_col(self: Any, k: Any) -> Any:
    """This lane's number of column k."""
    return emit("tile_column", self, k)


def _set_col(self: Any, k: Any, value: Any) -> None:
    """Sets this lane's number of column k."""
    emit("tile_set_column", self, k, value)


def eye_(self: Any) -> None:
    """Makes it the identity."""
    emit("tile_identity", self)


def cholesky_(self: Any, eps: Any) -> None:
    """Replaces the lower triangle by the L with `L L^T` equal to this tile.

    Args:
        eps: least square of a pivot; lane k's counts for pivot k.
    """
    emit("tile_factor", self, eps)


def solve_triangular_(self: Any, B: Any, lower: bool = True) -> None:
    """Replaces the tile B by the X with `X L^T = B`, L being this tile's lower triangle.

    Raises:
        TypeError: `lower` is false.
    """
    if lower is not True:
        raise TypeError("solve_triangular_: only lower=True is supported")
    emit("tile_solve", self, B)


_METHODS = (
    _load,
    _load3d,
    _store,
    _store3d,
    _ger_sub,
    _trsm,
    _get_col,
    _set_col,
    eye_,
    cholesky_,
    solve_triangular_,
)


class TileType(StructType):
    """A type of tiles; calling it in a kernel makes a tile of zeros, as its `zeros` does."""

    def __init__(self, size: int, dtype: Any) -> None:
        methods = {f.__name__: f for f in _METHODS}
        super().__init__(r=vector(size, dtype, unpacked=True), __struct_methods=methods)
        self.SIZE = size
        self.row_dtype = dtype

    @property
    def zeros(self) -> TileType:
        return self

    def _check_place(self) -> None:
        impl.check_initialised()
        name = f"Tile{self.SIZE}x{self.SIZE}"
        if not has_blocks():
            raise QuadrantsSyntaxError(
                f"{name} requires a GPU backend (cuda, metal, vulkan, amdgpu). "
                f"Current arch is {impl.pyquadrants._arch}."
            )
        if not impl.inside_kernel():
            raise python_scope_error(name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self._check_place()
        return impl.core.trace_op("typed_struct", (self, *args), **kwargs)

    def eye(self) -> Any:
        """The identity."""
        self._check_place()
        return self(*emit("tile_unit_row", self.SIZE, self.row_dtype))


_tile_cache: dict[tuple[int, Any], TileType] = {}


def _make_tile(N: int, dtype: Any = None) -> TileType:
    """The type of N x N tiles; dtype is f32 or f64, of default_fp if it is None."""
    if dtype is None:
        dtype = impl.get_runtime().default_fp
    if dtype not in (f32, f64):
        raise TypeError(f"the dtype of a tile is qd.f32 or qd.f64, got {dtype}")
    made = _tile_cache.get((N, dtype))
    if made is None:
        made = _tile_cache[N, dtype] = TileType(N, dtype)
    return made


class _TileProxy:
    """`qd.simt.Tile16x16` and `qd.simt.Tile32x32`; what they make has default_fp."""

    SIZE = 0

    def __new__(cls) -> NoReturn:
        raise TypeError(f"Tile{cls.SIZE}x{cls.SIZE} is not callable: use zeros() or eye()")

    @classmethod
    def zeros(cls, *, dtype: Any = None) -> Any:
        """A tile of zeros; dtype is f32 or f64."""
        return _make_tile(cls.SIZE, dtype)()

    @classmethod
    def eye(cls, *, dtype: Any = None) -> Any:
        """The identity; dtype is f32 or f64."""
        return _make_tile(cls.SIZE, dtype).eye()


class Tile16x16Proxy(_TileProxy):
    SIZE = 16


class Tile32x32Proxy(_TileProxy):
    SIZE = 32


# --- parts of arrays ----------------------------------------------------------------------------


class _TileOperand:
    """What operations on tiles read: no value of a kernel's."""


class _SliceProxy(_TileOperand):
    """A part of an array that a tile is loaded from or stored to."""

    _what = ""

    def _misused(self, verb: str) -> NoReturn:
        raise TypeError(
            f"{self._what} was {verb}, but it is only valid in tile operations "
            "(tile[:] = ..., ... = tile, qd.outer(...))"
        )

    def __add__(self, other: Any) -> NoReturn:
        self._misused("added")

    def __sub__(self, other: Any) -> NoReturn:
        self._misused("subtracted")

    def __mul__(self, other: Any) -> NoReturn:
        self._misused("multiplied")

    def __truediv__(self, other: Any) -> NoReturn:
        self._misused("divided")

    __radd__, __rsub__, __rmul__, __rtruediv__ = __add__, __sub__, __mul__, __truediv__

    def __getitem__(self, index: Any) -> NoReturn:
        self._misused("subscripted")

    def __repr__(self) -> str:
        return f"<{self._what} - not a value; use with tile[:] = ... or qd.outer(...)>"


class _TileSliceProxy(_SliceProxy):
    """`arr[r0:r1, c0:c1]` or `arr[batch, r0:r1, c0:c1]`."""

    _what = "Array slice proxy (arr[r0:r1, c0:c1])"

    def __init__(self, arr: Any, r0: Any, r1: Any, c0: Any, c1: Any, batch: Any = None) -> None:
        self.arr, self.batch_idx = arr, batch
        self.row_start, self.row_stop = r0, r1
        self.col_start, self.col_stop = c0, c1


class _VecSliceProxy(_SliceProxy):
    """`arr[r0:r1, col]` or `arr[batch, r0:r1, col]`."""

    _what = "Vec slice proxy (arr[r0:r1, col])"

    def __init__(self, arr: Any, r0: Any, r1: Any, col: Any, batch: Any = None) -> None:
        self.arr, self.batch_idx = arr, batch
        self.row_start, self.row_stop, self.col = r0, r1, col


class _OuterProduct(_TileOperand):
    """What `qd.outer` gives: a tile subtracts it."""

    def __init__(self, a: Any, b: Any) -> None:
        self.a, self.b = a, b

    def __add__(self, other: Any) -> NoReturn:
        raise TypeError("OuterProduct does not support composition; apply each update separately")

    __radd__ = __add__


def outer(a: Any, b: Any) -> _OuterProduct:
    """The product of a column and a row, for `tile -= qd.outer(a, b)`.

    Args:
        a: number of each lane or column of an array, `x[r0:r1, c]`.
        b: the same; `outer(a, a)` loads it once.
    """
    if not impl.inside_kernel():
        return _OuterProduct(a, b)
    x = emit("tile_operand", a)  # variables may change before a tile subtracts it
    return _OuterProduct(x, x if b is a else emit("tile_operand", b))
