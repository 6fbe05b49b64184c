"""Sparse grids.

PYTEST_DONT_REWRITE (its imports would show in `dir`)
"""

from math import prod as _prod
from typing import Any as _Any

import quadrants as _qd


def grid(field_dict: dict[str, _Any], shape: _Any) -> _Any:
    """A struct field on a bitmasked node: cells are active once they are written.

    Args:
        field_dict: member types by name.
        shape: extents, two or three.

    Raises:
        Exception: another number of extents.
    """
    if len(shape) not in (2, 3):
        raise Exception("Only 2D and 3D sparse grids are supported")
    made = _qd.Struct.field(field_dict)
    _qd.root.bitmasked(_qd.ij if len(shape) == 2 else _qd.ijk, shape).place(made)
    return made


def usage(grid: _Any) -> float:
    """The fraction of a grid's cells that are active.

    Args:
        grid: what `qd.sparse.grid` made.
    """
    cells = grid.parent()._cells
    return 1.0 if cells is None else cells.last.count() / _prod(grid.shape)


def __dir__() -> list[str]:
    return ["grid", "usage", *(n for n in [*globals()] if n.startswith("_"))]
