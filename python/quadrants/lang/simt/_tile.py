"""Square matrices whose rows lie in the registers of a subgroup's lanes.

No target of this build has subgroups: making a tile says so. What stands for parts of arrays in
operations on tiles exists everywhere, since using it as a value is a mistake on every target.
"""

from __future__ import annotations

from typing import Any, NoReturn

from quadrants.lang import impl
from quadrants.lang.exception import QuadrantsSyntaxError


def _no_tiles(name: str) -> NoReturn:
    impl.check_initialised()
    raise QuadrantsSyntaxError(
        f"{name} requires a GPU backend (cuda, metal, vulkan, amdgpu). "
        f"Current arch is {impl.pyquadrants._arch}."
    )


# --- tile types ---------------------------------------------------------------------------------


class _TileProxy:
    """`qd.simt.Tile16x16` and `qd.simt.Tile32x32`; what they make has default_fp."""

    SIZE = 0

    def __new__(cls) -> NoReturn:
        raise TypeError(f"Tile{cls.SIZE}x{cls.SIZE} is not callable: use zeros() or eye()")

    @classmethod
    def zeros(cls, *, dtype: Any = None) -> NoReturn:
        """A tile of zeros; dtype is f32 or f64."""
        _no_tiles(f"Tile{cls.SIZE}x{cls.SIZE}")

    @classmethod
    def eye(cls, *, dtype: Any = None) -> NoReturn:
        """The identity; dtype is f32 or f64."""
        _no_tiles(f"Tile{cls.SIZE}x{cls.SIZE}")


class Tile16x16Proxy(_TileProxy):
    SIZE = 16


class Tile32x32Proxy(_TileProxy):
    SIZE = 32


class _Tile:
    """A type of tiles: `_make_tile` makes one for each size and dtype."""

    SIZE = 0
    dtype: Any = None

    def __new__(cls) -> NoReturn:
        _no_tiles(f"Tile{cls.SIZE}x{cls.SIZE}")

    @classmethod
    def eye(cls) -> NoReturn:
        """The identity."""
        _no_tiles(f"Tile{cls.SIZE}x{cls.SIZE}")


_tile_cache: dict[tuple[int, Any], type[_Tile]] = {}


def _make_tile(N: int, dtype: Any = None) -> type[_Tile]:
    """The type of N x N tiles; calling it makes a tile of zeros, as its `zeros` does."""
    made = _tile_cache.get((N, dtype))
    if made is None:
        made = type(f"Tile{N}x{N}", (_Tile,), {"SIZE": N, "dtype": dtype})
        made.zeros = made  # type: ignore[attr-defined]
        _tile_cache[N, dtype] = made
    return made


# --- parts of arrays ----------------------------------------------------------------------------


class _SliceProxy:
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


class _OuterProduct:
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
    return _OuterProduct(a, b)
