"""Host structs, struct types and the `dataclass` decorator.

Each set of member names has a subclass of `Struct` with a property per member, so a member may be
called anything, `keys` included. Members of a struct that stands for a field element are `LiveScalar`s
(numbers) or live vectors; reading and writing them goes to storage.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from quadrants._lazy import lazy_names
from quadrants._lib import core
from quadrants._names import NAMES
from quadrants.lang import impl
from quadrants.lang.exception import QuadrantsSyntaxError
from quadrants.lang.matrix import Matrix, MatrixType, UnpackedVectorType, Vector, _has_symbolic
from quadrants.lang.util import cook_dtype
from quadrants.types.enums import Layout
from quadrants.types.primitive_types import DataType, stable_hash, u1

Group = tuple[int, DataType, Callable[[str, int], str]]  # count, dtype, name of the i-th scalar

# What programs find here, too.
_PUBLIC = "StructField ScalarField Field"
__getattr__, _ = lazy_names(__name__, globals(), {name: NAMES[name] for name in _PUBLIC.split()})


class LiveScalar:
    """A number in storage."""

    def __init__(self, get: Callable[[], Any], set: Callable[[Any], None]) -> None:
        self.get = get
        self.set = set


class UnpackedView:
    """`obj.name` of an unpacked vector: the scalars `_name0`, `_name1`, ... by index."""

    def __init__(self, struct: Struct, name: str, count: int) -> None:
        self._struct, self._name, self._count = struct, name, count

    def _member(self, i: Any) -> str:
        try:
            i = int(operator.index(i))
        except TypeError:
            raise QuadrantsSyntaxError(
                f"unpacked vector {self._name!r} requires a python-int index, got {type(i).__name__}"
            ) from None
        if not 0 <= i < self._count:
            raise QuadrantsSyntaxError(
                f"index {i} is out of bounds for unpacked vector {self._name!r} of {self._count}"
            )
        return scalar_name(self._name, i)

    def __getitem__(self, i: Any) -> Any:
        return self._struct[self._member(i)]

    def __setitem__(self, i: Any, value: Any) -> None:
        self._struct[self._member(i)] = value


def scalar_name(name: str, i: int) -> str:
    """Name of the i-th scalar of an unpacked vector."""
    return f"_{name}{i}"


def _converted(value: Any) -> Any:
    if isinstance(value, dict):
        return Struct(value)
    if isinstance(value, (list, tuple)):
        nested = value and isinstance(value[0], (list, tuple))
        return Matrix(value) if nested else Vector(value)
    return value


class Struct:
    """A struct value on the host: `Struct(a=1, v=[1, 2])` or `Struct({"a": 1})`."""

    _entries: dict[str, Any]

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        members = _members(args, kwargs)
        if any(_has_symbolic(v) for v in members.values()):
            return core.trace_op("Struct", (members,))
        return _made(
            {k: _converted(v) for k, v in members.items()}, members.get("__struct_methods"), {}
        )

    @property
    def entries(self) -> dict[str, Any]:
        return {k: self[k] for k in self._entries}

    @property
    def keys(self) -> list[str]:
        return list(self._entries)

    @property
    def items(self) -> Any:
        return {k: self[k] for k in self._entries}.items()

    @property
    def methods(self) -> dict[str, Any]:
        return type(self)._methods  # type: ignore[attr-defined]

    # A struct is no operand of NumPy's, which would take it for the sequence of its members.
    __array_ufunc__ = None

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Any]:
        return (self[k] for k in self._entries)

    def __getitem__(self, key: str) -> Any:
        value = self._entries[key]
        return value.get() if type(value) is LiveScalar else value

    def __setitem__(self, key: str, value: Any) -> None:
        old = self._entries[key]
        if type(value) is LiveScalar:  # of another struct's members
            value = value.get()
        if impl.is_python_backend() and not isinstance(old, Struct):
            from quadrants.lang._python_backend import set_member

            set_member(self._entries, key, value)
        elif isinstance(old, Matrix):
            old._assign(value)
        elif isinstance(old, Struct):
            Struct._assign(old, value)
        elif isinstance(value, (Struct, Matrix, str, dict, list, tuple)) or not hasattr(
            value, "__float__"
        ):
            raise TypeError("A number is expected when assigning struct members")
        elif type(old) is LiveScalar:
            old.set(value)
        else:
            self._entries[key] = value

    def _assign(self, value: Any) -> None:
        """Member-wise assignment from a struct or dict with all members."""
        for k, member in given_members(value, self._entries).items():
            self[k] = member

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self._entries:
            self[name] = value
        else:
            object.__setattr__(self, name, value)

    def to_dict(self, include_methods: bool = False, include_ndim: bool = False) -> dict[str, Any]:
        """Members as numbers, lists and dicts.

        Args:
            include_methods: add the methods under `__struct_methods`.
            include_ndim: add the rank of vectors and matrices under `__matrix_ndim`.
        """
        ranks = {}
        result: dict[str, Any] = {}
        for k in self._entries:
            v = self[k]
            if isinstance(v, Struct):
                result[k] = Struct.to_dict(v, include_methods, include_ndim)
            elif isinstance(v, Matrix):
                result[k] = v.to_list()
                ranks[k] = v.ndim
            else:
                result[k] = v
        if include_methods:
            result["__struct_methods"] = Struct.methods.fget(self)  # type: ignore[attr-defined]
        if include_ndim:
            result["__matrix_ndim"] = ranks
        return result

    def __repr__(self) -> str:
        return str(Struct.to_dict(self))

    def __reduce__(self) -> tuple[Any, ...]:
        cls: Any = type(self)
        entries = {k: Struct.__getitem__(self, k) for k in self._entries}
        return _made, (entries, cls._methods, cls._groups)

    @classmethod
    @impl.host_only
    def field(
        cls,
        members: dict[str, Any],
        methods: dict[str, Any] = {},  # noqa: B006  (nobody writes to it)
        shape: Any = None,
        name: str = "<Struct>",
        offset: Any = None,
        needs_grad: bool = False,
        needs_dual: bool = False,
        layout: Layout = Layout.AOS,
    ) -> Any:
        """A field of structs.

        Args:
            members: types by name.
            methods: functions by name, which elements have.
            shape, name, offset, needs_grad, needs_dual: as for `qd.field`.
            layout: whether members of an element lie together (AOS) or apart (SOA).

        Raises:
            TypeError: `members` is no dict.
        """
        if not hasattr(members, "items"):
            raise TypeError(f"a dict of types by member name is expected, got {members!r}")
        from quadrants.lang.field import create_struct_field

        return create_struct_field(
            members, methods, shape, name, offset, needs_grad, needs_dual, layout
        )


def _members(args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    if len(args) == 1 and not kwargs and isinstance(args[0], (dict, Struct)):
        return dict(args[0]._entries) if isinstance(args[0], Struct) else args[0]
    if args:
        raise QuadrantsSyntaxError(
            "Custom structs need to be initialized using either dictionary or keyword arguments"
        )
    return kwargs


def given_members(value: Any, names: Iterable[str]) -> dict[str, Any]:
    """What a struct or dict has for members of these names. It may have others.

    Raises:
        KeyError: it lacks a member.
        TypeError: it is neither.
    """
    source = value._entries if isinstance(value, Struct) else value
    given = {}
    for name in names:
        try:
            given[name] = source[name]
        except KeyError:
            raise KeyError(f"no {name}: values are expected for {', '.join(names)}") from None
        except (TypeError, IndexError):
            raise TypeError(f"a struct or dict is expected, got {value!r}") from None
    return given


_classes: dict[tuple[Any, ...], type] = {}


def _made(
    entries: dict[str, Any], methods: dict[str, Any] | None, groups: dict[str, Group]
) -> Struct:
    """A struct with exactly these entries."""
    methods = methods or {}
    entries.pop("__struct_methods", None)
    key = (tuple(entries), tuple((n, id(m)) for n, m in methods.items()), tuple(groups))
    cls = _classes.get(key)
    if cls is None:
        cls = _classes[key] = _struct_class(tuple(entries), methods, groups)
    self: Any = object.__new__(cls)
    object.__setattr__(self, "_entries", entries)
    return self


def _struct_class(
    names: tuple[str, ...], methods: dict[str, Any], groups: dict[str, Group]
) -> type:
    def member(name: str) -> property:
        return property(
            lambda self: Struct.__getitem__(self, name),
            lambda self, value: Struct.__setitem__(self, name, value),
        )

    def unpacked(name: str, count: int) -> property:
        return property(lambda self: UnpackedView(self, name, count))

    space: dict[str, Any] = dict(methods)
    space["_methods"], space["_groups"] = methods, groups
    for name in names:
        space[name] = member(name)
    for name, (count, _, _) in groups.items():
        space[name] = unpacked(name, count)
    space["__module__"] = __name__
    return type(f"Struct{len(_classes)}", (Struct,), space)


def _cast_number(dtype: DataType, value: Any) -> Any:
    if isinstance(value, (Struct, dict)):
        raise TypeError(
            f"a number is expected for a member of type {dtype}, got {type(value).__name__}"
        )
    if dtype.is_real:
        return float(value)
    value = int(value)
    if dtype is u1:
        return int(value != 0)
    value &= (1 << dtype.bits) - 1
    return value - (1 << dtype.bits) if dtype.is_signed and value >> (dtype.bits - 1) else value


def check_whole(name: str, kind: Any) -> None:
    """Raises if a member's type leaves its size or dtype open."""
    if isinstance(kind, MatrixType) and kind.is_open():
        raise ValueError(
            f"member {name!r} of a struct needs a whole type, got {kind.to_string()}: give n, m and dtype"
        )


