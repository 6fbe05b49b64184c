"""Nodes of field trees: `qd.root`, containers and places, and the axes they are indexed by.

A node is a declaration until its builder is finalised; then the native tree gives it a size and an
offset. What is sparse about a tree is in `_data/activity.py`.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from typing import TYPE_CHECKING, Any, TypeVar, cast

from quadrants._lazy import lazy_names
from quadrants._lib import core
from quadrants._lib.core import SNodeType
from quadrants._names import NAMES
from quadrants.lang.exception import QuadrantsRuntimeError, QuadrantsSyntaxError
from quadrants.lang.impl import host_only
from quadrants.lang.util import is_one_index

if TYPE_CHECKING:
    from quadrants.lang._data.activity import Activity, Cells
    from quadrants.lang._data.fields_builder import FieldsBuilder, SNodeTree

_F = TypeVar("_F", bound=Callable[..., Any])
_MAX_EXTENT = 2**31 - 1
_ids = itertools.count()
SPARSE = ("pointer", "bitmasked", "dynamic")

# What programs find here, too.
_PUBLIC = "activate append deactivate is_active length get_addr rescale_index Field BitpackedFields"
__getattr__, _ = lazy_names(__name__, globals(), {name: NAMES[name] for name in _PUBLIC.split()})

# The builders that the thread which has `core.declaring` is changing, outermost first: one, and more
# if finalisers, signal handlers or the threads that these wait for declare amid that.
amid: list[FieldsBuilder] = []


def depth_of_changes() -> int:
    """How many changes this thread is amid of."""
    return len(amid) if core.declaring.is_mine() else 0


def changes(method: _F) -> _F:
    """Marks what changes a tree in steps: nobody makes storage of it meanwhile."""

    @functools.wraps(method)
    def change(self: Any, *args: Any, **kwargs: Any) -> Any:
        depth = depth_of_changes()
        with core.declaring:
            try:  # what is raised before is of a handler, and its rest is cleared by the next change
                amid[depth:] = [getattr(self, "_builder", self)]
                return method(self, *args, **kwargs)
            finally:
                del amid[depth:]

    return cast("_F", change)


class Axis:
    """One axis; equal axes are one object."""

    __slots__ = ("value",)

    def __init__(self, value: int) -> None:
        self.value = value

    def __repr__(self) -> str:
        return f"Axis({self.value})"

    def __hash__(self) -> int:
        return self.value


_AXES = [Axis(n) for n in range(core.get_max_num_indices())]


def axes(*x: int) -> list[Axis]:
    """The axes of these numbers, for `dense` and its like.

    Args:
        *x: numbers from 0 to 11.

    Raises:
        TypeError: not an int.
        RuntimeError: another number.
    """
    if wrong := [n for n in x if not hasattr(type(n), "__index__")]:
        raise TypeError(f"axes takes ints from 0 to {len(_AXES) - 1}, got {wrong[0]!r}")
    if any(not 0 <= n < len(_AXES) for n in x):
        raise RuntimeError(f"Too many dimensions. The maximum dimensionality is {len(_AXES)}")
    return [_AXES[n] for n in x]


i, j, k, l = (axes(n) for n in range(4))  # noqa: E741
ij, ik, il, jk, jl, kl = (axes(*pair) for pair in itertools.combinations(range(4), 2))
ijk, ijl, ikl, jkl = (axes(*three) for three in itertools.combinations(range(4), 3))
ijkl = axes(0, 1, 2, 3)


def checked_extent(extent: Any) -> int:
    """An extent as an int; raises if it is no integer, not positive or too large."""
    if not hasattr(type(extent), "__index__") or (extent := extent.__index__()) > _MAX_EXTENT:
        raise TypeError(f"an extent is an integer of at most {_MAX_EXTENT}, got {extent!r}")
    if extent <= 0:
        raise QuadrantsRuntimeError("Every dimension of a Quadrants field should be positive")
    return extent


def checked_offset(offset: Any, shape: Sequence[int]) -> tuple[int, ...] | None:
    """An offset, one number or one per axis, as ints; raises if it is none, or if an index of the
    field would leave i32, in which loops count."""
    if offset is None:
        return None
    given = (offset,) if is_one_index(offset) else offset
    if not isinstance(given, Iterable) or not all(hasattr(type(o), "__index__") for o in given):
        raise TypeError(f"an offset is one integer per axis, got {offset!r}")
    numbers = tuple(o.__index__() for o in given)
    if len(numbers) != len(shape):
        raise QuadrantsSyntaxError(
            "The dimensionality of shape and offset must be the same "
            f"({len(shape)} != {len(numbers)})"
        )
    if any(abs(n) > _MAX_EXTENT for n in numbers):
        raise TypeError(
            f"an offset is an integer of at most {_MAX_EXTENT} and at least {-_MAX_EXTENT}, "
            f"got {offset!r}"
        )
    for n, extent in zip(numbers, shape):
        if n + extent - 1 > _MAX_EXTENT:
            raise TypeError(
                f"offset {n} and extent {extent} make {n + extent - 1} the last index, but an index "
                f"is at most {_MAX_EXTENT}; choose an offset of at most {_MAX_EXTENT + 1 - extent}"
            )
    return numbers


def _extension() -> Any:
    from quadrants.lang.misc import extension

    return extension


def unsupported(kind: str) -> QuadrantsRuntimeError:
    return QuadrantsRuntimeError(f"{kind} SNode is not supported on this backend.")


class NodePointer:
    """What `snode.ptr` offers: facts about the native node."""

    def __init__(self, node: SNode) -> None:
        self._node = node

    @property
    def type(self) -> SNodeType:
        return SNodeType[self._node._kind]

    @property
    def offset(self) -> list[int]:
        return list(self._node._index_offset)

    def get_num_ch(self) -> int:
        return len(self._node._children)

    def name(self) -> str:
        return self._node._name

    def _companion(self, which: str) -> Any:
        field = self._node._field
        return None if field is None else field._known_companion(which)

    def has_adjoint(self) -> bool:
        """Whether the field placed here has a gradient with storage."""
        grad = self._companion("grad")
        return grad is not None and grad._is_placed()

    def has_dual(self) -> bool:
        """Whether the field placed here has tangents with storage."""
        dual = self._companion("dual")
        return dual is not None and dual._is_placed()

    def has_adjoint_checkbit(self) -> bool:
        """Whether kernels can be checked for overwriting what its gradient needs."""
        from quadrants.lang import impl

        return impl.current_cfg().debug and self.has_adjoint()

    def is_primal(self) -> bool:
        """Whether the field placed here holds values, not gradients or tangents."""
        field = self._node._field
        return field is not None and field._companion_of is None

    def get_snode_grad_type(self) -> Any:
        """What the field placed here holds, a member of `SNodeGradType`."""
        from quadrants._lib.core import SNodeGradType

        field = self._node._field
        if field is None or field._companion_of is None:
            return SNodeGradType.PRIMAL
        is_grad = field._companion_of._known_companion("grad") is field
        return SNodeGradType.ADJOINT if is_grad else SNodeGradType.DUAL


class SNode:
    """A node of a field tree."""

    def __init__(
        self,
        builder: FieldsBuilder,
        kind: str,
        up: SNode | None,
        axis_numbers: Sequence[int] = (),
        dims: Sequence[int] = (),
        permuted: bool = False,
    ) -> None:
        self._builder = builder
        self._kind = kind
        self._up = up
        self._axes = tuple(axis_numbers)
        self._dims = tuple(dims)
        self._permuted = permuted  # shape follows memory: a field declared with order=
        self._children: list[SNode] = []
        self._field: Any = None  # of a place: the scalar or matrix field, and which component
        self._component = 0
        self._index_offset: tuple[int, ...] = ()
        self._id = next(_ids)
        self._sizes: tuple[int, int, int] | None = None  # cell bytes, offset, cells
        self._word_bits = 0  # of a bit struct or quant array
        self._bits = 0, -1, 0  # of a packed place: first bit, that of the exponent, group
        self._is_word = False  # a hidden place, of the words that quantised numbers lie in
        self._chunk = 0  # of a dynamic node: elements that are allocated at once
        self._activity_here: Activity | None = None  # of a sparse node in a finished tree
        self._known_cells: Any = ()  # None or Cells, once asked for
        if up is not None:
            up._children.append(self)

    def __getattr__(self, name: str) -> Any:
        if name == "ptr":
            return NodePointer(self)
        if name == "_snode":
            return self
        raise AttributeError(f"'SNode' object has no attribute {name!r}")

    # --- building ---

    def _open(self) -> None:
        if self._builder._finalized:
            raise QuadrantsRuntimeError("FieldsBuilder finalized")

    @host_only
    def dense(self, axes: Any, dimensions: Any) -> SNode:
        """Adds a fixed array.

        Args:
            axes: axes such as `qd.ij`.
            dimensions: extents, one per axis, or one for all.
        """
        return self._add_container("dense", axes, dimensions)

    def _add_container(self, kind: str, axes: Any, dimensions: Any, chunk: int = 0) -> SNode:
        self._open()
        numbers, extents = _checked_dims(axes, dimensions)
        above = {a for node in self._containers() for a in node._axes}
        if len(above.union(numbers)) > core.get_max_num_indices():
            raise RuntimeError("Too many dimensions. The maximum dimensionality is 12")
        for number, extent in zip(numbers, extents):
            if number in above and extent & (extent - 1):
                from quadrants import _logging

                _logging.warn(
                    f"Non-first division of an axis into {extent} parts, which is no power of two, is slow"
                )
        return self._add(kind, numbers, extents, chunk)

    @changes
    def _add(
        self,
        kind: str,
        numbers: Sequence[int],
        extents: Sequence[int],
        chunk: int = 0,
        permuted: bool = False,
    ) -> SNode:
        self._open()
        if self._word_bits:
            raise QuadrantsRuntimeError(
                "Quant array only supports quant int/fixed type for now: place one such field in it, "
                "and nothing else"
            )
        self._builder._touch()
        node = SNode(self._builder, kind, self, numbers, extents, permuted)
        node._chunk = chunk
        return node

    @host_only
    def pointer(self, axes: Any, dimensions: Any) -> SNode:
        """Adds pointers to cells that are allocated on activation."""
        return self._add_sparse("pointer", axes, dimensions)

    def _add_sparse(self, kind: str, axes: Any, dimensions: Any, chunk: int = 0) -> SNode:
        self._open()
        _checked_dims(axes, dimensions)
        from quadrants.lang import impl

        if not core.is_extension_supported(impl.current_cfg().arch, _extension().sparse):
            raise unsupported(kind.capitalize())
        return self._add_container(kind, axes, dimensions, chunk)

    @host_only
    def bitmasked(self, axes: Any, dimensions: Any) -> SNode:
        """Adds a fixed array with a bit of activity per cell."""
        return self._add_sparse("bitmasked", axes, dimensions)

    @host_only
    def dynamic(self, axis: Any, dimension: Any, chunk_size: Any = None) -> SNode:
        """Adds a list that grows up to `dimension` elements, in chunks."""
        self._open()
        assert len(axis) == 1, "a dynamic node has exactly one axis"
        _check_dynamic(dimension, chunk_size)
        return self._add_sparse("dynamic", axis, dimension, int(chunk_size or 0))

    @host_only
    def quant_array(self, axes: Any, dimensions: Any, max_num_bits: int) -> SNode:
        """Adds an array of quantised numbers that lie packed in one word.

        Args:
            axes: axes such as `qd.ij`.
            dimensions: extents, one per axis, or one for all.
            max_num_bits: size of the word: 8, 16, 32 or 64.
        """
        self._open()
        _checked_dims(axes, dimensions)
        from quadrants.lang import impl
        from quadrants.lang._data.packing import checked_word

        if not core.is_extension_supported(impl.current_cfg().arch, _extension().quant):
            raise unsupported("QuantArray")
        word_bits = checked_word(max_num_bits)
        node = self._add_container("quant_array", axes, dimensions)
        node._word_bits = word_bits
        return node

    @host_only
    def place(self, *args: Any, offset: Any = None) -> SNode:
        """Puts fields into every cell of this node.

        Args:
            *args: fields and lists of fields.
            offset: index of the first element, one number or one per axis.
        """
        from quadrants.lang._data.fields_builder import end_declaration, forget_unplaced

        try:
            self._place(args, offset)
        except Exception:
            forget_unplaced(args)
            self._detach()
            raise
        end_declaration()
        return self

    @changes
    def _detach(self) -> None:
        """What holds nothing since placing failed, which was told, does not hold up the rest."""
        node = self
        while node._up is not None and not node._children:
            siblings = node._up._children
            siblings[:] = [other for other in siblings if other is not node]
            node = node._up

    def _attach(self) -> None:
        node = self
        while node._up is not None and all(other is not node for other in node._up._children):
            node._up._children.append(node)
            node = node._up

    @changes
    def _place(self, args: tuple[Any, ...], offset: Any) -> None:
        self._open()
        self._attach()
        from quadrants.lang.field import place_field

        if is_one_index(offset):
            offset = (offset,)
        rank = len(self._axis_numbers())
        if isinstance(offset, Sized) and len(offset) != rank:
            raise RuntimeError(
                f"The offset has {len(offset)} entries, but the node has {rank} axes"
            )
        offset = checked_offset(offset, self.shape)
        for arg in args:
            for field in arg if isinstance(arg, list) else (arg,):
                if self._kind != "root":
                    place_field(self, field, offset)
                    continue
                node = self._add("dense", (), ())  # of a single element
                try:
                    place_field(node, field, offset)
                finally:
                    if not node._children:
                        self._children.remove(node)

    def _add_place(self, field: Any, component: int, offset: Any) -> SNode:
        self._open()
        if field._quants is not None or self._word_bits:
            from quadrants.lang._data.packing import check_place

            check_place(self, field, component)
        self._builder._touch()
        node = SNode(self._builder, "place", self)
        node._field = field
        node._component = component
        if offset is not None:
            node._index_offset = offset
        return node

    @host_only
    def lazy_grad(self) -> None:
        """Places the adjoint of every real field beside its primal."""
        self._place_companions("grad")

    @host_only
    def lazy_dual(self) -> None:
        """Places the dual of every real field beside its primal."""
        self._place_companions("dual")

    @changes
    def _place_companions(self, which: str) -> None:
        self._open()
        from quadrants.lang.field import place_component

        for node in list(self._walk()):
            field = node._field
            if node._kind != "place" or field._companion_of is not None:
                continue
            companion = getattr(field, which)
            if companion is not None and companion._places[node._component] is None:
                up = node._cell
                assert up is not None
                if up._kind == "quant_array":
                    assert up._up is not None
                    up = up._up._add("dense", up._axes, up._dims)
                place_component(up, companion, node._component, node._index_offset or None)

    # --- asking ---

    def _walk(self) -> Iterator[SNode]:
        yield self
        for child in self._children:
            yield from child._walk()

    def _fields(self) -> list[Any]:
        """Of the places here and below; None: a place that is being made."""
        return [node._field for node in self._walk() if node._kind == "place"]

    def _containers(self) -> list[SNode]:
        """From below the root to this node."""
        found: list[SNode] = []
        node: SNode | None = self
        while node is not None:
            if node._kind not in ("root", "place"):
                found.append(node)
            node = node._up
        return found[::-1]

    @property
    def _cell(self) -> SNode | None:
        """The container in whose cells a place lies."""
        up = self._up
        return up._up if up is not None and up._kind == "bit_struct" else up

    @property
    def _is_packed(self) -> bool:
        """Whether it is the place of quantised numbers, which have no storage of their own."""
        return self._up is not None and self._up._word_bits != 0

    def _axis_numbers(self) -> list[int]:
        return sorted({a for node in self._containers() for a in node._axes})

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents from the root, one per axis."""
        containers = self._containers()
        if len(containers) == 1:
            only = containers[0]
            if only._permuted or list(only._axes) == sorted(set(only._axes)):
                return only._dims
        extents: dict[int, int] = {}
        for node in containers:
            for axis, dim in zip(node._axes, node._dims):
                extents[axis] = extents.get(axis, 1) * dim
        return tuple(extents[a] for a in sorted(extents))

    def parent(self, n: int = 1) -> Any:
        """The node n levels above: itself for 0, `qd.root` at the top, None beyond."""
        node: SNode | None = self
        for _ in range(n):
            if node is None:
                break
            node = node._up
        return root if node is not None and node._kind == "root" else node

    def deactivate_all(self) -> None:
        """Deactivates the cells of sparse nodes here and below; dense nodes have none."""
        self._tree  # noqa: B018
        if self._activity_here is not None:
            from quadrants._library import sparse

            sparse.deactivate_cells(self)
            if self._up is self._builder._root and not self._activity_here.count():
                bytes_of_cell, offset, cells = self._sizes or (0, 0, 0)
                core.discard(self._tree.id, offset, bytes_of_cell * cells)
            return
        for child in self._children:
            if child._kind != "place":
                child.deactivate_all()

    @property
    def _cells(self) -> Cells | None:
        """How its cells lie in sparse ones, its own included; None if all are dense."""
        if self._known_cells == ():
            from quadrants.lang._data.activity import cells_of

            self._tree  # noqa: B018
            self._known_cells = cells_of(self)
        return self._known_cells

    @property
    def _name(self) -> str:
        if self._field is None:
            return f"S{self._id}{self._kind}"
        return self._field._name

    @property
    def _tree(self) -> SNodeTree:
        tree = self._builder._tree
        if tree is None:
            from quadrants.lang import impl

            impl.get_runtime().materialize()
            tree = self._builder._tree
        if tree is None:
            raise QuadrantsRuntimeError("This SNode is not part of a finalized tree")
        return tree

    @property
    def _snode_tree_id(self) -> int:
        return self._tree.id

    @property
    def _cell_size_bytes(self) -> int:
        self._tree  # noqa: B018
        assert self._sizes is not None
        return self._sizes[0]

    @property
    def _offset_bytes_in_parent_cell(self) -> int:
        self._tree  # noqa: B018
        assert self._sizes is not None
        return self._sizes[1]

    @property
    def _num_dynamically_allocated(self) -> int:
        self._tree  # noqa: B018
        return 0 if self._activity_here is None else self._activity_here.slots()

    def _get_children(self) -> list[SNode]:
        return list(self._children)

    def _path_from_root(self) -> list[Any]:
        path: list[Any] = [self]
        while path[-1]._up is not None:
            path.append(path[-1]._up)
        if path[-1]._kind == "root":
            path[-1] = root
        return path[::-1]

    def _physical_index_position(self) -> dict[int, int]:
        return dict(enumerate(self._axis_numbers()))

    def _loop_range(self) -> Any:
        """A field that has an element for each cell of this node; None if none lies in it."""
        if self._kind == "place":
            return self._field
        for child in self._children:
            if child._kind in ("place", "bit_struct"):
                return child._loop_range()
        return None

    def __repr__(self) -> str:
        return f"<qd.SNode of type {self._kind}>"

    def __str__(self) -> str:
        words = ["qd.root"]
        words += [f"{node._kind} {list(node.shape)}" for node in self._path_from_root()[1:]]
        return " => ".join(words)


