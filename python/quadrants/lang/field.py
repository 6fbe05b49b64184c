"""Scalar, matrix and struct fields on the host.

A scalar or matrix field is a native object: element access and views are native; this module has
the declarations (places, gradient companions) and the public methods. A component of a matrix field
is a scalar field of its own that shares the storage. Companions exist once asked for.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator
from typing import Any

from quadrants._lazy import LazyNumpy
from quadrants._lib import core
from quadrants._lib.core import Layout
from quadrants.lang import _convert, impl
from quadrants.lang._unavailable import unavailable_class
from quadrants.lang.exception import QuadrantsRuntimeError, QuadrantsSyntaxError
from quadrants.lang.matrix import Matrix, MatrixType
from quadrants.lang.snode import SNode, checked_extent, root
from quadrants.lang.struct import LiveScalar, Struct, StructType, _made
from quadrants.lang.util import cook_dtype

BitpackedFields = unavailable_class(__name__, "BitpackedFields", "qd.BitpackedFields")

np: Any = LazyNumpy(globals())

_numbers = itertools.count()


def _caller() -> str:
    """Where user code stands, for messages about a declaration."""
    frame: Any = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("quadrants."):
        frame = frame.f_back
    return f'  File "{frame.f_code.co_filename}", line {frame.f_lineno}, in {frame.f_code.co_name}'


class Field:
    """A scalar, matrix or struct field."""

    __slots__ = ()

    def __iter__(self) -> Iterator[Any]:
        raise NotImplementedError("Struct for is only available in Quadrants scope.")

    def _setup(
        self,
        dtype: Any,
        element_shape: tuple[int, ...],
        name: str,
        companion_of: Any = None,
    ) -> None:
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
        self._order: tuple[int, ...] | None = None
        self._index_offset: tuple[int, ...] = ()
        self._shape: tuple[int, ...] | None = None
        self._declared_at = ""
        if not dtype.is_real or companion_of is not None:
            self.grad = self.dual = None

    def __getattr__(self, name: str) -> Any:
        if name in ("grad", "dual"):
            made = self._make_companion(name)
            setattr(self, name, made)
            return made
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

    def _set_place(self, component: int, node: SNode) -> None:
        if self._places[component] is not None:
            raise RuntimeError("This variable has been placed.")
        self._places[component] = node

    def _is_placed(self) -> bool:
        return None not in self._places

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
            from quadrants.lang._fields_builder import note_placed

            note_placed(self)

    def _check_component_shapes(self) -> None:
        shapes = {node.shape for node in self._places if node is not None}
        if len(shapes) > 1:
            raise RuntimeError("Members of the following field have different shapes: " + self._name)

    def _description(self, numbers: dict[int, int]) -> tuple[Any, ...]:
        """What native code needs to know; `numbers` are those of the tree's nodes."""
        shape = self._element_shape
        places = tuple(numbers[id(node)] for node in self._places)
        n, m = (*shape, 1, 1)[:2]
        offset = self._index_offset or None
        kind = self._dtype.id
        return (self, places, kind, len(shape), n, m, self._order, offset, self._name)

    def _bind_components(self) -> None:
        for number, scalar in self._components.items():
            core.bind_component(scalar, self, number)

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
        """The n-th node above the first component."""
        return self.snode.parent(n)

    def has_grad(self) -> bool:
        """Whether the gradient has storage."""
        grad = self.__dict__.get("grad")
        return grad is not None and grad._is_placed()

    def has_dual(self) -> bool:
        """Whether the dual has storage."""
        dual = self.__dict__.get("dual")
        return dual is not None and dual._is_placed()

    def _loop_range(self) -> Any:
        return self if self._is_placed() else None

    def _why_no_view(self) -> str | None:
        if not self.shape and not self._element_shape:
            return "a 0-dimensional scalar field is not shared"
        return None if self._compact() else "its elements do not lie side by side"  # type: ignore[attr-defined]

    # --- data ---

    def fill(self, val: Any) -> None:
        """Sets every element.

        Args:
            val: a number; for vectors and matrices also a value of their shape.
        """
        if impl.inside_kernel():
            return _convert.fill_in_kernel(self, val)
        self._prepare()  # type: ignore[attr-defined]
        return self._fill(val)

    def _fill(self, val: Any) -> None:
        _convert.write_array(self, _convert.number_as(self._dtype, val), ())

    def copy_from(self, other: Field) -> None:
        """Copies all elements of a field of equal shape; dtypes may differ."""
        if not isinstance(other, Field):
            raise TypeError("Cannot copy from a non-field object")
        if self.shape != other.shape:
            raise ValueError(f"qd.field shape {self.shape} does not match {other.shape}")
        assert not isinstance(other, StructField)
        self._prepare()  # type: ignore[attr-defined]
        array = _convert.copied_array(other, other.shape, other._element_shape)
        _convert.write_array(self, array, self._element_shape)

    def to_numpy(self, *args: Any, **kwargs: Any) -> Any:
        """The elements as NumPy arrays."""
        raise NotImplementedError

    def to_torch(self, *args: Any, **kwargs: Any) -> Any:
        """The elements as torch tensors."""
        raise NotImplementedError

    def from_numpy(self, arr: Any) -> None:
        """Sets the elements from NumPy arrays."""
        raise NotImplementedError

    def from_torch(self, arr: Any) -> None:
        """Sets the elements from torch tensors."""
        raise NotImplementedError

    def to_dlpack(self, versioned: bool = False) -> Any:
        """A DLPack capsule over the storage."""
        return _convert.capsule_of(self, versioned, needs_torch=True)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        raise TypeError(f"cannot deepcopy {type(self).__name__!r} object")

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError(f"cannot pickle {type(self).__name__!r} object")

    def __str__(self) -> str:
        if not self._is_placed():
            return "<Field: Definition of this field is incomplete>"
        return str(self.to_numpy())  # type: ignore[attr-defined]


