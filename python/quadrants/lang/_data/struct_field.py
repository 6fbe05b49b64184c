"""Struct fields on the host: member fields by name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from quadrants.lang import impl
from quadrants.lang._data.stored_field import Field, ScalarField
from quadrants.lang.matrix import MatrixType, VectorType
from quadrants.lang.snode import SNode
from quadrants.lang.struct import LiveScalar, StructType, _made, given_members


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
            if not isinstance(member, Field) and not hasattr(member, "grad"):
                raise AttributeError(
                    f"{type(member).__name__!r} object has no attribute 'grad': "
                    f"member {key!r} of a struct field must be a field, got {member!r}"
                )
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
            kind = self.struct_type = self._make_struct_type()
            return kind
        if name == "_snode":
            return self.snode
        if name == "name":
            return self._name
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

    @property
    def _list_node(self) -> Any:
        return self._first()._list_node

    def _leaves(self) -> Iterator[Any]:
        for field in self.field_dict.values():
            if isinstance(field, StructField):
                yield from field._leaves()
            else:
                yield field

    @impl.host_only
    def fill(self, val: Any) -> None:
        """Sets every number of every element."""
        for field in self.field_dict.values():
            field.fill(val)

    @impl.host_only
    def copy_from(self, other: Any) -> None:
        """Copies all members of a struct field with the same member names.

        Raises:
            TypeError: not a field.
            AssertionError: other members.
        """
        if not isinstance(other, Field):
            raise TypeError("Cannot copy from a non-field object")
        same = isinstance(other, StructField) and set(self.keys) == set(other.keys)
        assert same, f"a struct field of {', '.join(self.keys)} is expected, got {other!r}"
        for key, field in self.field_dict.items():
            field.copy_from(other.field_dict[key])

    @impl.host_only
    def to_numpy(self, *, copy: bool | None = True) -> dict[str, Any]:
        """NumPy arrays by member name, nested for nested structs; `copy` as for fields."""
        return {k: f.to_numpy(copy=copy) for k, f in self.field_dict.items()}

    @impl.host_only
    def to_torch(self, device: Any = None, *, copy: bool | None = True) -> dict[str, Any]:
        """Torch tensors by member name, nested for nested structs; `copy` as for fields."""
        return {k: f.to_torch(device=device, copy=copy) for k, f in self.field_dict.items()}

    @impl.host_only
    def from_numpy(self, array_dict: dict[str, Any]) -> None:
        """Sets every member from an array of that name.

        Raises:
            KeyError: a member is missing. Surplus names are ignored.
        """
        for key, field in self.field_dict.items():
            field.from_numpy(array_dict[key])

    @impl.host_only
    def from_torch(self, array_dict: dict[str, Any]) -> None:
        """Sets every member from a tensor of that name."""
        for key, field in self.field_dict.items():
            field.from_torch(array_dict[key])

    def to_dlpack(self, versioned: bool = False) -> Any:
        """Not available: a struct has no single dtype."""
        raise NotImplementedError("A struct field cannot be exported by DLPack; export its members")

    @impl.host_only
    def __getitem__(self, key: Any) -> Any:
        entries: dict[str, Any] = {}
        for name, field in self.field_dict.items():
            if isinstance(field, ScalarField):
                field._check_key(key)
                entries[name] = _live_scalar(field, key)
            else:
                entries[name] = field[key]
        return _made(entries, self.struct_methods, self._groups)

    @impl.host_only
    def __setitem__(self, key: Any, value: Any) -> None:
        members = given_members(value, self.field_dict)
        for name, field in self.field_dict.items():
            member = members[name]
            field[key] = member.get() if isinstance(member, LiveScalar) else member

    def __str__(self) -> str:
        if impl.inside_kernel():
            return repr(self)
        return str(self.to_numpy())

    def __repr__(self) -> str:
        return f"<qd.Struct.field {self._name} of {', '.join(self.keys)}>"


def _live_scalar(field: Any, key: Any) -> LiveScalar:
    def set(value: Any) -> None:
        field[key] = value

    return LiveScalar(lambda: field._load(key, 0), set)  # may be captured by a kernel


def _type_of(field: Field) -> Any:
    shape = field._element_shape
    if not shape:
        return field.dtype
    return (
        VectorType(shape[0], field.dtype) if len(shape) == 1 else MatrixType(*shape, 2, field.dtype)
    )