class StructType:
    """Type of structs: `qd.types.struct(...)` or a class decorated with `@qd.dataclass`."""

    _qd_annotation = "instances"

    def __init__(self, **members: Any) -> None:
        self.methods: dict[str, Any] = members.pop("__struct_methods", {})
        self._declared: dict[str, Any] = {}
        self._unpacked_groups: dict[str, Group] = {}
        for name, kind in members.items():
            if isinstance(kind, UnpackedVectorType):
                self._expand(name, kind, members)
                continue
            if name in self._declared:
                raise QuadrantsSyntaxError(
                    f"member name {name!r} collides with a synthetic field generated by an earlier vector field "
                    "declared with ``unpacked=True``. Rename the colliding field or the unpacked vector."
                )
            if not isinstance(kind, (MatrixType, StructType)):
                cook_dtype(kind)
            check_whole(name, kind)
            self._declared[name] = kind

    def _expand(self, name: str, kind: UnpackedVectorType, members: dict[str, Any]) -> None:
        for i in range(kind.n or 0):
            scalar = scalar_name(name, i)
            if scalar in self._declared:
                raise QuadrantsSyntaxError(
                    f"unpacked vector field {name!r} would expand to a synthetic field {scalar!r} that collides "
                    "with another member of the same struct. Rename the colliding field or the unpacked vector."
                )
            self._declared[scalar] = kind.dtype
        self._unpacked_groups[name] = (kind.n or 0, kind.dtype, scalar_name)

    @property
    def members(self) -> dict[str, Any]:
        """Types of the members by name."""
        return {
            k: t if isinstance(t, (MatrixType, StructType)) else cook_dtype(t)
            for k, t in self._declared.items()
        }

    @property
    def dtype(self) -> StructType:
        return self

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if any(_has_symbolic(v) for v in (*args, *kwargs.values())):
            return core.trace_op("typed_struct", (self, args, kwargs))
        given = {**kwargs, **dict(zip(self._declared, args))}
        entries = {k: _cast_member(t, given.get(k, 0)) for k, t in self.members.items()}
        # While a kernel is compiled, vectors and matrices of constants are values of it, too.
        if any(_has_symbolic(v) for v in entries.values()):
            return core.trace_op("typed_struct", (self, (), entries))
        return self._make(entries)

    def _make(self, entries: dict[str, Any]) -> Struct:
        return _made(entries, self.methods, self._unpacked_groups)

    def cast(self, struct: Any) -> Any:
        """A struct of this type from one with the same members, in any order.

        Raises:
            QuadrantsSyntaxError: it has others, or lacks some.
        """
        entries = struct._entries if isinstance(struct, Struct) else struct
        given = {k: struct[k] for k in entries if k != "__struct_methods"}
        if given.keys() != self._declared.keys():
            raise QuadrantsSyntaxError(
                "Incompatible arguments for custom struct members!\n"
                f"  members {', '.join(self._declared)} are needed, got {', '.join(given) or 'none'}"
            )
        return self(**given)

    def filled_with_scalar(self, value: Any) -> Any:
        """All members, nested ones too, set to one number."""
        return self._make(
            {
                k: t.filled_with_scalar(value) if isinstance(t, (MatrixType, StructType)) else value
                for k, t in self.members.items()
            }
        )

    def field(self, **kwargs: Any) -> Any:
        """A field of these structs; keywords as for `Struct.field`."""
        from quadrants.lang.field import create_struct_field

        return create_struct_field(
            self.members, self.methods, groups=self._unpacked_groups, **kwargs
        )

    def __instancecheck__(self, value: Any) -> bool:
        if not isinstance(value, Struct) or list(value._entries) != list(self._declared):
            return False
        return all(_fits(t, Struct.__getitem__(value, k)) for k, t in self.members.items())

    def __hash__(self) -> int:  # of the names alone: `methods` may be added to, types mean defaults
        return stable_hash(" ".join(self._declared))

    def __repr__(self) -> str:
        shown = ", ".join(f"{k}={t!s}" for k, t in self.members.items())
        return f"<qd.StructType {shown}, struct_methods={self.methods}>"


