"""Which calls of a kernel declared `fastcache=True` have an entry in the side cache (chapter 51, section 6)."""

from __future__ import annotations

import enum
import functools
from typing import Any

from quadrants import _logging
from quadrants._lib import core
from quadrants.lang.util import is_data_oriented

_reported: set[type] = set()


def why_not(kernel: Any, args: tuple[Any, ...], cacheable: bool) -> str | None:
    """Why a call has no entry; what the user should know about that is logged.

    Args:
        kernel: what the decorator made.
        args: of the call.
        cacheable: whether the kernel reads no field, and what it reads can be checked later.
    """
    for number, arg in enumerate(args):
        why = _problem_of(kernel, arg, number)
        if why is not None:
            return _refused(kernel, why)
    if cacheable:
        return None
    if any(_shows_field(a, x) for (_, a, _), x in zip(kernel.params, args)):
        return _refused(kernel, "a field")
    return "a field through qd.Tensor"


def _refused(kernel: Any, why: str) -> str:
    _logging.warn(
        f"[FASTCACHE][INVALID_FUNC] The pure function {kernel.__name__} could not be fast cached, because one or "
        f"more parameter types were invalid: {why}"
    )
    return why


def _problem_of(kernel: Any, arg: Any, number: int) -> str | None:
    cls = type(arg)
    if isinstance(arg, (core.NdarrayBase, core.TensorBase, core.FieldBase)):
        return None  # fields: asked when it is known whether the kernel reads one
    if is_data_oriented(arg):
        return _property_problem(kernel, arg)
    if isinstance(arg, (int, float, enum.Enum)) or hasattr(cls, "__dataclass_fields__"):
        return None
    if hasattr(arg, "ndim") and hasattr(arg, "dtype") and hasattr(arg, "strides"):  # NumPy
        return None
    if hasattr(arg, "field_dict"):
        return None
    if hasattr(arg, "ndim") and hasattr(arg, "stride"):  # torch
        return None
    if cls not in _reported:
        _reported.add(cls)
        _logging.warn(
            f"[FASTCACHE][PARAM_INVALID] [FASTCACHE][UNKNOWN_TYPE] Parameter with path ('{number}',) and type {cls} "
            "cannot be part of a key."
        )
    return f"type {cls.__qualname__}"


def _property_problem(kernel: Any, arg: Any) -> str | None:
    """Whether the kernel reads a member that is computed once."""
    cls = type(arg)
    for name in kernel.fn.__code__.co_names:
        member = next((c.__dict__[name] for c in cls.__mro__ if name in c.__dict__), None)
        if isinstance(member, functools.cached_property):
            _logging.warn(
                f"[FASTCACHE][CACHED_PROPERTY] {cls.__qualname__}.{name} is a cached_property, whose value may be "
                "out of date. Make it a property."
            )
            return f"the cached property {name}"
    return None


def _shows_field(annotation: Any, arg: Any) -> bool:
    """Whether a field is reached through this argument other than as a `qd.Tensor`.

    No `dataclasses` or `inspect` here: a warm start would wait for their import.
    """
    if isinstance(arg, core.TensorBase):
        return False
    if isinstance(arg, core.FieldBase) or hasattr(arg, "field_dict"):
        return not _is_tensor(annotation)
    if is_data_oriented(arg):
        members = arg._asdict() if hasattr(arg, "_asdict") else vars(arg)
        return any(_shows_field(None, m) for m in members.values())
    members = getattr(type(arg), "__dataclass_fields__", None)
    if members is not None:
        return any(_shows_field(f.type, getattr(arg, f.name, None)) for f in members.values())
    return False


def _is_tensor(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, core.TensorBase)