class ScalarField(Field, core.FieldBase):
    """A field of numbers."""

    def to_numpy(self, dtype: Any = None, *, copy: bool | None = True) -> Any:
        """The elements as a NumPy array.

        Args:
            dtype: NumPy dtype of the result.
            copy: True copies, False shares the memory or raises, None shares if possible.
        """
        self._prepare()
        return _convert.numpy_of(self, self.shape, (), dtype, copy)

    def to_torch(self, device: Any = None, *, copy: bool | None = True) -> Any:
        """The elements as a torch tensor; `copy` as for `to_numpy`."""
        self._prepare()
        return _convert.torch_of(self, self.shape, (), device, copy)

    def from_numpy(self, arr: Any) -> None:
        """Sets the elements from an array of the field's shape."""
        if not isinstance(arr, np.ndarray):
            raise AttributeError(f"a NumPy array is expected, got {type(arr)}")
        self._prepare()
        if tuple(arr.shape) != self.shape:
            raise ValueError(
                f"qd.field shape {self.shape} does not match the numpy array shape {arr.shape}"
            )
        _convert.write_array(self, arr, ())

    def from_torch(self, arr: Any) -> None:
        """Sets the elements from a tensor of the field's shape."""
        self.from_numpy(_convert.array_of_torch(arr))

    def __repr__(self) -> str:
        return "<qd.field>"


