"""Scalar and matrix fields on the host.

They are native objects: element access and views are native; this module has the declarations
(places, gradient companions) and the public methods. A component of a matrix field is a scalar field
of its own that shares the storage. Companions exist once asked for.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from quadrants._lazy import LazyNumpy
from quadrants._lib import core
from quadrants.lang import impl
from quadrants.lang._data import convert
from quadrants.lang._values.entries import entries_for
from quadrants.lang._values.fill_range import check_fill
from quadrants.lang.exception import QuadrantsRuntimeError
from quadrants.lang.snode import SNode
from quadrants.lang.util import is_one_index

np: Any = LazyNumpy(globals())

_numbers = itertools.count()


if TYPE_CHECKING:
    _Native = core.FieldBase  # the other base of all that derive from `Field`
else:
    _Native = object


class Field(_Native):
    """A scalar, matrix or struct field."""

    __slots__ = ()
    _checkbit: Any = (
        None  # a field of marks: which cells a kernel read that is checked (quadrants.ad)
    )

    def __iter__(self) -> Iterator[Any]:
        raise NotImplementedError("Struct for is only available in Quadrants scope.")

    def _setup(
        self,
        dtype: Any,
        element_shape: tuple[int, ...],
        name: str,
        companion_of: Any = None,
    ) -> None:
        if not isinstance(name, str):
            raise TypeError(f"a field's name is a str, not {name!r}")
        name.encode()  # lone surrogates cannot be printed later
        count = 1
        for extent in element_shape:
            count *= extent
        self._dtype = dtype
        self._element_shape = element_shape
        self._name = name or f"tmp{next(_numbers)}"
        self._places: list[SNode | None] = [None] * count
        self._components: dict[int, ScalarField] = {}  # made by get_scalar_field
        self._component_of: tuple[Field, int] | None = None
        self._companion_of = companion_of
        self._quants: list[Any] | None = None  # types of the components of a quantised field
        self._packings: list[Any] = []
        self._order: tuple[int, ...] | None = None
        self._index_offset: tuple[int, ...] = ()
        self._shape: tuple[int, ...] | None = None
        self._declared_at = ""
        self._declared_in: Any = None  # thread, while it has no place
        if not dtype.is_real or companion_of is not None:
            self.grad = self.dual = None

    def __getattr__(self, name: str) -> Any:
        if name in ("grad", "dual"):
            return self.__dict__.setdefault(name, self._make_companion(name))
        if name == "ptr":
            return self.snode.ptr
        if name == "_snode":
            return self.snode
        if name == "vars":
            return [self._component(c) for c in range(len(self._places))]
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    # --- declaration ---

    def _make_companion(self, which: str) -> Any:
        if self._component_of is not None:
            whole, number = self._component_of
            return getattr(whole, which)._component(number)
        made = type(self).__new__(type(self))
        made._setup(self._dtype, self._element_shape, f"{self._name}.{which}", self)
        made._order = self._order
        if isinstance(self, MatrixField):
            made._describe()
        return made

    def _component(self, number: int) -> Any:
        return self

    def _quantise(self, quants: list[Any] | None) -> None:
        """Gives each component a quantised type; None: they are what the dtype says."""
        self._quants = quants
        self._packings = [None] * len(quants or ())

    def _set_place(self, component: int, node: SNode) -> None:
        if self._places[component] is not None:
            raise RuntimeError("This variable has been placed.")
        self._places[component] = node

    def _is_placed(self) -> bool:
        # Components are placed in order: asked after each, this must not look at all of them.
        return self._places[-1] is not None and None not in self._places

    def _placed(self) -> None:
        """All places are known: the shape follows."""
        node = self._places[0]
        assert node is not None
        shape = node.shape
        if self._order is not None:
            canonical = [0] * len(shape)
            for level, axis in enumerate(self._order):
                canonical[axis] = shape[level]
            shape = tuple(canonical)
        self._shape = shape
        self._index_offset = node._index_offset
        if self._companion_of is None:
            from quadrants.lang._data.fields_builder import note_placed

            note_placed(self)

    def _check_component_shapes(self) -> None:
        # Components in one container share its shape.
        nodes = {id(node._up): node for node in self._places if node is not None}
        shapes = {node.shape for node in nodes.values()}
        if len(shapes) > 1:
            raise RuntimeError(
                "Members of the following field have different shapes: " + self._name
            )

    def _description(self, numbers: dict[int, int], sparse: bool) -> tuple[Any, ...]:
        """What native code needs to know; `numbers` are those of the tree's nodes."""
        shape = self._element_shape
        places = tuple(numbers[id(node)] for node in self._places)
        n, m = (*shape, 1, 1)[:2]
        offset = self._index_offset or None
        kind = self._dtype.id
        name = self._name
        structure = self._structure() if sparse else 0
        is_packed = self._quants is not None
        return (
            self,
            places,
            kind,
            len(shape),
            n,
            m,
            self._order,
            offset,
            name,
            structure,
            is_packed,
        )

    def _structure(self) -> int:
        """What tells sparse trees apart; 0 if all containers are dense."""
        from quadrants.lang._data.activity import structure

        above = {id(node._up): node for node in self._places if node is not None}
        return structure(list(above.values()))

    @property
    def _all_cells(self) -> tuple[Any, ...]:
        """How its elements lie in sparse cells: for each node that holds components of them, the
        first one's first. None: those lie in none."""
        known = self.__dict__.get("_known_cells")
        if known is None:
            from quadrants.lang._data.activity import cells_of

            self._prepare()
            above = {id(node._up): node for node in self._places if node is not None}
            known = tuple(cells_of(node, self._index_offset) for node in above.values())
            self._known_cells = known
        return known

    @property
    def _cells(self) -> tuple[Any, ...]:
        return tuple(cells for cells in self._all_cells if cells)

    @property
    def _first_cells(self) -> Any:
        """Those that a loop over it visits."""
        return self._all_cells[0]

    @property
    def _packed(self) -> tuple[Any, ...]:
        """How each component of a quantised field is packed."""
        self._prepare()
        if self._component_of is not None:
            whole, number = self._component_of
            return (whole._packings[number],)
        return tuple(self._packings)

    def _read_packed(self, key: Any, component: int) -> Any:
        from quadrants.lang._data import packing

        return packing.read(self._component(component), key)

    def _write_packed(self, key: Any, component: int, value: Any) -> None:
        from quadrants.lang._data import packing

        packing.write(self._component(component), key, value)

    @property
    def _list_node(self) -> SNode | None:
        """The dynamic node that it is placed in directly."""
        node = self._places[0]
        above = node._cell if node is not None else None
        return above if above is not None and above._kind == "dynamic" else None

    def _active(self) -> Any:
        """Whether each number of each element is there; along an axis of 1 if all have one answer."""
        cells = self._all_cells
        if len(cells) == 1:
            only = cells[0].active()
            return only.reshape(only.shape + (1,) * len(self._element_shape))
        there = [
            self._component(k)._active() if self._component(k)._is_sparse else True
            for k in range(len(self._places))
        ]
        each = [np.broadcast_to(mask, self.shape) for mask in there]
        return np.stack(each, -1).reshape(*self.shape, *self._element_shape)

    def _activate(self, key: Any) -> None:
        """Activates all that an element lies in: it is about to be written."""
        index = () if key is None else (key,) if is_one_index(key) else tuple(key)
        for cells in self._cells:
            cells.activate(index)

    def _bind_component(self, scalar: Field, number: int) -> None:
        core.bind_component(scalar, self, number, scalar._structure() if self._is_sparse else 0)

    def _bind_components(self) -> None:
        for number, scalar in self._components.items():
            self._bind_component(scalar, number)

    # --- attributes ---

    @property
    def dtype(self) -> Any:
        """Element type."""
        return self._dtype

    @property
    def shape(self) -> Any:
        """Extents, one per axis; None while unplaced."""
        if self._shape is None and self._companion_of is not None:
            return self._companion_of.shape
        return self._shape

    @property
    def layout(self) -> tuple[int, ...] | None:
        """Canonical axis at each memory level; None if in order."""
        order = self._order
        return None if order is None or order == tuple(range(len(order))) else order

    @property
    def snode(self) -> SNode:
        """The node of the first component."""
        node = self._places[0]
        if node is None:
            raise QuadrantsRuntimeError(f"Field {self._name} has not been placed")
        return node

    @property
    def _qd_layout(self) -> tuple[int, ...] | None:
        return self._order

    def parent(self, n: int = 1) -> Any:
        """The n-th node above the first component; None while unplaced."""
        return None if self._places[0] is None else self.snode.parent(n)

    def has_grad(self) -> bool:
        """Whether the gradient has storage."""
        grad = self._known_companion("grad")
        return grad is not None and grad._is_placed()

    def has_dual(self) -> bool:
        """Whether the dual has storage."""
        dual = self._known_companion("dual")
        return dual is not None and dual._is_placed()

    @property
    def _has_grad(self) -> bool:
        return self.has_grad()

    @property
    def _has_dual(self) -> bool:
        return self.has_dual()

    def _known_companion(self, which: str) -> Any:
        """What may have storage: nobody placed what was never asked for, but with its whole."""
        return getattr(self, which) if self._component_of is not None else self.__dict__.get(which)

    def _loop_range(self) -> Any:
        return self if self._is_placed() else None

    def _why_no_view(self) -> str | None:
        if self._is_sparse:
            return "a field of a sparse tree is not shared"
        if self._is_packed:
            return "the numbers of a quantised field lie in words"
        if not self.shape and not self._element_shape:
            return "a 0-dimensional scalar field is not shared"
        return None if self._compact() else "its elements do not lie side by side"

    # --- data ---

    def fill(self, val: Any) -> None:
        """Sets every element.

        Args:
            val: a number, cast to the dtype; for vectors and matrices also a value of their shape.
                In kernels it may be a run-time value.

        Raises:
            TypeError: not a number.
            QuadrantsTypeError: an integer out of range, see `check_fill`.
            AssertionError: a value of another shape.
            QuadrantsRuntimeError: the field has no storage.
        """
        if impl.inside_kernel():
            return convert.fill_in_kernel(self, val)
        self._prepare()
        check_fill(self._dtype, val)
        if self._is_sparse:
            self._fill_active(val)
        else:
            self._fill(val)
        convert.count_kernel(self, "fill")

    def _fill_active(self, val: Any) -> None:
        """Sets the elements in active cells."""
        from quadrants._library import sparse

        count = len(self._places)
        entries = getattr(val, "entries", val)
        values = [entries] * count
        if isinstance(entries, (list, tuple, np.ndarray)):
            array = entries_for(self._dtype, entries)
            if array.shape != self._element_shape:
                raise AssertionError(
                    f"a value of shape {self._element_shape} is expected, got shape {array.shape}"
                )
            values = array.ravel().tolist()
        fill, kind = (
            (sparse.fill_real, float) if self._dtype.is_real else (sparse.fill_integer, int)
        )
        for number, value in enumerate(values):
            fill(self._component(number), kind(convert.number_as(self._dtype, value)))

    def _fill(self, val: Any) -> None:
        convert.write_array(self, convert.number_as(self._dtype, val), ())

    @impl.host_only
    def copy_from(self, other: Field) -> None:
        """Copies all elements of a field of equal shape; dtypes and offsets may differ.

        A number becomes all components of a vector or matrix; it is made of the first one.

        Raises:
            TypeError: not a field, or vectors or matrices of two shapes.
            ValueError: another shape.
        """
        if not isinstance(other, Field):
            raise TypeError("Cannot copy from a non-field object")
        if self.shape != other.shape:
            raise ValueError(f"qd.field shape {self.shape} does not match {other.shape}")
        assert not hasattr(other, "field_dict"), "a struct field is not a field of numbers"
        self._prepare()
        convert.copy_array(other, self, self.shape)
        convert.count_kernel(self, "copy_from")

    def _conversion_key(self) -> Any:
        return self.snode._id

    @impl.host_only
    def to_numpy(self, *args: Any, **kwargs: Any) -> Any:
        """The elements as NumPy arrays."""
        raise NotImplementedError

    @impl.host_only
    def to_torch(self, *args: Any, **kwargs: Any) -> Any:
        """The elements as torch tensors."""
        raise NotImplementedError

    @impl.host_only
    def from_numpy(self, arr: Any) -> None:
        """Sets the elements from NumPy arrays."""
        raise NotImplementedError

    @impl.host_only
    def from_torch(self, arr: Any) -> None:
        """Sets the elements from torch tensors."""
        raise NotImplementedError

    def to_dlpack(self, versioned: bool = False) -> Any:
        """A DLPack capsule over the storage, of canonical shape with element axes last.

        Call `qd.sync()` before its memory is read.

        Args:
            versioned: export the structure of DLPack 1 instead of the older one.

        Raises:
            RuntimeError: strides cannot describe the layout, or the dtype is not one of i32, i64,
                f32, f64 and u1.
            ModuleNotFoundError: torch is not installed.
        """
        return convert.capsule_of(self, versioned, needs_torch=True)

    def __copy__(self) -> Any:
        return self  # a shallow copy would stand for the same storage

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        raise TypeError(f"cannot deepcopy {type(self).__name__!r} object")

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError(f"cannot pickle {type(self).__name__!r} object")

    def __str__(self) -> str:
        if impl.inside_kernel():
            return repr(self)
        if not self._is_placed():
            return "<Field: Definition of this field is incomplete>"
        return str(self.to_numpy())


