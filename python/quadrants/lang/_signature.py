"""Reads and checks signatures at decoration.

Thousands of functions are decorated while a large program is imported, so this looks at the code
object and the annotations only; it reads no source and does not use `inspect`.
"""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType, GenericAlias, UnionType
from typing import Any

from quadrants.lang.exception import QuadrantsSyntaxError
from quadrants.lang.kernel_arguments import empty
from quadrants.types.annotations import OptionalAnnotation, Template, sparse_matrix_builder
from quadrants.types.buffer_view_type import BufferViewType
from quadrants.types.ndarray_type import NDArray
from quadrants.types.primitive_types import DataType, RefType

Param = tuple[str, Any, Any]  # name, annotation or `empty`, default or `empty`

_VARARGS, _VARKEYWORDS = 0x04, 0x08
_PLAIN_INSTANCES = (DataType, NDArray, Template, BufferViewType)
_PLAIN_CLASSES = frozenset((int, float, bool, Template, NDArray, sparse_matrix_builder))
# Set on classes of this package: "class" if they are annotations, such as qd.Tensor, "instances" if
# their objects are, such as vector types.
_MARKED = "_qd_annotation"
_NONE_FITS = ("Tensor", "Template", "NDArray")
_compiled: dict[str, Any] = {}


def is_class_member(fn: Callable[..., Any]) -> bool:
    """Whether a function is defined lexically inside a class."""
    owner = fn.__qualname__.rpartition(".")[0]
    return bool(owner) and not owner.endswith("<locals>")


def _evaluate(text: str, fn: FunctionType) -> Any:
    """The object that a string annotation names, seen from the function."""
    code = _compiled.get(text)
    if code is None:
        code = _compiled[text] = compile(text, "<annotation>", "eval")
    cells = {}
    for name, cell in zip(fn.__code__.co_freevars, fn.__closure__ or ()):
        try:
            cells[name] = cell.cell_contents
        except ValueError:  # not assigned yet
            continue
    return eval(code, fn.__globals__, cells)


def annotations_of(fn: FunctionType) -> dict[str, Any]:
    """The function's annotations, strings evaluated."""
    found = fn.__annotations__
    for name, value in found.items():
        if type(value) is str:
            break
    else:
        return found
    resolved = {}
    for name, value in found.items():
        if type(value) is str:
            try:
                value = _evaluate(value, fn)
            except Exception as e:
                raise QuadrantsSyntaxError(
                    f"Invalid type annotation in `{fn.__qualname__}`: {e}"
                ) from e
        resolved[name] = value
    return resolved


def _is_union(annotation: Any) -> bool:
    return (
        type(annotation) is UnionType or getattr(annotation, "__origin__", None) is _typing_union()
    )


def _typing_union() -> Any:
    from typing import Union

    return Union


def _inner(optional: Any) -> Any:
    """`X` of `X | None`; None of other unions."""
    if isinstance(optional, OptionalAnnotation):
        return optional.inner
    rest = [a for a in optional.__args__ if a is not type(None)]
    return rest[0] if len(rest) == 1 else None


def _check_optional(inner: Any, annotation: Any) -> None:
    """What an argument of a kernel must be if it may be None."""
    if getattr(inner, "__origin__", None) is Template or isinstance(inner, (Template, NDArray)):
        return
    if isinstance(inner, type) and any(c.__name__ in _NONE_FITS for c in inner.__mro__):
        return
    raise QuadrantsSyntaxError(
        "Optional ('T | None') kernel arguments are only supported for qd.Tensor, qd.types.Template "
        f"and qd.types.NDArray annotations, got: {annotation}"
    )


def _marked(cls: type) -> Any:
    return getattr(cls, _MARKED, None)


def valid_annotation(annotation: Any, kind: str) -> bool:
    """Whether a parameter of a "kernel", "func" or "real" function may be annotated so."""
    if isinstance(annotation, _PLAIN_INSTANCES):
        return True
    if isinstance(annotation, type):
        if annotation in _PLAIN_CLASSES:
            return annotation is not sparse_matrix_builder or kind == "kernel"
        return hasattr(annotation, "__dataclass_fields__") or _marked(annotation) == "class"
    if isinstance(annotation, RefType):
        return kind != "kernel"
    if isinstance(annotation, sparse_matrix_builder):
        return kind == "kernel"
    if isinstance(annotation, OptionalAnnotation) or _is_union(annotation):
        inner = _inner(annotation)
        if inner is None or not valid_annotation(inner, kind):
            return False
        if kind == "kernel":
            _check_optional(inner, annotation)
        return True
    if _marked(type(annotation)) == "instances":  # vector, matrix and struct types
        return True
    origin = getattr(annotation, "__origin__", None)  # Template[...]
    return origin is Template


def _check_kinds(fn: FunctionType) -> None:
    code = fn.__code__
    if code.co_flags & _VARKEYWORDS:
        raise QuadrantsSyntaxError(
            "Quadrants kernels do not support variable keyword parameters (i.e., **kwargs)"
        )
    if code.co_flags & _VARARGS:
        raise QuadrantsSyntaxError(
            "Quadrants kernels do not support variable positional parameters (i.e., *args)"
        )
    if code.co_kwonlyargcount:
        raise QuadrantsSyntaxError("Quadrants kernels do not support keyword parameters")
    if code.co_posonlyargcount:
        raise QuadrantsSyntaxError(
            'Quadrants kernels only support "positional or keyword" parameters'
        )


