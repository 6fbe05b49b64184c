"""Quantised numbers packed in words: bit structs and quant arrays.

A word is an element of a hidden field of unsigned integers, which lies in the cell that the numbers
are placed in. A `Packing` tells where in which word a number is and how its bits are read; what does
so is kernel code, `_library/packed.py`, for the host as well.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

from quadrants._lazy import LazyNumpy
from quadrants.lang.exception import QuadrantsRuntimeError, QuadrantsSyntaxError
from quadrants.lang.snode import SNode
from quadrants.lang.util import to_numpy_type
from quadrants.types.primitive_types import i32, i64, u1, u32, u64
from quadrants.types.quant import QuantFixed, QuantFloat, QuantInt

if TYPE_CHECKING:
    from quadrants.lang._data.fields_builder import FieldsBuilder

np: Any = LazyNumpy(globals())

QUANT_TYPES = (QuantInt, QuantFixed, QuantFloat)
PACKED = ("bit_struct", "quant_array")
_WORDS = (8, 16, 32, 64)


def checked_word(bits: Any) -> int:
    """The size of a word."""
    if bits not in _WORDS:
        raise QuadrantsRuntimeError(
            f"No primitive int type has {bits} bits; a word has 8, 16, 32 or 64"
        )
    return int(bits)


def _bits_of(quant: Any) -> int:
    return quant.bits if isinstance(quant, QuantInt) else quant.digits.bits


class BitpackedFields:
    """Quantised fields that share the bits of one word per cell.

    Args:
        max_num_bits: size of the word: 8, 16, 32 or 64.

    Raises:
        RuntimeError: another size.
    """

    def __init__(self, max_num_bits: int) -> None:
        self._word_bits = checked_word(max_num_bits)
        self._used = 0
        # (field, component, first bit, first bit of its exponent, number of its group) each.
        self._members: list[tuple[Any, int, int, int, int]] = []
        self._groups = 0
        self._companions: list[Any] = []  # gradients of members are not packed

    def place(self, *args: Any, shared_exponent: bool = False) -> None:
        """Adds fields; the components of a vector or matrix follow each other.

        Args:
            *args: fields of quantised types.
            shared_exponent: the floats given here have one exponent, that of the largest.

        Raises:
            RuntimeError: a field of another type, or one placed before; too many bits; floats of
                different exponents that share one.
            QuadrantsSyntaxError: fewer than two numbers share an exponent.
        """
        components: list[tuple[Any, int]] = []
        for field in args:
            if getattr(field, "_companion_of", None) is not None:
                self._companions.append(field)
                continue
            components += _components_of(field)
        if shared_exponent and len(components) < 2:
            raise QuadrantsSyntaxError(
                "At least 2 fields need to be placed when shared_exponent=True"
            )
        known = {(id(field), c) for field, c, *_ in self._members}
        if any((id(field), c) in known or field._places[c] for field, c in components):
            raise RuntimeError("This variable has been placed.")
        quants = [field._quants[c] for field, c in components]
        self._used = self._check(quants, shared_exponent)
        self._append(components, quants, shared_exponent)

    def _check(self, quants: list[Any], shared: bool) -> int:
        """The bits that are used then."""
        if shared and not all(isinstance(quant, QuantFloat) for quant in quants):
            raise QuadrantsRuntimeError("Only quantised floats can share an exponent")
        if shared and len({(quant.exponent, quant.compute) for quant in quants}) > 1:
            raise QuadrantsRuntimeError(
                "QuantFloatTypes with shared exponents must have exactly the same exponent type."
            )
        used = self._used + sum(_bits_of(quant) for quant in quants)
        exponents = [quant.exponent.bits for quant in quants if isinstance(quant, QuantFloat)]
        used += sum(exponents[:1] if shared else exponents)
        if used > self._word_bits:
            raise QuadrantsRuntimeError(
                f"BitStructType overflows: {used} bits used out of {self._word_bits}."
            )
        return used

    def _append(self, components: list[tuple[Any, int]], quants: list[Any], shared: bool) -> None:
        at = sum(_bits_of(f._quants[c]) for f, c, *_ in self._members)
        at += sum(
            {e: f._quants[c].exponent.bits for f, c, _, e, _ in self._members if e >= 0}.values()
        )
        self._groups += shared
        common = at
        if shared:
            at += quants[0].exponent.bits
        for (field, component), quant in zip(components, quants):
            exponent = -1
            if isinstance(quant, QuantFloat):
                exponent = common if shared else at
                at += 0 if shared else quant.exponent.bits
            group = self._groups if shared else 0
            self._members.append((field, component, at, exponent, group))
            at += _bits_of(quant)

    def _place_in(self, node: SNode, offset: Any) -> None:
        """Makes the word a part of the node's cells."""
        from quadrants.lang.field import place_component, place_field

        for field, component, *_ in self._members:
            if field._places[component] is not None:
                raise RuntimeError("This variable has been placed.")
        if self._members:
            struct = node._add("bit_struct", (), ())
            struct._word_bits = self._word_bits
            for field, component, shift, exponent, group in self._members:
                place_component(struct, field, component, offset)
                struct._children[-1]._bits = shift, exponent, group
        for field in self._companions:
            place_field(node, field, offset)


