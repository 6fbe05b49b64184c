"""What objects and functions are made of, found without running code of the user.

As `inspect.getattr_static` and `inspect.Signature.bind` do, whose module takes longer to import than a kernel
to compile.
"""

from __future__ import annotations

import sys
import types
from collections import namedtuple
from typing import Any

_MISSING = object()
mro_of = type.__dict__["__mro__"].__get__
dict_of = type.__dict__["__dict__"].__get__
name_of = type.__dict__["__name__"].__get__
qualname_of = type.__dict__["__qualname__"].__get__
_module_of = type.__dict__["__module__"].__get__
_flags_of = type.__dict__["__flags__"].__get__
_NATIVE = types.GetSetDescriptorType, types.MemberDescriptorType
TUPLE_GETTER = type(vars(namedtuple("P", "x"))["x"])
_DESCRIPTORS = (*_NATIVE, types.WrapperDescriptorType, types.MethodDescriptorType, types.BuiltinFunctionType,
                types.ClassMethodDescriptorType, TUPLE_GETTER)  # fmt: skip
_VARARGS, _VARKEYWORDS = 4, 8


def in_class(kind: type, name: str, otherwise: Any = None) -> Any:
    """What a class or its bases have under a name."""
    for base in mro_of(kind):
        if name in (members := dict_of(base)):
            return members[name]
    return otherwise


def is_heap(kind: type) -> bool:
    """Whether a class is made at run time, as those of the user are."""
    return bool(_flags_of(kind) & 1 << 9)


def module_of(kind: type) -> str:
    name = _module_of(kind)
    return name if type(name) is str else ""


_GENERATED = frozenset(
    "__init__ __repr__ __eq__ __lt__ __le__ __gt__ __ge__ __hash__ __setattr__ __delattr__".split()
)
# What those read beside the fields of their class: names, and how the values that they keep are called.
_GENERATED_NAMES = frozenset(
    "__class__ __qualname__ __name__ __setattr__ __delattr__ __post_init__".split()
)
_GENERATED_GLOBALS = frozenset("NotImplemented hash type super".split())
_KEPT = (
    "__dataclass_",
    "_type_",
    "_dflt_",
    "MISSING",
    "_HAS_DEFAULT_FACTORY",
    "FrozenInstanceError",
    "cls",
)


def is_generated(function: Any, kind: type, name: str) -> bool:
    """Whether a member of a class is what dataclasses and named tuples write."""
    if type(function) is not types.FunctionType:
        return False
    code, space, members = function.__code__, function.__globals__, dict_of(kind)
    if code.co_filename != "<string>":
        return False
    if name == "__new__" and "_fields" in members:
        return (
            code.co_names == ("_tuple_new",)
            and not code.co_freevars
            and space.get("_tuple_new") is tuple.__new__
            and str(space.get("__name__")).startswith("namedtuple_")
        )
    if "__dataclass_fields__" not in members or name not in _GENERATED or code.co_name != name:
        return False
    if getattr(code, "co_qualname", f"__create_fn__.<locals>.{name}") == name:
        return False  # of Python 3.11 and later: it is no function's own
    fields = members["__dataclass_fields__"]
    read = {x for x in code.co_names if x not in fields and x not in _GENERATED_NAMES}
    return (
        read <= _GENERATED_GLOBALS | {x for x in read if x.startswith("__dataclass_")}
        and not any(x in space for x in read)
        and all(x.startswith(_KEPT) for x in code.co_freevars)
        and function.__qualname__
        in (f"{qualname_of(kind)}.{name}", f"__create_fn__.<locals>.{name}")
    )


def is_written_text(member: Any, kind: type, name: str) -> bool:
    """Whether a member is a function of a text that was run, and not one that Python wrote."""
    return (
        type(member) is types.FunctionType
        and member.__code__.co_filename == "<string>"
        and not is_generated(member, kind, name)
    )


def holds_no_code(kind: type) -> bool:
    """Whether a class has no methods and descriptors but those of Python's enumerations, tuples and dataclasses."""
    return all(
        _runs_nothing(member, base, name)
        for base in mro_of(kind)
        if is_heap(base) and not _is_of_enums(base)
        for name, member in dict_of(base).items()
    )


def _is_of_enums(kind: type) -> bool:
    home = sys.modules.get("enum")
    return home is not None and vars(home).get(name_of(kind)) is kind


def _runs_nothing(member: Any, owner: type, name: str) -> bool:
    kind = type(member)
    if kind in (classmethod, staticmethod):
        return _runs_nothing(member.__func__, owner, name)
    if kind is owner:
        return (
            in_class(kind, "__get__") is None and in_class(kind, "__call__") is None
        )  # one of an enumeration
    if kind is types.DynamicClassAttribute or (
        name_of(kind) == "property" and module_of(kind) == "enum"
    ):
        return member.fget is None or _runs_nothing(member.fget, owner, name)
    if kind is types.FunctionType:
        if name == "__repr__" and member.__globals__.get("__name__") == "reprlib":
            return is_generated(member.__dict__.get("__wrapped__"), owner, name)
        homes = (vars(sys.modules[home]) for home in _HOMES if home in sys.modules)
        return is_generated(member, owner, name) or any(
            member.__globals__ is home for home in homes
        )
    if is_heap(kind):
        return module_of(kind) in _HOMES and in_class(kind, "__call__") is None
    return kind in _DESCRIPTORS or in_class(kind, "__get__") is None


_HOMES = ("enum", "collections", "dataclasses")


def _in_object(o: Any, name: str) -> Any:
    if type(in_class(type(o), "__dict__")) not in _NATIVE:
        return _MISSING
    members = object.__getattribute__(o, "__dict__")
    return members.get(name, _MISSING) if type(members) is dict else _MISSING


def find_static(o: Any, name: str, otherwise: Any = None) -> Any:
    """What Python finds as o.name, before descriptors are asked."""
    of_kind = in_class(type(o), name, _MISSING)
    own = in_class(o, name, _MISSING) if issubclass(type(o), type) else _in_object(o, name)
    if own is _MISSING:
        return otherwise if of_kind is _MISSING else of_kind
    describes = of_kind is not _MISSING and all(
        in_class(type(of_kind), method) is not None for method in ("__get__", "__set__")
    )
    return of_kind if describes else own


def bound(
    function: types.FunctionType, args: list[Any], keywords: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, Any], list[str]]:
    """A call's arguments by name, the defaults of the others, and the names of *args and **kwargs, left empty.

    TypeError where they do not fit, or something is left for those.
    """
    code = function.__code__
    count, by_name = code.co_argcount, code.co_kwonlyargcount
    names = code.co_varnames[: count + by_name]
    stars = bool(code.co_flags & _VARARGS) + bool(code.co_flags & _VARKEYWORDS)
    given = dict(zip(names[:count], args))
    if len(args) > count or any(k in given or k not in names for k in keywords):
        raise TypeError("arguments do not fit")
    if any(k in names[: code.co_posonlyargcount] for k in keywords):
        raise TypeError("a positional argument is named")
    given |= keywords
    values = function.__defaults__ or ()
    defaults = dict(zip(names[count - len(values) : count], values))
    defaults |= function.__kwdefaults__ or {}
    rest = {name: defaults[name] for name in names if name not in given and name in defaults}
    if len(given) + len(rest) != len(names):
        raise TypeError("an argument is missing")
    return given, rest, list(code.co_varnames[len(names) : len(names) + stars])