class ScalarField(Field, core.FieldBase):
    """A field of numbers."""

    __module__ = "quadrants.lang.field"  # where programs find it

    @impl.host_only
    def to_numpy(self, dtype: Any = None, *, copy: bool | None = True) -> Any:
        """The elements as a NumPy array.

        Args:
            dtype: NumPy dtype of the result.
            copy: True copies, False shares the memory or raises, None shares if possible.

        Returns:
            An array of the field's shape, zero-based also with an offset.

        Raises:
            ValueError: `copy=False` where no view exists: another dtype, a layout that strides
                cannot describe, a 0-dimensional field.
        """
        self._prepare()
        return convert.numpy_of(self, self.shape, (), dtype, copy)

    @impl.host_only
    def to_torch(self, device: Any = None, *, copy: bool | None = True) -> Any:
        """The elements as a torch tensor; `copy` as for `to_numpy`."""
        self._prepare()
        return convert.torch_of(self, self.shape, (), device, copy)

    @impl.host_only
    def from_numpy(self, arr: Any) -> None:
        """Sets the elements from an array of the field's shape, cast to its dtype.

        Raises:
            AttributeError: not a NumPy array.
            ValueError: another shape.
        """
        self._write(arr, "from_numpy")

    def _write(self, arr: Any, operation: str) -> None:
        if not isinstance(arr, np.ndarray):
            raise AttributeError(f"a NumPy array is expected, got {type(arr)}")
        self._prepare()
        if tuple(arr.shape) != self.shape:
            raise ValueError(
                f"qd.field shape {self.shape} does not match the numpy array shape {arr.shape}"
            )
        convert.write_array(self, arr, ())
        convert.count_kernel(self, operation)

    @impl.host_only
    def from_torch(self, arr: Any) -> None:
        """Sets the elements from a tensor of the field's shape."""
        self._write(convert.array_of_torch(arr), "from_torch")

    def __repr__(self) -> str:
        return "<qd.field>"


