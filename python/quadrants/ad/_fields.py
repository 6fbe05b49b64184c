"""The fields that have storage, all together: found, saved, restored and cleared.

Each operation is one wait for launches, whatever the number of fields.
"""

from __future__ import annotations

from typing import Any

from quadrants._lazy import LazyNumpy
from quadrants._lib import core
from quadrants._lib.core import SNodeGradType
from quadrants.lang import impl
from quadrants.lang._data import convert
from quadrants.lang._data.fields_builder import FieldsBuilder
from quadrants.lang.field import field as make_field
from quadrants.types.primitive_types import u8

np: Any = LazyNumpy(globals())


def stored_fields(kind: Any = SNodeGradType.PRIMAL) -> list[Any]:
    """Scalar and matrix fields of one kind in all finalised trees."""
    return [
        field
        for root in FieldsBuilder._finalized_roots()
        for field in _fields_of(root).get(kind, ())
        if field._has_storage  # else its tree was destroyed
    ]


def _fields_of(root: Any) -> dict[Any, list[Any]]:
    """The fields of a tree by kind; kept, since finalised trees do not change."""
    kept: dict[Any, list[Any]] | None = root.__dict__.get("_fields_by_kind")
    if kept is None:
        kept = {}
        for field in {id(field): field for field in root._fields()}.values():
            if field._is_placed():
                kept.setdefault(_kind_of(field), []).append(field)
        root._fields_by_kind = kept
    return kept


def _kind_of(field: Any) -> Any:
    primal = field._companion_of
    if primal is None:
        return SNodeGradType.PRIMAL
    is_grad = primal.__dict__.get("grad") is field
    return SNodeGradType.ADJOINT if is_grad else SNodeGradType.DUAL


def save(fields: list[Any]) -> list[Any]:
    """A copy of the elements of each field."""
    arrays, copies = [], []
    for field in fields:
        places = convert._places(field, field._element_shape)
        array, parts = convert._read(places, field.dtype, field.shape, field._element_shape)
        arrays.append(array)
        copies += parts
    core.copy_alone(copies)
    return arrays


def restore(fields: list[Any], arrays: list[Any]) -> None:
    """Sets the elements of each field from an array or to a number, cast to its dtype."""
    copies = []
    for field, array in zip(fields, arrays):
        copies += convert._written(convert._places(field, field._element_shape), array)
    core.copy_alone(copies)


@impl.host_only
def clear_all_gradients(gradient_type: SNodeGradType = SNodeGradType.ADJOINT) -> None:
    """Sets the gradients of all fields that have storage to zero. Those of arrays stay.

    Args:
        gradient_type: which: adjoints (`x.grad`), duals (`x.dual`), or the primal values themselves.

    Raises:
        QuadrantsRuntimeError: there is no runtime, or a declared field cannot become storage.
        TypeError: not a member of `SNodeGradType`.
    """
    if not isinstance(gradient_type, SNodeGradType):
        raise TypeError(f"a member of SNodeGradType is expected, got {gradient_type!r}")
    impl.check_initialised()
    impl.get_runtime().materialize()
    if gradient_type is SNodeGradType.ADJOINT_CHECKBIT:
        marks = [f._checkbit for f in stored_fields() if f._checkbit is not None]
        restore(marks, [0] * len(marks))
        return
    fields = stored_fields(gradient_type)
    restore(fields, [0] * len(fields))
    _count(fields, f"clear {gradient_type.name}")


def _count(fields: list[Any], operation: str) -> None:
    """Counts a kernel for each container that has any of the places; see `convert.count_kernel`."""
    done = impl.get_runtime().conversions
    for field in fields:
        for place in field._places:
            above = place._up
            key = (place if above._kind == "root" else above)._id, operation
            if key not in done:
                done.add(key)
                field._note_conversion(operation)


def make_checkbits() -> None:
    """Gives every field that has a gradient marks of which cells kernels read (debug=True)."""
    impl.get_runtime().materialize()
    for field in stored_fields():
        if field._checkbit is None and field.has_grad():
            field._checkbit = make_field(
                u8, field.shape, name=f"{field._name}.checkbit", offset=field._index_offset or None
            )
