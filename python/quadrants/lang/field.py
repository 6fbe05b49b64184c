"""Making fields: factories and placement in trees. The classes are re-exported from here."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from quadrants._lazy import lazy_names
from quadrants._lib import core
from quadrants._lib.core import Layout
from quadrants.lang import impl
from quadrants.lang._data.packing import QUANT_TYPES, BitpackedFields
from quadrants.lang._data.stored_field import Field, MatrixField, ScalarField
from quadrants.lang._data.struct_field import StructField
from quadrants.lang.exception import QuadrantsRuntimeError, QuadrantsSyntaxError
from quadrants.lang.matrix import MatrixType
from quadrants.lang.snode import SNode, changes, checked_extent, checked_offset
from quadrants.lang.struct import StructType, check_whole
from quadrants.lang.util import check_element_shape, cook_dtype, is_one_index

if TYPE_CHECKING:
    from quadrants.lang._data.fields_builder import FieldsBuilder

__getattr__, __dir__ = lazy_names(
    __name__, globals(), {"_DLPackV1Adapter": "quadrants._compat.dlpack:DLPackV1Adapter"}
)
_TORCH_MPS_SUPPORTS_DLPACK_BYTES_OFFSET = False  # no Metal backend yet


def _caller() -> str:
    """Where user code stands, for messages about a declaration."""
    frame: Any = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("quadrants."):
        frame = frame.f_back
    return f'  File "{frame.f_code.co_filename}", line {frame.f_lineno}, in {frame.f_code.co_name}'


# --- placing ---


def place_field(node: SNode, field: Any, offset: Any) -> None:
    """Puts every component of a field into a node."""
    if isinstance(field, BitpackedFields):
        return field._place_in(node, offset)
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


Group = list[tuple[Any, int]]  # components of fields that share the cells of one node


def _group(fields: Iterable[Any]) -> Group:
    return [(field, c) for field in fields for c in range(len(field._places))]


class Plan:
    """Shape, memory order and offset of fields that are declared with a shape."""

    def __init__(self, shape: Any, order: str | None, offset: Any) -> None:
        if is_one_index(shape) or not isinstance(shape, Iterable):
            shape = (shape,)
        self.shape = tuple(checked_extent(extent) for extent in shape)
        rank = len(self.shape)
        if rank > core.get_max_num_indices():
            raise RuntimeError("Too many dimensions. The maximum dimensionality is 12")
        self.offset = checked_offset(offset, self.shape)
        self.order = None if order is None else _axes_of_order(order, rank)
        count = 1
        for extent in self.shape:
            count *= extent
        if count > 2**31:
            from quadrants import _logging

            _logging.warn(f"A field of {count} elements exceeds the range of int32 indices")

    def new_node(self, top: SNode) -> SNode:
        """A container of this shape below a root."""
        extents = self.shape
        if self.order is not None:
            extents = tuple(self.shape[axis] for axis in self.order)
        return top._add("dense", range(len(extents)), extents, permuted=self.order is not None)

    def place(self, groups: list[Group], top: SNode) -> None:
        """Puts every group into a node of its own."""
        for group in groups:
            node = self.new_node(top)
            for field, component in group:
                field._order = self.order
                place_component(node, field, component, self.offset)


def _axes_of_order(order: str, rank: int) -> tuple[int, ...]:
    if isinstance(order, (list, tuple)) and all(isinstance(letter, str) for letter in order):
        order = "".join(order)
    if not isinstance(order, str):
        raise TypeError(f"an order is a string of axes such as 'ji', got {order!r}")
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


def _declare(groups: list[Group], plan: Plan | None, needs_grad: bool, needs_dual: bool) -> None:
    """Places fields and their companions, or notes that the user will."""
    from quadrants.lang._data.fields_builder import (
        FieldsBuilder,
        adopt,
        declare_unplaced,
        declare_wanting,
        end_declaration,
    )

    wanted = [w for w, needed in (("grad", needs_grad), ("dual", needs_dual)) if needed]
    if plan is None:
        for field in {id(field): field for group in groups for field, _ in group}.values():
            field._declared_at = _caller()
            declare_unplaced(field)
            for which in wanted:
                if field.dtype.is_real:
                    declare_wanting(which, field)
        return
    part = FieldsBuilder(_is_default=True)  # of which others see nothing before it is whole
    _place_in(part, groups, plan, wanted)
    with core.declaring:
        adopt(part)
    end_declaration()


@changes
def _place_in(part: FieldsBuilder, groups: list[Group], plan: Plan, wanted: list[str]) -> None:
    plan.place(groups, part._root)
    for which in wanted:
        companions = [[(getattr(f, which), c) for f, c in g if f.dtype.is_real] for g in groups]
        plan.place([group for group in companions if group], part._root)


# --- factories ---


def _check_runtime() -> None:
    impl.check_initialised()


def _python_array(dtype: Any, element_shape: tuple[int, ...], shape: Any) -> Any:
    from quadrants.lang._python_backend import create_array

    return create_array(dtype, element_shape, shape)


@impl.host_only
def field(
    dtype: Any,
    shape: Any = None,
    order: str | None = None,
    name: str = "",
    offset: Any = None,
    needs_grad: bool = False,
    needs_dual: bool = False,
    *more: Any,
    **options: Any,
) -> Any:
    """A field: numbers at every point of a grid, for kernels and the host.

    Args:
        dtype: element type; a vector or matrix type makes a matrix field.
        shape: extents, `()` for a single element; None to place the field in a tree later.
        order: nesting of the axes in memory, outermost first, such as "ji".
        name: for messages.
        offset: index of the first element, one integer per axis.
        needs_grad: give the gradient storage.
        needs_dual: give the dual storage.
        more, options: of a vector or matrix type, what else `Vector.field` and `Matrix.field` take: `layout`,
            and `ndim` of matrices.

    Returns:
        A `ScalarField` or `MatrixField`, zeroed at the first use of any field.

    Raises:
        ValueError: `dtype` is no element type.
        TypeError: an extent or offset is no integer, or an extent is above 2**31 - 1.
        QuadrantsRuntimeError: an extent below 1, a companion of an integer field, or no `qd.init`.
        QuadrantsSyntaxError: `order` or `offset` without a shape or of another rank.
    """
    most = 9 if isinstance(dtype, MatrixType) else 7
    if 7 + len(more) > most:
        raise TypeError(
            f"field() takes from 1 to {most} positional arguments but {7 + len(more)} were given"
        )
    if isinstance(dtype, MatrixType):
        options.update(zip(("layout", "ndim"), more, strict=False))
        return dtype.field(
            shape=shape,
            order=order,
            name=name,
            offset=offset,
            needs_grad=needs_grad,
            needs_dual=needs_dual,
            **options,
        )
    for option in options:
        raise TypeError(f"field() got an unexpected keyword argument '{option}'")
    given, dtype = dtype, _element_type(dtype)
    if impl.is_python_backend():
        return _python_array(dtype, (), shape)
    _check_runtime()
    _check_companions(dtype, needs_grad, needs_dual)
    plan = _plan(shape, order, offset)
    made = ScalarField()
    made._setup(dtype, (), name)
    made._quantise(_quants_of([given]))
    _declare([_group([made])], plan, needs_grad, needs_dual)
    return made


def _element_type(dtype: Any) -> Any:
    """The type of an element in kernels."""
    return dtype.compute if isinstance(dtype, QUANT_TYPES) else cook_dtype(dtype)


def _quants_of(dtypes: list[Any]) -> list[Any] | None:
    """The dtypes of components if they are quantised; None if they are ordinary ones."""
    quantised = [isinstance(dtype, QUANT_TYPES) for dtype in dtypes]
    if any(quantised) and not all(quantised):
        raise QuadrantsRuntimeError("The components of a field are all quantised, or none is")
    return dtypes if any(quantised) else None


def _component_types(dtype: Any, n: int, m: int, ndim: int) -> list[Any]:
    """The element type of each component of a matrix field; a list gives one per component."""
    if not isinstance(dtype, (list, tuple)):
        return [dtype] * (n * m)
    assert len(dtype) == n, f"{n} dtypes are expected, got {len(dtype)}"
    rows = dtype if ndim == 2 and isinstance(dtype[0], (list, tuple)) else [[d] for d in dtype]
    for row in rows:
        assert len(row) == m, f"{m} dtypes per row are expected, got {len(row)}"
    return [d for row in rows for d in row]


def _compute_type(dtypes: list[Any]) -> Any:
    kinds = {_element_type(d) for d in dtypes}
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
    shape_of_one = (n,) if ndim == 1 else (n, m)
    if None in shape_of_one:
        raise TypeError(f"n and m of a field's elements are ints, got {shape_of_one}")
    check_element_shape(*shape_of_one)
    dtypes = _component_types(dtype, n, m, ndim)
    if not impl.is_python_backend():
        for one in map(_element_type, dtypes):
            _check_companions(one, needs_grad, needs_dual)
    kind = _compute_type(dtypes)
    if impl.is_python_backend():
        return _python_array(kind, shape_of_one, shape)
    _check_runtime()
    plan = _plan(shape, order, offset)
    made = MatrixField()
    made._setup(kind, shape_of_one, name)
    made._describe()
    made._quantise(_quants_of(dtypes))
    cell = _group([made])
    groups = [[place] for place in cell] if layout == Layout.SOA else [cell]
    _declare(groups, plan, needs_grad, needs_dual)
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
    if impl.is_python_backend():
        from quadrants.lang._python_backend import create_struct

        return create_struct(members, methods, groups, shape)  # type: ignore[return-value]
    _check_runtime()
    plan = _plan(shape, None, offset)
    made = _struct_of(members, methods or {}, name, groups or {})
    for leaf in made._leaves():
        _check_companions(leaf.dtype, needs_grad, needs_dual)
    apart = made.field_dict.values() if layout == Layout.SOA else [made]
    _declare([_group(_leaves(m)) for m in apart], plan, needs_grad, needs_dual)
    return made


def _leaves(member: Any) -> Iterable[Any]:
    return member._leaves() if isinstance(member, StructField) else [member]


def _struct_of(
    members: dict[str, Any], methods: dict[str, Any], name: str, groups: dict[str, Any]
) -> StructField:
    """A struct field whose leaves are declared but not placed."""
    fields: dict[str, Any] = {}
    for key, kind in members.items():
        label = f"{name}.{key}"
        check_whole(key, kind)
        if isinstance(kind, StructType):
            fields[key] = _struct_of(kind.members, kind.methods, label, kind._unpacked_groups)
        elif isinstance(kind, MatrixType):
            fields[key] = MatrixField()
            fields[key]._setup(kind.dtype, kind.get_shape(), label)
            fields[key]._describe()
            size = len(fields[key]._places)
            fields[key]._quantise(_quants_of([kind._declared] * size))
        else:
            fields[key] = ScalarField()
            fields[key]._setup(_element_type(kind), (), label)
            fields[key]._quantise(_quants_of([kind]))
    return StructField(fields, methods, name, groups=groups)


__all__ = [
    "BitpackedFields",
    "Field",
    "MatrixField",
    "ScalarField",
    "StructField",
    "create_matrix_field",
    "create_struct_field",
    "field",
    "place_component",
    "place_field",
]