class MatrixField(Field, core.FieldBase):
    """A field of vectors or matrices."""

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
            made._order = self._order
            self._components[number] = made
            if self._places[number] is not None:
                made._places[0] = self._places[number]
                made._placed()
            if self._has_storage:
                core.bind_component(made, self, number)
        return made

    def _set_place(self, component: int, node: SNode) -> None:
        super()._set_place(component, node)
        scalar = self._components.get(component)
        if scalar is not None:
            scalar._places[0] = node
            scalar._placed()

    def get_scalar_field(self, *indices: int) -> ScalarField:
        """The field of one component: (i) of vectors, (i, j) of matrices."""
        assert len(indices) in (1, 2)
        column = indices[1] if len(indices) == 2 else 0
        return self._component(indices[0] * self.m + column)

    def _get_dynamic_index_stride(self) -> int | None:
        self._prepare()
        return self._component_stride()

    def _element(self, key: Any) -> Any:
        return _convert.live_element(self, key, self._element_shape)

    def _assign_element(self, key: Any, value: Any) -> None:
        _convert.write_components(self, key, value, self._element_shape)

    def _fill(self, val: Any) -> None:
        entries = getattr(val, "entries", val)
        if isinstance(entries, (list, tuple, np.ndarray)):
            entries = np.asarray(entries)
            if entries.shape != self._element_shape:
                raise AssertionError(
                    f"a value of shape {self._element_shape} is expected, got shape {entries.shape}"
                )
            _convert.write_array(
                self, np.broadcast_to(entries, self.shape + entries.shape), self._element_shape
            )
        else:
            value = _convert.number_as(self._dtype, entries)
            _convert.write_array(self, value, self._element_shape)

    def _shaped(self, array: Any, keep_dims: bool) -> Any:
        if keep_dims:
            return array.reshape((*self.shape, self.n, self.m))
        if self.m == 1 and self.ndim == 2:
            return array.reshape((*self.shape, self.n))
        return array

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
        array = _convert.numpy_of(self, self.shape, self._element_shape, dtype, copy)
        return self._shaped(array, keep_dims)

    def to_torch(
        self, device: Any = None, keep_dims: bool = False, *, copy: bool | None = True
    ) -> Any:
        """The elements as a torch tensor; arguments as for `to_numpy`."""
        self._prepare()
        tensor = _convert.torch_of(self, self.shape, self._element_shape, device, copy)
        return self._shaped(tensor, keep_dims)

    def from_numpy(self, arr: Any) -> None:
        """Sets the elements from an array of shape `shape + (n,)` or `shape + (n, m)`."""
        if not isinstance(arr, np.ndarray):
            raise AttributeError(f"a NumPy array is expected, got {type(arr)}")
        self._prepare()
        rank = len(self.shape)
        if arr.ndim == rank + 1:
            assert self.m == 1, "This is not a vector field"
        else:
            assert arr.ndim == rank + 2, f"an array of rank {rank + 2} is expected"
        count = self.n * self.m
        elements = arr.shape[rank:]
        size = elements[0] * (elements[1] if len(elements) > 1 else 1)
        if arr.shape[:rank] != self.shape or size != count:
            raise ValueError(
                f"qd.field shape {self.shape} with elements {self._element_shape} does not match the numpy "
                f"array shape {arr.shape}"
            )
        array = np.ascontiguousarray(arr).reshape(self.shape + self._element_shape)
        _convert.write_array(self, array, self._element_shape)

    def from_torch(self, arr: Any) -> None:
        """Sets the elements from a tensor; shapes as for `from_numpy`."""
        self.from_numpy(_convert.array_of_torch(arr))

    def __repr__(self) -> str:
        return f"<{self.n}x{self.m} qd.Matrix.field>"


