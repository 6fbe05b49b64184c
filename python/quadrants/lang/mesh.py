"""Meshes of triangles and tetrahedra, which kernels walk by their incidence relations.

An element is its original number. The patches of the metadata give the order in which loops visit
the elements; relations are stored for the whole mesh, as the rows of each element in its own patch.
PYTEST_DONT_REWRITE (its imports would show in `dir`)
"""

from __future__ import annotations

import json as _json
from typing import Any as _Any

from quadrants._lazy import LazyNumpy as _LazyNumpy
from quadrants.lang.exception import QuadrantsRuntimeError as _QuadrantsRuntimeError
from quadrants.lang.exception import QuadrantsSyntaxError as _QuadrantsSyntaxError
from quadrants.lang.exception import QuadrantsTypeError as _QuadrantsTypeError

_np: _Any = _LazyNumpy({})
_ORDERS = ("verts", "edges", "faces", "cells")
# How many elements of the second order one of the first has.
_ARITIES = {(1, 0): 2, (2, 0): 3, (2, 1): 3, (3, 0): 4, (3, 1): 6, (3, 2): 4}


class MeshMetadata:
    """The elements and relations of a mesh.

    Args:
        data: what a metadata file holds.

    Raises:
        KeyError: a part is missing.
        ValueError: parts do not fit each other.
    """

    def __init__(self, data: dict[str, _Any]) -> None:
        self.num_patches = int(data["num_patches"])
        self.attrs = data.get("attrs", {})
        self.num_elements: dict[int, int] = {}
        self._total: dict[int, _Any] = {}
        self._ids: dict[int, _Any] = {}
        self._slots: dict[int, _Any] = {}
        for element in data["elements"]:
            self._take_elements(element)
        self._relations = {}
        for relation in data["relations"]:
            ends = _order(relation["from_order"]), _order(relation["to_order"])
            if not self.num_elements.keys() >= {*ends}:
                raise ValueError(f"a relation of orders {ends}, of which one has no elements")
            self._relations[ends] = self._rows(ends, relation)

    def _take_elements(self, element: dict[str, _Any]) -> None:
        order, num = _order(element["order"]), int(element["num"])
        what = f"the metadata of {_ORDERS[order]}"
        owned, total = (_numbers(element[k], what) for k in ("owned_offsets", "total_offsets"))
        ids = _numbers(element["l2g_mapping"], what)
        for offsets, last in ((owned, num), (total, len(ids))):
            if len(offsets) != self.num_patches + 1 or offsets[0] != 0 or offsets[-1] != last:
                raise ValueError(
                    f"{what}: {self.num_patches} patches need {self.num_patches + 1} offsets, "
                    f"from 0 to {last}"
                )
        counts = _np.diff(owned)
        if (counts < 0).any() or (counts > _np.diff(total)).any():
            raise ValueError(f"{what}: a patch owns from none to all of its elements")
        slots = _np.repeat(total[:-1] - owned[:-1], counts) + _np.arange(num)
        if not _np.array_equal(_np.sort(ids[slots]), _np.arange(num)):
            raise ValueError(f"{what}: each element belongs to one patch")
        if len(ids) and (ids.min() < 0 or ids.max() >= num):
            raise ValueError(f"{what}: l2g_mapping names elements that do not exist")
        self.num_elements[order] = num
        self._total[order], self._ids[order], self._slots[order] = total, ids, slots

    def _owner(self, order: int) -> _Any:
        """The patch of each owned element, in the order of patches."""
        return _np.searchsorted(self._total[order], self._slots[order], side="right") - 1

    def _rows(self, ends: tuple[int, int], relation: dict[str, _Any]) -> tuple[_Any, _Any]:
        """By original number of the first end: where its row begins (None if all rows have one
        length), and the original numbers of the second end."""
        order, to = ends
        what = f"the relation from {_ORDERS[order]} to {_ORDERS[to]}"
        values = _numbers(relation["value"], what)
        owner, slots = self._owner(order), self._slots[order]
        if ends in _ARITIES:
            first = slots * _ARITIES[ends]
            length = _np.full(len(slots), _ARITIES[ends])
        else:
            offset = _numbers(relation["offset"], what)
            base = _numbers(relation["patch_offset"], what)
            if len(base) < self.num_patches or len(offset) < len(slots) + self.num_patches:
                raise ValueError(f"{what}: a patch has a base and, behind its last row, an offset")
            at = _np.arange(len(slots)) + owner
            first, length = base[owner] + offset[at], offset[at + 1] - offset[at]
        ids = self._ids[order][slots]
        rows = _np.empty(len(ids), _np.int64)
        rows[ids] = _np.arange(len(ids))  # the row of an original number
        owner, first, length = owner[rows], first[rows], length[rows]
        begin = _np.zeros(len(ids) + 1, _np.int64)
        if (length < 0).any():
            raise ValueError(f"{what}: a row has less than no elements")
        _np.cumsum(length, out=begin[1:])
        places = _np.repeat(first - begin[:-1], length) + _np.arange(begin[-1])
        if len(places) and (places.min() < 0 or places.max() >= len(values)):
            raise ValueError(f"{what}: rows lie beyond the {len(values)} values")
        local = values[places]
        patch = _np.repeat(owner, length)
        if (local < 0).any() or (local >= _np.diff(self._total[to])[patch]).any():
            raise ValueError(f"{what}: a value is not the number of an element in its patch")
        targets = self._ids[to][self._total[to][patch] + local]
        return (None if ends in _ARITIES else begin), targets