def _components_of(field: Any) -> list[tuple[Any, int]]:
    """Components of quantised fields, each of the whole field that it belongs to."""
    from quadrants.lang._data.stored_field import Field
    from quadrants.lang._data.struct_field import StructField

    if isinstance(field, StructField):
        return [c for member in field.field_dict.values() for c in _components_of(member)]
    if not isinstance(field, Field):
        raise ValueError(f"{field} cannot be placed")
    if field._quants is None:
        raise QuadrantsRuntimeError("Only a QuantType can be a member of a BitStructType.")
    if field._component_of is not None:
        return [field._component_of]
    return [(field, c) for c in range(len(field._places))]


def check_place(node: SNode, field: Any, component: int) -> None:
    """Quantised numbers lie in bit structs and quant arrays, and nothing else does."""
    quant = None if field._quants is None else field._quants[component]
    if quant is None or field._companion_of is not None:
        if node._kind in PACKED:
            raise QuadrantsRuntimeError("Only a QuantType can be a member of a quant array.")
        return
    if node._kind not in PACKED:
        raise QuadrantsRuntimeError(
            f"Field {field._name} of a quantised type lies in a word: place it in qd.BitpackedFields "
            "or a quant_array"
        )
    if node._kind == "quant_array":
        if isinstance(quant, QuantFloat):
            raise QuadrantsRuntimeError("Quant array only supports quant int/fixed type for now.")
        if node._children:
            raise QuadrantsRuntimeError("A quant array has one field, of numbers")
        needed = prod(node._dims) * _bits_of(quant)
        if needed > node._word_bits:
            raise QuadrantsRuntimeError(
                f"The quant array needs {needed} bits, but its word has {node._word_bits}."
            )