def _cast_member(kind: Any, value: Any) -> Any:
    if isinstance(kind, DataType):
        return _cast_number(kind, value)
    if isinstance(kind, StructType):
        if isinstance(value, (dict, Struct)):
            return kind.cast(value)
        return kind(*value) if _are_members(kind, value) else kind(value)
    return kind(value)


def _are_members(kind: StructType, value: Any) -> bool:
    """Whether a list given for a member of this type has that struct's members. It is one value
    otherwise, for the first one, as a vector is."""
    if not isinstance(value, (list, tuple)):
        return False
    first: Any = kind
    while isinstance(first, StructType):
        first = next(iter(first._declared.values()), None)
    return not isinstance(first, MatrixType) or _depth(value) > 2


def _depth(value: Any) -> int:
    """How deep lists are nested: 2 in a matrix, and more where structs are in them."""
    if isinstance(value, (list, tuple)):
        return 1 + max(map(_depth, value), default=0)
    if isinstance(value, (dict, Struct)):
        return 2
    return getattr(value, "ndim", 0)  # of vectors, matrices and NumPy's arrays


def _fits(kind: Any, value: Any) -> bool:
    if isinstance(kind, StructType):
        return isinstance(value, kind)  # type: ignore[arg-type]
    if isinstance(kind, MatrixType):
        vector = isinstance(value, Matrix) or impl.is_python_backend()
        return vector and tuple(value.get_shape()) == kind.get_shape()
    return not isinstance(value, (Struct, Matrix))


def dataclass(cls: type) -> StructType:
    """Makes a class with annotated members a struct type; its functions, inherited ones too, become
    methods."""
    if not isinstance(cls, type):
        raise TypeError(f"@qd.dataclass decorates a class, got {cls!r}")
    space = cls.__dict__
    members = dict(space.get("__annotations__", {}))
    caller = sys._getframe(1)
    for name, kind in members.items():
        if name in space:
            raise QuadrantsSyntaxError("Default value in @dataclass is not supported.")
        if isinstance(kind, str):
            try:
                members[name] = eval(kind, caller.f_globals, caller.f_locals)
            except Exception as e:
                raise ValueError(f"Invalid data type {kind}") from e
    found: dict[str, Any] = {}
    for base in reversed(cls.__mro__):
        found.update(base.__dict__)
    methods = {
        name: value
        for name, value in found.items()
        if not name.startswith("__") and name not in members and callable(value)
    }
    made = StructType(**members)
    made.methods = methods
    made.__dict__["__doc__"] = cls.__doc__
    made.__dict__["__qualname__"] = cls.__qualname__
    return made