class MatrixField(Field, core.FieldBase):
    """A field of vectors or matrices."""

    __module__ = "quadrants.lang.matrix"  # where programs find it

    def _describe(self) -> None:
        shape = self._element_shape
        self.ndim = len(shape)
        self.n, self.m = (*shape, 1)[:2]

    def _component(self, number: int) -> ScalarField:
        made = self._components.get(number)
        if made is None:
            made = ScalarField()
            made._setup(self._dtype, (), f"{self._name}[{number}]", self._companion_of)
            made._component_of = self, number
            if self._quants is not None:
                made._quantise([self._quants[number]])
            made._order = self._order
            self._components[number] = made
            if self._places[number] is not None:
                made._places[0] = self._places[number]
                made._placed()
            if self._has_storage:
                self._bind_component(made, number)
        return made

    def _set_place(self, component: int, node: SNode) -> None:
        super()._set_place(component, node)
        scalar = self._components.get(component)
        if scalar is not None:
            scalar._places[0] = node
            scalar._placed()

    def get_scalar_field(self, *indices: int) -> ScalarField:
        """The field of one component: (i) of vectors, (i, j) of matrices."""
        assert len(indices) in (1, 2), f"one or two indices are expected, got {indices}"
        row, column = (*indices, 0)[:2]
        if not -self.n <= row < self.n or not -self.m <= column < self.m:
            raise IndexError(f"there is no component {indices} in {self.n} x {self.m}")
        return self._component(row % self.n * self.m + column % self.m)

    def _get_dynamic_index_stride(self) -> int | None:
        self._prepare()
        return self._component_stride()

    def _element(self, key: Any) -> Any:
        return convert.live_element(self, key, self._element_shape)

    def _assign_element(self, key: Any, value: Any) -> None:
        convert.write_components(self, key, value, self._element_shape)

    def _fill(self, val: Any) -> None:
        entries = getattr(val, "entries", val)
        if isinstance(entries, (list, tuple, np.ndarray)):
            entries = entries_for(self._dtype, entries)
            if entries.shape != self._element_shape:
                raise AssertionError(
                    f"a value of shape {self._element_shape} is expected, got shape {entries.shape}"
                )
            convert.write_array(
                self, np.broadcast_to(entries, self.shape + entries.shape), self._element_shape
            )
        else:
            value = convert.number_as(self._dtype, entries)
            convert.write_array(self, value, self._element_shape)

    def _shaped(self, array: Any, keep_dims: bool) -> Any:
        if keep_dims:
            return array.reshape((*self.shape, self.n, self.m))
        if self.m == 1 and self.ndim == 2:
            return array.reshape((*self.shape, self.n))
        return array

    @impl.host_only
    def to_numpy(
        self, keep_dims: bool = False, dtype: Any = None, *, copy: bool | None = True
    ) -> Any:
        """The elements as a NumPy array, element axes last.

        Args:
            keep_dims: always append (n, m), for vectors too.
            dtype: NumPy dtype of the result.
            copy: True copies, False shares the memory or raises, None shares if possible.
        """
        self._prepare()
        array = convert.numpy_of(self, self.shape, self._element_shape, dtype, copy)
        return self._shaped(array, keep_dims)

    @impl.host_only
    def to_torch(
        self, device: Any = None, keep_dims: bool = False, *, copy: bool | None = True
    ) -> Any:
        """The elements as a torch tensor; arguments as for `to_numpy`."""
        self._prepare()
        tensor = convert.torch_of(self, self.shape, self._element_shape, device, copy)
        return self._shaped(tensor, keep_dims)

    @impl.host_only
    def from_numpy(self, arr: Any) -> None:
        """Sets the elements from an array of shape `shape + (n,)` or `shape + (n, m)`.

        Raises:
            AttributeError: not a NumPy array.
            AssertionError: another rank.
            ValueError: another shape.
        """
        self._write(arr, "from_numpy")

    def _write(self, arr: Any, operation: str) -> None:
        if not isinstance(arr, np.ndarray):
            raise AttributeError(f"a NumPy array is expected, got {type(arr)}")
        self._prepare()
        rank = len(self.shape)
        if arr.ndim == rank + 1:
            assert self.m == 1, "This is not a vector field"
        else:
            assert arr.ndim == rank + 2, (
                f"an array of rank {rank + 1 if self.m == 1 else rank + 2} is expected, "
                f"got rank {arr.ndim}"
            )
        count = self.n * self.m
        elements = arr.shape[rank:]
        size = elements[0] * (elements[1] if len(elements) > 1 else 1)
        if arr.shape[:rank] != self.shape or size != count:
            raise ValueError(
                f"qd.field shape {self.shape} with elements {self._element_shape} does not match the numpy "
                f"array shape {arr.shape}"
            )
        array = np.ascontiguousarray(arr).reshape(self.shape + self._element_shape)
        convert.write_array(self, array, self._element_shape)
        convert.count_kernel(self, operation)

    @impl.host_only
    def from_torch(self, arr: Any) -> None:
        """Sets the elements from a tensor; shapes as for `from_numpy`."""
        self._write(convert.array_of_torch(arr), "from_torch")

    def __repr__(self) -> str:
        return f"<{self.n}x{self.m} qd.Matrix.field>"