class StructField(Field):
    """A field of structs: member fields by name.

    Args:
        field_dict: fields and struct fields by name.
        struct_methods: functions that elements have as methods.
        name: for messages.
    """

    def __init__(
        self,
        field_dict: dict[str, Any],
        struct_methods: dict[str, Any] | None = None,
        name: str = "<Struct>",
        *,
        groups: dict[str, Any] | None = None,
    ) -> None:
        self.field_dict = field_dict
        self.struct_methods = struct_methods or {}
        self._name = name
        self._groups = groups or {}
        for key, member in field_dict.items():
            self.__dict__.setdefault(key, member)

    def __getattr__(self, name: str) -> Any:
        if name in ("grad", "dual"):
            members = {k: getattr(f, name) for k, f in self.field_dict.items()}
            given = {k: f for k, f in members.items() if f is not None}
            if not given:
                return None
            made = StructField(given, self.struct_methods, f"{self._name}.{name}")
            setattr(self, name, made)
            return made
        if name == "struct_type":
            made = self.struct_type = self._make_struct_type()
            return made
        if name == "_snode":
            return self.snode
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    @property
    def keys(self) -> list[str]:
        """Names of the members."""
        return list(self.field_dict)

    def _first(self) -> Any:
        return next(iter(self.field_dict.values()))

    @property
    def dtype(self) -> Any:
        """Element types by member name."""
        return {k: f.dtype for k, f in self.field_dict.items()}

    @property
    def shape(self) -> Any:
        """Extents, one per axis."""
        return self._first().shape

    @property
    def layout(self) -> Any:
        """As of the first member."""
        return self._first().layout

    @property
    def snode(self) -> SNode:
        """The node of the first member."""
        return self._first().snode

    def _make_struct_type(self) -> StructType:
        """The type of an element."""
        members: dict[str, Any] = {"__struct_methods": self.struct_methods}
        for key, field in self.field_dict.items():
            members[key] = field.struct_type if isinstance(field, StructField) else _type_of(field)
        made = StructType(**members)
        made._unpacked_groups = self._groups
        return made

    def parent(self, n: int = 1) -> Any:
        """The n-th node above the first member."""
        return self._first().parent(n)

    def has_grad(self) -> bool:
        """Whether a member's gradient has storage."""
        return any(f.has_grad() for f in self.field_dict.values())

    def has_dual(self) -> bool:
        """Whether a member's dual has storage."""
        return any(f.has_dual() for f in self.field_dict.values())

    def get_member_field(self, key: str) -> Any:
        """The field of one member."""
        return self.field_dict[key]

    def _loop_range(self) -> Any:
        return self._first()._loop_range()

    def _leaves(self) -> Iterator[Any]:
        for field in self.field_dict.values():
            if isinstance(field, StructField):
                yield from field._leaves()
            else:
                yield field

    def fill(self, val: Any) -> None:
        """Sets every number of every element."""
        for field in self.field_dict.values():
            field.fill(val)

    def copy_from(self, other: Any) -> None:
        """Copies all members of a struct field with the same member names."""
        if not isinstance(other, Field):
            raise TypeError("Cannot copy from a non-field object")
        assert isinstance(other, StructField) and set(self.keys) == set(other.keys)
        for key, field in self.field_dict.items():
            field.copy_from(other.field_dict[key])

    def to_numpy(self, *, copy: bool | None = True) -> dict[str, Any]:
        """NumPy arrays by member name."""
        return {k: f.to_numpy(copy=copy) for k, f in self.field_dict.items()}

    def to_torch(self, device: Any = None, *, copy: bool | None = True) -> dict[str, Any]:
        """Torch tensors by member name."""
        return {k: f.to_torch(device=device, copy=copy) for k, f in self.field_dict.items()}

    def from_numpy(self, arr: dict[str, Any]) -> None:
        """Sets every member from an array of that name."""
        for key, field in self.field_dict.items():
            field.from_numpy(arr[key])

    def from_torch(self, arr: dict[str, Any]) -> None:
        """Sets every member from a tensor of that name."""
        for key, field in self.field_dict.items():
            field.from_torch(arr[key])

    def to_dlpack(self, versioned: bool = False) -> Any:
        """Not available: a struct has no single dtype."""
        raise RuntimeError("A struct field cannot be exported by DLPack; export its members")

    def __getitem__(self, key: Any) -> Any:
        entries: dict[str, Any] = {}
        for name, field in self.field_dict.items():
            if isinstance(field, ScalarField):
                field[key]  # noqa: B018  (a wrong key is reported here)
                entries[name] = _live_scalar(field, key)
            else:
                entries[name] = field[key]
        return _made(entries, self.struct_methods, self._groups)

    def __setitem__(self, key: Any, value: Any) -> None:
        source = value._entries if isinstance(value, Struct) else value
        for name, field in self.field_dict.items():
            member = source[name]
            field[key] = member.get() if isinstance(member, LiveScalar) else member

    def __str__(self) -> str:
        return str(self.to_numpy())

    def __repr__(self) -> str:
        return f"<qd.Struct.field {self._name} of {', '.join(self.keys)}>"


def _live_scalar(field: Any, key: Any) -> LiveScalar:
    def set(value: Any) -> None:
        field[key] = value

    return LiveScalar(lambda: field[key], set)


def _type_of(field: Field) -> Any:
    shape = field._element_shape
    if not shape:
        return field.dtype
    from quadrants.lang.matrix import VectorType

    return (
        VectorType(shape[0], field.dtype)
        if len(shape) == 1
        else MatrixType(*shape, 2, field.dtype)
    )


# --- placing ---


def place_field(node: SNode, field: Any, offset: Any) -> None:
    """Puts every component of a field into a node."""
    if isinstance(field, StructField):
        for member in field.field_dict.values():
            place_field(node, member, offset)
        return
    if not isinstance(field, Field):
        raise ValueError(f"{field} cannot be placed")
    for component, place in enumerate(field._places):
        if place is not None:
            raise RuntimeError("This variable has been placed.")
        place_component(node, field, component, offset)


