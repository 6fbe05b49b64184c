"""What of Python's own functions and classes, its library's and NumPy's only looks at what it is given."""

from __future__ import annotations

import functools
import operator
import sys
import types
from typing import Any

from quadrants.lang._inspect.known_values import is_number_type
from quadrants.lang._inspect.static_members import in_class, is_generated, module_of, name_of

LOOKING_FUNCTIONS = frozenset(
    "len int float bool str repr abs min max sum round tuple list dict set frozenset range isinstance "
    "issubclass hasattr getattr type sorted any all divmod pow chr ord complex bytes zip enumerate "
    "reversed slice super callable format hex bin oct ascii".split()
)
FILLING_METHODS = frozenset("append add extend insert update setdefault pop sort reverse".split())
LOOKING_METHODS = frozenset(
    "count index get keys values items copy tobytes tolist hex decode encode getvalue startswith "
    "endswith split join strip lower upper replace find format item sum min max mean prod any all "
    "reshape ravel flatten transpose astype dot argmax argmin conj bit_length as_integer_ratio "
    "is_integer conjugate union intersection difference issubset issuperset isdisjoint".split()
)
# Of NumPy, beside its element-wise functions and number types.
_LOOKING_NUMPY = frozenset(
    "dot zeros ones full array asarray arange linspace eye identity sum prod mean max min amax amin cross "
    "where concatenate stack vstack hstack outer inner trace diag allclose isclose argmax argmin any all "
    "round diff sort unique transpose reshape ravel size shape ndim norm det inv array_equal".split()
)
# Functions of Python's library, and methods of its classes.
_LOOKING_LIBRARY = {
    "os": frozenset({"getenv"}),
    "posixpath": frozenset("exists isfile isdir join basename dirname abspath".split()),
    "genericpath": frozenset("exists isfile isdir".split()),
    "collections.abc": frozenset("get keys values items __contains__".split()),
    "bisect": frozenset("bisect bisect_left bisect_right".split()),
}
_CLASSES = ("Mapping",)


def is_librarys(function: Any) -> bool:
    """A function of Python's library that only looks at operands which run nothing of the user."""
    if type(function) not in (types.FunctionType, types.BuiltinFunctionType):
        return False
    for module, names in _LOOKING_LIBRARY.items():
        if function.__name__ in names and module in sys.modules:
            home = vars(sys.modules[module])
            for place in (home, *(vars(c) for c in map(home.get, _CLASSES) if isinstance(c, type))):
                if place.get(function.__name__) is function:
                    return True
    return False


def only_keeps(kind: type) -> bool:
    """Whether to make an object of a class is to keep what it is made of."""
    if kind in (types.SimpleNamespace, operator.itemgetter, functools.partial):
        return True
    if in_class(kind, "__del__") is not None or type(kind) is not type:
        return False
    init, new, setter = (in_class(kind, name) for name in ("__init__", "__new__", "__setattr__"))
    own = vars(kind)
    if type(new) is staticmethod and issubclass(kind, tuple) and "_fields" in own:
        return init is in_class(object, "__init__") and is_generated(new.__func__, kind, "__new__")
    if {type(init), type(new)} <= {types.WrapperDescriptorType, types.BuiltinFunctionType}:
        return issubclass(kind, int | float | str)
    fields = own.get("__dataclass_fields__", {})
    factories = (list, dict, set, sys.modules["dataclasses"].MISSING) if fields else ()
    return (
        bool(fields)
        and is_generated(init, kind, "__init__")
        and new is in_class(object, "__new__")
        and (setter is in_class(object, "__setattr__") or is_generated(setter, kind, "__setattr__"))
        and in_class(kind, "__post_init__") is None
        and all(
            type(in_class(kind, name)) is types.MemberDescriptorType
            or in_class(type(in_class(kind, name)), "__set__") is None
            for name in fields
        )
        and all(any(f.default_factory is x for x in factories) for f in fields.values())
    )


def is_numpys(function: Any) -> bool:
    """An element-wise function of NumPy, a type of its numbers, or one that is known to look only."""
    numpy = sys.modules.get("numpy")
    kind = type(function)
    if numpy is None or (module_of(kind).partition(".")[0] != "numpy" and kind not in
                         (types.FunctionType, types.BuiltinFunctionType, type)):  # fmt: skip
        return False
    if kind is types.FunctionType and not str(function.__globals__["__name__"]).startswith("numpy"):
        return False  # somebody's that has the name of one
    name = function.__name__ if name_of(kind) != "vectorize" else ""
    if not any(vars(module).get(name) is function for module in (numpy, numpy.linalg)):
        return False
    if isinstance(function, type):
        return is_number_type(function) and name not in (
            "datetime64",
            "timedelta64",
            "void",
            "object_",
        )
    return name_of(kind) == "ufunc" or name in _LOOKING_NUMPY