# Which nodes the operations of kernels work on, as messages say it.
_WORKS_ON = {
    "is_active": ("pointer, hash or bitmasked", ("pointer", "bitmasked")),
    "activate": ("pointer, hash, bitmasked or dynamic", SPARSE),
    "deactivate": ("pointer, hash, bitmasked or dynamic", SPARSE),
    "append": ("dynamic", ("dynamic",)),
    "length": ("dynamic", ("dynamic",)),
}


def activity_for(operation: str, node: Any) -> Activity | None:
    """What an operation of kernels works on.

    Args:
        operation: a name in `_WORKS_ON`.
        node: what the kernel gives, a node if it is right.

    Returns:
        The node's activity; None where it has none and the operation has nothing to do.

    Raises:
        QuadrantsTypeError: the operation has no meaning for it.
        QuadrantsRuntimeError: it is a field, and only the nodes above have what is asked for.
    """
    from quadrants.lang.exception import QuadrantsTypeError

    given = getattr(node, "_snode", None)
    if not isinstance(given, SNode):
        raise QuadrantsTypeError(f"qd.{operation} takes an SNode, got {type(node).__name__}")
    kinds, needed = _WORKS_ON[operation]
    if given._kind in needed:
        given._tree  # noqa: B018
        return given._activity_here
    if given._kind == "place" and operation in ("activate", "deactivate", "length"):
        raise QuadrantsRuntimeError(
            f"The {operation} operation is not supported on place SNode: give it a node that the "
            "field lies in, such as its parent()"
        )
    if given._kind == "dense" and operation in ("activate", "deactivate"):
        return None  # its cells are always there
    raise QuadrantsTypeError(f"qd.{operation} only works on {kinds} nodes.")