def place_component(node: SNode, field: Any, component: int, offset: Any) -> None:
    """Puts one component of a field into a node."""
    if field._component_of is not None:
        field, component = field._component_of
    if field._places[component] is not None:
        raise RuntimeError("This variable has been placed.")
    field._set_place(component, node._add_place(field, component, offset))
    if field._is_placed():
        field._placed()


class Plan:
    """Shape, memory order and offset of fields that are declared with a shape."""

    def __init__(self, shape: Any, order: str | None, offset: Any) -> None:
        if hasattr(shape, "__index__"):
            shape = (shape,)
        if hasattr(offset, "__index__"):
            offset = (offset,)
        self.shape = tuple(checked_extent(extent) for extent in shape)
        rank = len(self.shape)
        if rank > core.get_max_num_indices():
            raise RuntimeError("Too many dimensions. The maximum dimensionality is 12")
        if offset is not None and len(offset) != rank:
            raise QuadrantsSyntaxError(
                "The dimensionality of shape and offset must be the same "
                f"({rank} != {len(offset)})"
            )
        self.offset = offset
        self.order = None if order is None else _axes_of_order(order, rank)
        count = 1
        for extent in self.shape:
            count *= extent
        if count > 2**31:
            from quadrants import _logging

            _logging.warn(f"A field of {count} elements exceeds the range of int32 indices")

    def new_node(self) -> SNode:
        """A container of this shape at the open root."""
        top = root._builder()._root
        if not self.shape:
            return top
        extents = self.shape
        if self.order is not None:
            extents = tuple(self.shape[axis] for axis in self.order)
        return top._add_dense(range(len(extents)), extents, permuted=self.order is not None)

    def place(self, fields: list[Any], layout: Layout) -> None:
        """Puts fields into one node, or every component into its own."""
        shared = self.new_node() if layout is not Layout.SOA else None
        for field in fields:
            field._order = self.order
            if shared is not None:
                place_field(shared, field, self.offset)
                continue
            for component in range(len(field._places)):
                place_component(self.new_node(), field, component, self.offset)


def _axes_of_order(order: str, rank: int) -> tuple[int, ...]:
    if len(order) != rank:
        raise QuadrantsSyntaxError(
            f"The dimensionality of shape and order must be the same ({rank} != {len(order)})"
        )
    if len(set(order)) != len(order):
        raise QuadrantsSyntaxError("The axes in order must be different")
    found = []
    for letter in order:
        axis = ord(letter) - ord("i")
        if not 0 <= axis < rank:
            raise QuadrantsSyntaxError(f"Invalid axis {letter}")
        found.append(axis)
    return tuple(found)


def _plan(shape: Any, order: Any, offset: Any) -> Plan | None:
    if shape is not None:
        return Plan(shape, order, offset)
    if offset is not None:
        raise QuadrantsSyntaxError("shape cannot be None when offset is set")
    if order is not None:
        raise QuadrantsSyntaxError("shape cannot be None when order is set")
    return None


def _check_companions(dtype: Any, needs_grad: bool, needs_dual: bool) -> None:
    if (needs_grad or needs_dual) and not dtype.is_real:
        raise QuadrantsRuntimeError(
            f"{dtype} is not supported for field with `needs_grad=True` or `needs_dual=True`."
        )


def _declare(
    fields: list[Any], plan: Plan | None, layout: Layout, needs_grad: bool, needs_dual: bool
) -> None:
    """Places fields and their companions, or notes that the user will."""
    from quadrants.lang._fields_builder import declare_unplaced, declare_wanting

    wanted = [w for w, needed in (("grad", needs_grad), ("dual", needs_dual)) if needed]
    if plan is None:
        for field in fields:
            field._declared_at = _caller()
            declare_unplaced(field)
            for which in wanted:
                if field.dtype.is_real:
                    declare_wanting(which, field)
        return
    plan.place(fields, layout)
    for which in wanted:
        companions = [getattr(f, which) for f in fields if f.dtype.is_real]
        if companions:
            plan.place(companions, layout)


# --- factories ---


def _check_runtime() -> None:
    impl.check_initialised()
    if impl.is_python_backend():
        raise QuadrantsRuntimeError("qd.field is not available on the Python backend yet")


