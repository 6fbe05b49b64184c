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
_mro_of = type.__dict__["__mro__"].__get__
_dict_of = type.__dict__["__dict__"].__get__
_flags_of = type.__dict__["__flags__"].__get__
_NATIVE = types.GetSetDescriptorType, types.MemberDescriptorType
TUPLE_GETTER = type(vars(namedtuple("P", "x"))["x"])
_DESCRIPTORS = (*_NATIVE, types.WrapperDescriptorType, types.MethodDescriptorType, types.BuiltinFunctionType,
                types.ClassMethodDescriptorType, TUPLE_GETTER)  # fmt: skip
_VARARGS, _VARKEYWORDS = 4, 8


def in_class(kind: type, name: str, otherwise: Any = None) -> Any:
    """What a class or its bases have under a name."""
    for base in _mro_of(kind):
        if name in (members := _dict_of(base)):
            return members[name]
    return otherwise


def is_heap(kind: type) -> bool:
    """Whether a class is made at run time, as those of the user are."""
    return bool(_flags_of(kind) & 1 << 9)


def is_generated(function: Any) -> bool:
    """Of what dataclasses and named tuples write."""
    return type(function) is types.FunctionType and function.__code__.co_filename == "<string>"


def holds_no_code(kind: type) -> bool:
    """Whether a class has no methods and descriptors but those of Python's enumerations, tuples and dataclasses."""
    return all(
        _runs_nothing(member)
        for base in _mro_of(kind)
        if is_heap(base)
        for member in _dict_of(base).values()
    )


def _runs_nothing(member: Any) -> bool:
    kind = type(member)
    if kind in (classmethod, staticmethod):
        return _runs_nothing(member.__func__)
    if kind is types.FunctionType:
        homes = (vars(sys.modules[name]) for name in _HOMES if name in sys.modules)
        return is_generated(member) or any(member.__globals__ is home for home in homes)
    if is_heap(kind):
        return kind.__module__ in _HOMES and in_class(kind, "__call__") is None
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