def _order(given: _Any) -> int:
    if given not in range(4):
        raise ValueError(f"the order of elements is 0 to 3, got {given!r}")
    return int(given)


def _numbers(given: _Any, what: str) -> _Any:
    numbers = _np.asarray(given)
    if numbers.size and numbers.dtype.kind not in "iu":
        raise ValueError(f"{what} holds integers, not {numbers.dtype}")
    return numbers.astype(_np.int64).ravel()


class Mesh:
    """Reads the metadata of meshes."""

    @staticmethod
    def load_meta(filename: str) -> MeshMetadata:
        """From a file.

        Args:
            filename: path of a JSON file.

        Returns:
            What builders take.

        Raises:
            OSError: the file can't be read.
            KeyError: a part is missing.
            ValueError: not JSON, or parts do not fit each other.
        """
        with open(filename, encoding="utf-8") as file:
            return MeshMetadata(_json.load(file))

    @staticmethod
    def generate_meta(data: dict[str, _Any]) -> MeshMetadata:
        """From what such a file holds.

        Args:
            data: lists, or arrays, by name.

        Returns:
            What builders take.

        Raises:
            KeyError: a part is missing.
            ValueError: parts do not fit each other.
        """
        return MeshMetadata(data)


class MeshRelation:
    """Which elements of one order lie at one of another: a row of numbers each.

    Kernels reach it as a member of an element.
    """

    def __init__(self, name: str, size: int | None, begin: _Any, targets: _Any, to: _Any) -> None:
        self._name, self._size, self._begin, self._targets, self._to = (
            name,
            size,
            begin,
            targets,
            to,
        )

    def __repr__(self) -> str:
        return f"<relation from {self._name}>"


class MeshElementField:
    """The elements of one order of a mesh: their attributes are fields, which original numbers
    address. `len` gives their number; kernels loop over them.
    """

    def __init__(self, name: str, count: int, fields: dict[str, _Any]) -> None:
        self._name, self._count, self.field_dict = name, count, fields
        self._order = self._patch = None  # fields; None: the identity, and zeros
        self._names = tuple(fields)  # and those of relations
        self.__dict__.update(fields)

    @property
    def keys(self) -> list[str]:
        """Names of the attributes."""
        return list(self.field_dict)

    def get_member_field(self, key: str) -> _Any:
        """The field of one attribute."""
        return self.field_dict[key]

    def __len__(self) -> int:
        return self._count

    def __repr__(self) -> str:
        return f"<{self._count} {self._name} of a mesh: {', '.join(self.field_dict) or 'no attributes'}>"


class MeshInstance:
    """A mesh: `verts`, `edges`, `faces` and `cells`, made by a builder."""

    verts: MeshElementField
    edges: MeshElementField
    faces: MeshElementField
    cells: MeshElementField

    def __init__(self, metadata: MeshMetadata, elements: dict[str, MeshElementField]) -> None:
        self._metadata = metadata
        self.__dict__.update(elements)

    def get_position_as_numpy(self) -> _Any:
        """Positions of the vertices as the metadata has them.

        Returns:
            f64 array of shape (vertices, 3).

        Raises:
            KeyError: the metadata has no `attrs.x`.
        """
        return _np.array(self._metadata.attrs["x"], dtype=_np.float64).reshape(-1, 3)


