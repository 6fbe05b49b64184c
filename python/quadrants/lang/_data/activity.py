"""Which cells of sparse trees are active.

A sparse tree is laid out like a dense one, in memory that the system provides where it is touched.
Cells that are not active hold zeros. Beside its data a tree has hidden fields for each sparse node:
a bit per cell (`pointer`, `bitmasked`) or a length per list (`dynamic`), and lists of the active
cells that loops go over. What reads and writes them in kernels is kernel code: `_library/sparse.py`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, Any

from quadrants._lazy import LazyNumpy
from quadrants.lang.snode import SPARSE, SNode
from quadrants.types.primitive_types import i32, u32

if TYPE_CHECKING:
    from quadrants.lang._data.fields_builder import FieldsBuilder

np: Any = LazyNumpy(globals())

_MOST = 2**31 - 1  # elements of a hidden field
_MOST_TASKS = 2**20  # words that threads of a GPU look at, one each


class Activity:
    """The activity of one sparse node's cells.

    A cell's number counts the node's cells in canonical order, last axis fastest.
    """

    # Hidden fields: 0 cells that are active, or chunks that lists lie in, 1 most that ever were,
    # 2 changes, 3 those that the lists know of, 4 cells in the lists.
    state: Any
    mask: Any  # a bit per cell
    length: Any  # of each list

    def __init__(self, node: SNode, up: Activity | None) -> None:
        self.node = node
        self.axes = tuple(node._axis_numbers())
        self.grid = tuple(node.shape)
        self.rank = len(self.grid)
        self.path: tuple[Activity, ...] = (*(up.path if up else ()), self)
        self.is_list = node._kind == "dynamic"
        self.dim = node._dims[0] if self.is_list else 0
        if self.is_list:
            self._describe_list(node)
        count = prod(self.grid)
        self.is_wide = count > _MOST
        self.name = f"S{node._id}{node._kind}"
        self.outside = (
            f"Accessing field ({self.name}) of size {self.grid} with indices outside of it"
        )
        self.hidden: list[tuple[str, Any, int]] = [("state", i32, 8)]
        if self.is_list:
            self.hidden.append(("length", i32, prod(self.owner_grid)))
        else:
            words = -(-count // 32)
            self.hidden.append(("mask", u32, words))
            while words > 1:  # a bit per word below that may not be 0
                words = -(-words // 32)
                self.hidden.append((f"summary{len(self.hidden) - 1}", u32, words))
            self.level_of_tasks = next(
                k for k, (_, _, words) in enumerate(self.hidden[1:]) if words <= _MOST_TASKS
            )
        self.levels: tuple[Any, ...] = ()  # mask and summaries
        self.hidden += [(f"list{k}", i32, min(count, _MOST)) for k in range(self.rank)]
        self.lists: tuple[Any, ...] = ()
        # What lies deeper, with no other sparse node between: numbers, and sparse nodes.
        self.data: tuple[Box, ...] = ()
        self.masks: tuple[Box, ...] = ()
        self.lengths: tuple[Box, ...] = ()
        self.elements: tuple[Any, ...] = ()  # of a dynamic node: the fields of one element

    def _describe_list(self, node: SNode) -> None:
        """Of a dynamic node: which axis grows, and the cells that own a list each."""
        assert node._up is not None
        above = tuple(node._up._axis_numbers())
        self.axis = self.axes.index(node._axes[0])
        self.is_divided = node._axes[0] in above
        self.owner_grid = tuple(node._up.shape) if above else ()
        self.owner_rank = len(self.owner_grid)
        self.chunk = node._chunk or self.dim
        # The cells that own lists as seen from the sparse node above, if there is one.
        self.is_owned = len(self.path) > 1
        self.owner = Cells(node._up, self.path[:-1], ()) if self.is_owned else None

    def __repr__(self) -> str:
        return f"<activity of {self.node}>"

    def number(self, cell: Sequence[int]) -> int:
        """A cell's number."""
        n = 0
        for at, extent in zip(cell, self.grid):
            n = n * extent + at
        return n

    def _owner_number(self, cell: Sequence[int]) -> int:
        n = 0
        for axis, at in enumerate(cell):
            if axis != self.axis:
                n = n * self.grid[axis] + at
            elif self.is_divided:
                n = n * (self.grid[axis] // self.dim) + at // self.dim
        return n

    # --- on the host ---

    def activate(self, cell: Sequence[int]) -> None:
        """Activates one cell; those above it are active."""
        if self.is_list:
            owner, length = self._owner_number(cell), cell[self.axis] % self.dim + 1
            before = self.length[owner]
            if before < length:
                self.length[owner] = length
                self._count_more(-(-length // self.chunk) - -(-before // self.chunk))
            return
        n = self.number(cell)
        for level in self.levels:
            word, bit = n >> 5, 1 << (n & 31)
            before, n = level[word], word
            if before & bit:
                return
            level[word] = before | bit
            if level is self.mask:
                self._count_more(1)
                self.state[2] = self.state[2] + 1

    def _count_more(self, more: int) -> None:
        state = self.state
        state[0] = state[0] + more
        state[1] = max(state[0], state[1])

    def active_cells(self) -> Any:
        """A boolean array over the node's cells."""
        if self.is_list:
            at = np.ogrid[tuple(slice(0, n) for n in self.grid)]
            lengths = self.length.to_numpy()[self._owner_number(at)]
            return np.broadcast_to(at[self.axis] % self.dim < lengths, self.grid)
        words = self.mask.to_numpy().astype("<u4").view(np.uint8)
        bits = np.unpackbits(words, bitorder="little", count=prod(self.grid))
        return bits.astype(bool).reshape(self.grid)

    def count(self) -> int:
        """Cells that are active; of a dynamic node, elements of all lists."""
        return int(self.length.to_numpy().sum()) if self.is_list else self.state[0]

    def slots(self) -> int:
        """How many cells, or chunks of lists, have ever been in use at once."""
        return self.state[1]


class Cells:
    """How the elements of a field, or the cells of a node, lie in the sparse cells above them.

    Along each axis of the deepest sparse node a cell holds `ratio` neighbours.
    """

    def __init__(self, node: SNode, path: tuple[Activity, ...], offset: Sequence[int]) -> None:
        self.path = path
        self.shape = tuple(node.shape)
        self.axes = tuple(node._axis_numbers())
        self.rank = len(self.shape)
        self.offset = tuple(offset) or (0,) * self.rank
        self.has_offset = any(self.offset)
        last = path[-1]
        self.last = last
        # Per axis: its place among those of the sparse node, -1 if it is of the cells alone.
        self.at = tuple(last.axes.index(a) if a in last.axes else -1 for a in self.axes)
        self.ratio = tuple(
            extent if at < 0 else extent // last.grid[at] for at, extent in zip(self.at, self.shape)
        )
        self.size = prod(self.ratio)
        self.inner = tuple(prod(self.ratio[k + 1 :]) for k in range(self.rank))
        # How to find each sparse node's cell: (axis here, how many per cell), in its own order.
        self.steps = tuple(
            tuple((self.axes.index(a), self.shape[self.axes.index(a)] // n)
                  for a, n in zip(activity.axes, activity.grid))
            for activity in path
        )  # fmt: skip

        # Equal for elements that lie in one cell if their indices are equal.
        self.key = (id(last), self.steps, self.offset)

    def cell(self, level: int, index: Sequence[int]) -> list[int]:
        """The cell of path[level] that holds an element; the index is without offset."""
        return [index[axis] // per for axis, per in self.steps[level]]

    def activate(self, index: Sequence[int]) -> None:
        """Activates all that an element lies in, from the host."""
        at = [i - o for i, o in zip(index, self.offset)]
        for level, activity in enumerate(self.path):
            activity.activate(self.cell(level, at))

    def active(self) -> Any:
        """A boolean array over the elements."""
        cells = self.last.active_cells()
        order = [at for at in self.at if at >= 0]
        if order != sorted(order):
            cells = cells.transpose(order)
        shown = cells[tuple(slice(None) if at >= 0 else None for at in self.at)]
        for axis, ratio in enumerate(self.ratio):
            shown = np.repeat(shown, ratio, axis=axis)
        return shown


class Box:
    """What lies in one cell of a sparse node, of a field or of the cells of a deeper one."""

    def __init__(
        self, activity: Activity, node: SNode, target: Any, offset: Sequence[int] = ()
    ) -> None:
        axes, shape = node._axis_numbers(), node.shape
        self.rank = len(shape)
        self.target = target
        self.at = tuple(activity.axes.index(a) if a in activity.axes else -1 for a in axes)
        self.extents = tuple(
            extent if at < 0 else extent // activity.grid[at] for at, extent in zip(self.at, shape)
        )
        self.size = prod(self.extents)
        self.inner = tuple(prod(self.extents[k + 1 :]) for k in range(self.rank))
        self.offset = tuple(offset) or (0,) * self.rank
        self.has_offset = any(self.offset)


def _path_to(node: SNode, known: dict[int, Activity]) -> tuple[Activity, ...]:
    return tuple(known[id(above)] for above in node._containers() if id(above) in known)


def structure(places: list[SNode]) -> int:
    """A number that tells the containers above places apart; 0 if all are dense."""
    if not any(c._kind in SPARSE for place in places for c in place._containers()):
        return 0
    path = [[(c._kind, c._axes, c._dims) for c in place._containers()] for place in places]
    return int.from_bytes(hashlib.sha256(repr(path).encode()).digest()[:8], "little") | 1


def add_hidden(
    builder: FieldsBuilder, nodes: list[SNode], rows: list[Any], fields: list[Any]
) -> list[Activity]:
    """Adds what a sparse tree needs beside its data to the rows of `core.make_tree`.

    Whoever makes the tree tells its nodes of these: a handler amid that may make it instead.
    """
    from quadrants.lang._data.stored_field import ScalarField

    known: dict[int, Activity] = {}
    for node in list(nodes):
        if node._kind in SPARSE:
            path = _path_to(node, known)
            known[id(node)] = Activity(node, path[-1] if path else None)
    for activity in known.values():
        for name, dtype, count in activity.hidden:
            field = ScalarField()
            field._setup(dtype, (), f"S{activity.node._id}.{name}")
            box = SNode(builder, "dense", None, (0,), (count,))
            box._up = builder._root
            place = SNode(builder, "place", None)
            place._up = box
            place._field = field
            rows.append((0, -1, box._axes, box._dims))
            rows.append((len(rows) - 1, dtype.id, (), ()))
            nodes += [box, place]
            field._set_place(0, place)
            field._placed()
            fields.append(field)
            setattr(activity, name, field)
        names = [name for name, _, _ in activity.hidden if name.startswith(("mask", "summary"))]
        activity.levels = tuple(getattr(activity, name) for name in names)
        activity.lists = tuple(getattr(activity, f"list{k}") for k in range(activity.rank))
    for node in nodes:
        path = _path_to(node, known)
        own = known.get(id(node))
        for activity in (path[:-1] if own else path)[-1:]:
            if own and own.is_list:
                assert node._up is not None
                activity.lengths += (Box(activity, node._up, own),)
            elif own:
                activity.masks += (Box(activity, node, own),)
            elif node._kind == "place" and not node._is_packed:
                number = node._field._component(node._component)
                activity.data += (Box(activity, node, number, node._index_offset),)
        if node._kind == "place" and path and path[-1].node is node._cell and path[-1].is_list:
            if not node._is_word and node._field not in path[-1].elements:
                path[-1].elements += (node._field,)
    return list(known.values())


def cells_of(node: SNode, offset: Sequence[int] = ()) -> Cells | None:
    """How the cells of a node of a finished tree lie in sparse ones; None if all are dense."""
    path = tuple(a for above in node._containers() if (a := above._activity_here) is not None)
    return Cells(node, path, offset) if path else None