def read_parameters(fn: FunctionType, kind: str, in_class: bool) -> tuple[tuple[Param, ...], Any]:
    """Parameters and return annotation, checked.

    Args:
        fn: the plain function.
        kind: "kernel", "func" or "real".
        in_class: the first parameter may be unannotated; it is a template then.
    """
    code = fn.__code__
    if (
        code.co_flags & (_VARARGS | _VARKEYWORDS)
        or code.co_kwonlyargcount
        or code.co_posonlyargcount
    ):
        _check_kinds(fn)
    count = code.co_argcount
    names = code.co_varnames[:count]
    defaults = fn.__defaults__ or ()
    if defaults and kind == "kernel":
        raise QuadrantsSyntaxError("Quadrants kernels do not support default values for arguments")
    found = annotations_of(fn) if fn.__annotations__ else {}
    without = count - len(defaults)
    params = []
    for name, annotation in found.items():
        if annotation is sparse_matrix_builder or isinstance(annotation, sparse_matrix_builder):
            from quadrants.linalg import SparseMatrixBuilder

            found = {**found, name: SparseMatrixBuilder if kind == "kernel" else annotation}
    for i, name in enumerate(names):
        annotation = found.get(name, empty)
        if annotation is empty:
            if i == 0 and in_class:
                annotation = Template()
            elif kind != "func":
                raise QuadrantsSyntaxError("Quadrants kernels parameters must be type annotated")
        elif not valid_annotation(annotation, kind):
            raise QuadrantsSyntaxError(
                f"Invalid type annotation (argument {i}) of Quadrants kernel: {annotation}"
            )
        elif misuse := getattr(type(annotation), "misuse", None):  # an unpacked vector type
            raise misuse("annotate a parameter with")
        elif kind == "func" and isinstance(annotation, RefType):
            annotation = empty  # `qd.ref` means something to real functions only
        params.append((name, annotation, empty if i < without else defaults[i - without]))
    return tuple(params), _return_annotation(found.get("return"))


def _return_annotation(annotation: Any) -> Any:
    """None, one type, or a tuple of types."""
    if (
        annotation is None
        or isinstance(annotation, type)
        and not isinstance(annotation, GenericAlias)
    ):
        return annotation
    if getattr(annotation, "__origin__", None) is tuple:
        annotation = getattr(annotation, "__args__", tuple)  # a bare Tuple has none
    if annotation is ... or isinstance(annotation, tuple) and any(a is ... for a in annotation):
        raise QuadrantsSyntaxError("Ellipsis is not supported in return type annotations")
    for one in annotation if isinstance(annotation, tuple) else (annotation,):
        if misuse := getattr(type(one), "misuse", None):
            raise misuse("return")
    return annotation


def plain_function(fn: Any, decorator: str) -> FunctionType:
    """The function to decorate; raises for anything a decorator cannot take."""
    if hasattr(fn, "__wrapped__"):
        raise QuadrantsSyntaxError(
            f"Cant put {decorator} in front of other annotations (error code: KERNEL_ANNOTATION_ORDER)."
        )
    if not isinstance(fn, FunctionType):
        raise TypeError(f"{fn!r} is not a function written with def")
    return fn


def signature_text(definition: Any) -> str:
    """Annotations of a definition as text: part of the key under which compiled code is kept."""
    returns = definition.returns if isinstance(definition.returns, tuple) else (definition.returns,)
    params = [f"{name}:{annotation_text(annotation)}" for name, annotation, _ in definition.params]
    return ",".join(params) + "->" + ",".join(map(annotation_text, returns))


def annotation_text(annotation: Any) -> str:
    """What an annotation means, as text."""
    inner = annotation_text
    if isinstance(annotation, DataType):
        return annotation.name
    if isinstance(annotation, NDArray):
        a = annotation
        return f"array({inner(a.dtype)},{a.ndim},{a.needs_grad},{a.boundary})"
    if isinstance(annotation, BufferViewType):
        return f"view({inner(annotation.dtype)},{annotation.boundary})"
    if isinstance(annotation, RefType):
        return f"ref({inner(annotation.tp)})"
    if isinstance(annotation, OptionalAnnotation):
        return "?" + inner(annotation.inner)
    if isinstance(annotation, tuple) or _is_union(annotation):
        parts = annotation if isinstance(annotation, tuple) else annotation.__args__
        return "(" + ",".join(map(inner, parts)) + ")"
    if isinstance(annotation, type):
        fields = getattr(annotation, "__dataclass_fields__", {})
        listed = ",".join(f"{name}:{inner(field.type)}" for name, field in fields.items())
        return f"{annotation.__module__}.{annotation.__qualname__}({listed})"
    members = getattr(annotation, "members", None)
    if isinstance(members, dict):  # struct types
        groups = ",".join(f"{k}*{g[0]}" for k, g in annotation._unpacked_groups.items())
        return f"struct({','.join(f'{k}:{inner(t)}' for k, t in members.items())};{groups})"
    if hasattr(annotation, "to_string"):
        return annotation.to_string()
    return (
        str(annotation)
        if annotation is None or isinstance(annotation, str)
        else type(annotation).__name__
    )