def _checked_dims(axes: Any, dims: Any) -> tuple[list[int], list[int]]:
    if not isinstance(axes, Iterable) or not all(isinstance(axis, Axis) for axis in axes):
        raise TypeError(f"axes such as qd.ij are expected, got {axes!r}")
    numbers = [axis.value for axis in axes]
    if not is_one_index(dims) and not isinstance(dims, Iterable):
        raise TypeError(f"an extent is an integer of at most {_MAX_EXTENT}, got {dims!r}")
    if is_one_index(dims):
        dims = [dims] * len(numbers)
    dims = list(dims)
    if len(dims) == 1:
        dims = dims * len(numbers)
    if len(dims) != len(numbers):
        raise QuadrantsRuntimeError(
            f"axes and sizes must have the same size, but got {len(numbers)} and {len(dims)}."
        )
    return numbers, [checked_extent(d) for d in dims]


def _check_dynamic(dim: Any, chunk_size: Any) -> None:
    for value in (dim, chunk_size):
        if value is not None and value > _MAX_EXTENT:
            raise QuadrantsRuntimeError(f"{value} is too large for a dynamic SNode")


class Root:
    """`qd.root`: the builder that is open now."""

    def _builder(self) -> FieldsBuilder:
        from quadrants.lang._data.fields_builder import default_builder

        return default_builder()

    def _declare(self, method: str, *args: Any, **kwargs: Any) -> Any:
        """Calls the method of the builder: of the next, if this one became storage meanwhile."""
        while True:
            builder = self._builder()
            try:
                return getattr(builder, method)(*args, **kwargs)
            except QuadrantsRuntimeError:
                if not builder._finalized:
                    raise

    def dense(self, indices: Any, dimensions: Any) -> SNode:
        """Adds a fixed array; see `SNode.dense`."""
        return self._declare("dense", indices, dimensions)

    def pointer(self, indices: Any, dimensions: Any) -> SNode:
        """Adds pointers; see `SNode.pointer`."""
        return self._declare("pointer", indices, dimensions)

    def bitmasked(self, indices: Any, dimensions: Any) -> SNode:
        """Adds a masked array; see `SNode.bitmasked`."""
        return self._declare("bitmasked", indices, dimensions)

    def dynamic(self, index: Any, dimension: Any, chunk_size: Any = None) -> SNode:
        """Adds a growable list; see `SNode.dynamic`."""
        return self._declare("dynamic", index, dimension, chunk_size)

    def quant_array(self, indices: Any, dimensions: Any, max_num_bits: int) -> SNode:
        """Adds a packed array; see `SNode.quant_array`."""
        return self._builder().quant_array(indices, dimensions, max_num_bits)

    def place(self, *args: Any, offset: Any = None) -> Root:
        """Puts fields, 0-dimensional here, beside the containers."""
        self._declare("place", *args, offset=offset)
        return self

    def lazy_grad(self) -> None:
        """Places the adjoint of every real field declared since the last materialisation."""
        self._declare("lazy_grad")

    def lazy_dual(self) -> None:
        """Places the dual of every real field declared since the last materialisation."""
        self._declare("lazy_dual")

    def deactivate_all(self) -> None:
        """Deactivates everything sparse."""
        import warnings

        warnings.warn(
            "'qd.root.deactivate_all()' would deactivate all finalized snodes.", stacklevel=2
        )
        deactivate_all_snodes()

    def parent(self, n: int = 1) -> Any:
        """None; qd.root itself for n=0."""
        return self if n == 0 else None

    @property
    def shape(self) -> tuple[int, ...]:
        """()"""
        return ()

    def _get_children(self) -> list[SNode]:
        return list(self._builder()._root._children)

    def _path_from_root(self) -> list[Any]:
        return [self]

    def __getattr__(self, name: str) -> Any:
        if name == "_snode":
            return self._builder()._root
        if name == "ptr":
            return getattr(self._builder()._root, name)
        raise AttributeError(f"'qd.root' has no attribute {name!r}")

    def __repr__(self) -> str:
        return "qd.root"

    __str__ = __repr__


root = Root()


def deactivate_all_snodes() -> None:
    """Deactivates the cells of every sparse node.

    Raises:
        QuadrantsRuntimeError: before `qd.init`.
    """
    from quadrants.lang import impl
    from quadrants.lang._data.fields_builder import FieldsBuilder

    impl.check_initialised()

    for tree in FieldsBuilder._finalized_roots():
        if not tree._tree.destroyed:
            tree.deactivate_all()