class Packing:
    """How one component of a field is packed; read by kernel code."""

    def __init__(self, place: SNode, word: Any) -> None:
        node = place._up
        assert node is not None
        quant = place._field._quants[place._component]
        self.word = word
        wide = node._word_bits == 64
        self.word_bits = 64 if wide else 32
        self.unsigned, self.signed = (u64, i64) if wide else (u32, i32)
        self.compute = quant.compute
        self.kind = {QuantInt: "int", QuantFixed: "fixed", QuantFloat: "float"}[type(quant)]
        digits = quant if isinstance(quant, QuantInt) else quant.digits
        self.bits = digits.bits
        self.mask = (1 << self.bits) - 1
        self.has_sign = digits.signed
        self.scale = getattr(quant, "scale", 1.0)
        self.shift, self.exponent_shift, self.group = place._bits
        self.exponent_bits = quant.exponent.bits if self.kind == "float" else 0
        self.bias = (1 << self.exponent_bits >> 1) - 1
        self.magnitude_bits = self.bits - self.has_sign
        self.shared: tuple[Packing, ...] = ()  # those of one exponent, this one included
        self._find_words(place, node)

    def _find_words(self, place: SNode, node: SNode) -> None:
        axes = place._axis_numbers()
        offset = place._index_offset or (0,) * len(axes)
        assert node._up is not None
        own = dict(zip(node._axes, node._dims))  # of a quant array
        # The word's index, per axis of the cells: (axis of the element, offset, elements per word).
        self.steps = tuple(
            (axes.index(a), offset[axes.index(a)], own.get(a, 1)) for a in node._up._axis_numbers()
        )
        # Where the number is in the word: (axis, offset, extent, bits between neighbours).
        self.slots = tuple(
            (axes.index(a), offset[axes.index(a)], own[a], prod(node._dims[k + 1 :]) * self.bits)
            for k, a in enumerate(node._axes)
        )

    def __repr__(self) -> str:
        return f"<packing of {self.kind} in {self.word._name}>"


def add_words(
    builder: FieldsBuilder, nodes: list[SNode], rows: list[Any], fields: list[Any]
) -> None:
    """Adds the hidden fields of words to the rows of `core.make_tree`."""
    from quadrants.lang._data.stored_field import ScalarField

    numbers = {id(node): n for n, node in enumerate(nodes)}
    for node in [node for node in nodes if node._kind in PACKED]:
        assert node._up is not None
        word = ScalarField()
        word._setup(u64 if node._word_bits == 64 else u32, (), f"S{node._id}.word")
        place = SNode(builder, "place", None)
        place._up = node._up
        place._field = word
        place._is_word = True
        rows.append((numbers[id(node._up)], word._dtype.id, (), ()))
        nodes.append(place)
        word._set_place(0, place)
        word._placed()
        fields.append(word)
        groups: dict[int, list[Packing]] = {}
        for child in node._children:
            packing = Packing(child, word)
            child._field._packings[child._component] = packing
            if packing.group:
                groups.setdefault(packing.group, []).append(packing)
        for group in groups.values():
            for packing in group:
                packing.shared = tuple(group)


# --- on the host ---


def _array(dtype: Any, numbers: Any) -> Any:
    return np.array(numbers, to_numpy_type(dtype))


def read(field: Any, key: Any) -> Any:
    """The number at an index."""
    from quadrants._library import packed

    out = _array(field._dtype, [0])
    packed.read(field, _array(i32, _index(key)), out)
    number = out[0].item()
    return int(number) if field._dtype is u1 else number


def write(field: Any, key: Any, value: Any) -> None:
    """Stores a number at an index."""
    from quadrants._library import packed
    from quadrants.lang._data.convert import number_as

    packed.write(
        field, _array(i32, _index(key)), _array(field._dtype, [number_as(field._dtype, value)])
    )


def _index(key: Any) -> list[int]:
    """At least one number: what a 0-dimensional field ignores."""
    if key is None or key == ():
        return [0]
    return [
        n.__index__() for n in (key if hasattr(key, "__iter__") else (key,)) if n is not None
    ] or [0]


def to_array(field: Any) -> Any:
    """The numbers of a scalar field as a new array."""
    from quadrants._library import packed

    out = np.zeros(field.shape, to_numpy_type(field._dtype))
    if not field.shape:
        out[()] = read(field, None)
        return out
    packed.export(field, out)
    return out


def from_array(field: Any, array: Any) -> None:
    """Stores an array of a scalar field's shape, or a number, cast to its type."""
    from quadrants._library import packed

    with np.errstate(all="ignore"):
        array = np.asarray(array).astype(to_numpy_type(field._dtype))
    if not field.shape:
        write(field, None, array.item())
        return
    packed.load_array(field, np.ascontiguousarray(np.broadcast_to(array, field.shape)))