class MeshElementBuilder:
    """The elements of one order, before they are built."""

    def __init__(self) -> None:
        self._members: dict[str, tuple[_Any, bool]] = {}

    def place(
        self, members: dict[str, _Any], reorder: bool = False, needs_grad: bool = False
    ) -> None:
        """Gives the elements attributes.

        Args:
            members: types by name: dtypes, vectors, matrices or structs.
            reorder: a hint that neighbours should lie near each other; numbers do not change.
            needs_grad: attributes of floats have gradients.

        Raises:
            QuadrantsTypeError: not a dict.
            QuadrantsSyntaxError: a name that a mesh has itself.
        """
        if not isinstance(members, dict):
            raise _QuadrantsTypeError(f"place takes a dict of types by name, not {members!r}")
        for name in members:
            own = name in (*_ORDERS, "id") or hasattr(MeshElementField, name)
            if own or name.startswith("_"):
                raise _QuadrantsSyntaxError(
                    f"'{name}' cannot use as attribute name. "
                    "It has been reserved as MeshQuadrants's keyword."
                )
        self._members |= {name: (kind, needs_grad) for name, kind in members.items()}

    def _fields(self, count: int) -> dict[str, _Any]:
        import quadrants as qd

        return {
            name: qd.Struct.field({name: kind}, shape=count, needs_grad=needs_grad).field_dict[name]
            for name, (kind, needs_grad) in self._members.items()
        }


class MeshBuilder:
    """Which attributes the elements of a mesh have: `verts`, `edges`, `faces`, `cells`."""

    def __init__(self) -> None:
        for name in _ORDERS:
            setattr(self, name, MeshElementBuilder())

    def build(self, metadata: MeshMetadata) -> MeshInstance:
        """A mesh with attributes of its own.

        Args:
            metadata: elements and relations.

        Raises:
            QuadrantsTypeError: not metadata.
            QuadrantsRuntimeError: elements that have attributes do not exist.
        """
        import quadrants as qd

        if not isinstance(metadata, MeshMetadata):
            raise _QuadrantsTypeError(
                f"build takes what qd.Mesh.load_meta or generate_meta gives, not {metadata!r}"
            )
        for order, name in enumerate(_ORDERS):
            if not metadata.num_elements.get(order, 0) and getattr(self, name)._members:
                raise _QuadrantsRuntimeError(f"the metadata has no {name}, which have attributes")
        made: dict[int, MeshElementField] = {}
        for order, name in enumerate(_ORDERS):
            count = metadata.num_elements.get(order, 0)
            made[order] = MeshElementField(name, count, getattr(self, name)._fields(count))
        builder = qd.FieldsBuilder()  # behind what may fail: none stays open
        tables: list[tuple[_Any, _Any]] = []

        def table(values: _Any) -> _Any:
            field = qd.field(qd.i32)
            builder.dense(qd.i, max(1, len(values))).place(field)
            tables.append((field, values))
            return field

        for order, count in metadata.num_elements.items():
            if count and metadata.num_patches > 1:
                ids, patch = metadata._ids[order][metadata._slots[order]], metadata._owner(order)
                made[order]._order = table(ids)
                made[order]._patch = table(patch[_np.argsort(ids)])
        for (order, to), (begin, targets) in metadata._relations.items():
            name = f"{_ORDERS[order]} to {_ORDERS[to]}"
            size = _ARITIES.get((order, to))
            first = None if begin is None else table(begin)
            relation = MeshRelation(name, size, first, table(targets), made[to])
            setattr(made[order], _ORDERS[to], relation)
            made[order]._names += (_ORDERS[to],)
        builder.finalize()
        for field, values in tables:
            field.from_numpy(_np.resize(values, field.shape).astype(_np.int32))
        return MeshInstance(metadata, {_ORDERS[k]: e for k, e in made.items()})


_TetMesh = _TriMesh = MeshBuilder


def __dir__() -> list[str]:
    return [n for n in [*globals()] if not n.startswith("_")] + ["_TetMesh", "_TriMesh"]