def field(
    dtype: Any,
    shape: Any = None,
    order: str | None = None,
    name: str = "",
    offset: Any = None,
    needs_grad: bool = False,
    needs_dual: bool = False,
) -> Any:
    """A field: numbers at every point of a grid, for kernels and the host.

    Args:
        dtype: element type; a vector or matrix type makes a matrix field.
        shape: extents, `()` for a single element; None to place the field in a tree later.
        order: nesting of the axes in memory, outermost first, such as "ji".
        name: for messages.
        offset: index of the first element.
        needs_grad: give the gradient storage.
        needs_dual: give the dual storage.
    """
    if isinstance(dtype, MatrixType):
        return dtype.field(
            shape=shape,
            order=order,
            name=name,
            offset=offset,
            needs_grad=needs_grad,
            needs_dual=needs_dual,
        )
    dtype = cook_dtype(dtype)
    _check_runtime()
    _check_companions(dtype, needs_grad, needs_dual)
    plan = _plan(shape, order, offset)
    made = ScalarField()
    made._setup(dtype, (), name)
    _declare([made], plan, Layout.AOS, needs_grad, needs_dual)
    return made


def _compute_type(dtype: Any, n: int, m: int, ndim: int) -> Any:
    """The one element type of a matrix field; a list gives one per component."""
    if not isinstance(dtype, (list, tuple)):
        return cook_dtype(dtype)
    assert len(dtype) == n, f"{n} dtypes are expected, got {len(dtype)}"
    rows = dtype if ndim == 2 and isinstance(dtype[0], (list, tuple)) else [[d] for d in dtype]
    for row in rows:
        assert len(row) == m, f"{m} dtypes per row are expected, got {len(row)}"
    kinds = {cook_dtype(d) for row in rows for d in row}
    if len(kinds) != 1:
        raise QuadrantsRuntimeError(
            "Member fields of a matrix field must have the same compute type"
        )
    return kinds.pop()


def create_matrix_field(
    n: int,
    m: int,
    ndim: int,
    dtype: Any,
    shape: Any,
    order: str | None,
    name: str,
    offset: Any,
    needs_grad: bool,
    needs_dual: bool,
    layout: Layout,
) -> MatrixField:
    """What `Vector.field` (ndim 1) and `Matrix.field` make."""
    kind = _compute_type(dtype, n, m, ndim)
    _check_runtime()
    _check_companions(kind, needs_grad, needs_dual)
    plan = _plan(shape, order, offset)
    made = MatrixField()
    made._setup(kind, (n,) if ndim == 1 else (n, m), name)
    made._describe()
    _declare([made], plan, layout, needs_grad, needs_dual)
    return made


def create_struct_field(
    members: dict[str, Any],
    methods: dict[str, Any] | None = None,
    shape: Any = None,
    name: str = "<Struct>",
    offset: Any = None,
    needs_grad: bool = False,
    needs_dual: bool = False,
    layout: Layout = Layout.AOS,
    *,
    groups: dict[str, Any] | None = None,
) -> StructField:
    """What `Struct.field` and `StructType.field` make."""
    _check_runtime()
    plan = _plan(shape, None, offset)
    made = _struct_of(members, methods or {}, name, groups or {})
    _declare(list(made._leaves()), plan, layout, needs_grad, needs_dual)
    return made


def _struct_of(
    members: dict[str, Any], methods: dict[str, Any], name: str, groups: dict[str, Any]
) -> StructField:
    """A struct field whose leaves are declared but not placed."""
    fields: dict[str, Any] = {}
    for key, kind in members.items():
        label = f"{name}.{key}"
        if isinstance(kind, StructType):
            fields[key] = _struct_of(kind.members, kind.methods, label, kind._unpacked_groups)
        elif isinstance(kind, MatrixType):
            fields[key] = MatrixField()
            fields[key]._setup(kind.dtype, kind.get_shape(), label)
            fields[key]._describe()
        else:
            fields[key] = ScalarField()
            fields[key]._setup(cook_dtype(kind), (), label)
    return StructField(fields, methods, name, groups=groups)


__all__ = [
    "BitpackedFields",
    "Field",
    "Matrix",
    "MatrixField",
    "ScalarField",
    "StructField",
    "create_matrix_field",
    "create_struct_field",
    "field",
    "place_component",
    "place_field",
]
