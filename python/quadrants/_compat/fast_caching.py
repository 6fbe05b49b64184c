"""Keys of kernel calls from text and types. The compiler has its own, exact ones (guards); these serve
outside code that computes keys itself.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Sequence
from typing import Any

from quadrants import _logging
from quadrants._compat.side_files import FIELD_METADATA_CACHE_VALUE, hash_text
from quadrants._lib import core
from quadrants.lang._data.arguments import is_final
from quadrants.lang._wrap_inspect import FunctionSourceInfo
from quadrants.lang.kernel_arguments import ArgMetadata
from quadrants.lang.util import is_data_oriented, is_qd_template


class FastcacheSkip(enum.Enum):
    """Why a call has no key."""

    FIELD_VIA_TENSOR = enum.auto()
    WARN = enum.auto()


@dataclasses.dataclass(frozen=True)
class HashedFunctionSourceInfo:
    """A function's place and the hash of its text."""

    function_source_info: FunctionSourceInfo
    hash: str


# --- arguments ---

_warned_types: set[type] = set()
_counts = {"calls": 0}


class _Uncacheable(Exception):
    def __init__(self, why: FastcacheSkip) -> None:
        super().__init__(why)
        self.why = why


def _is_tensor_annotation(annotation: Any) -> bool:
    return (
        isinstance(annotation, type)
        and annotation.__name__ == "Tensor"
        and annotation.__module__.startswith("quadrants")
    )


def _unknown(value: Any, path: tuple[str, ...]) -> _Uncacheable:
    if type(value) not in _warned_types:
        _warned_types.add(type(value))
        _logging.warn(
            f"[FASTCACHE][PARAM_INVALID] [FASTCACHE][UNKNOWN_TYPE] Parameter with path {path} and type "
            f"{type(value)} cannot be part of a key."
        )
    return _Uncacheable(FastcacheSkip.WARN)


def _text_of(
    strict: bool, path: tuple[str, ...], value: Any, annotation: Any, by_value: bool
) -> str:
    """What one argument, or a member of one, adds to the key."""
    if isinstance(value, core.TensorBase):
        value = value._unwrap()
    if value is None:
        return "[None]"
    if isinstance(value, core.NdarrayBase):
        shape = getattr(value, "element_shape", ())
        layout = getattr(value, "layout", None)
        return f"[nd-{value.dtype}-{len(value.shape)}-{shape}-{layout}-{value.grad is not None}]"
    if isinstance(value, core.FieldBase):
        raise _Uncacheable(
            FastcacheSkip.FIELD_VIA_TENSOR
            if _is_tensor_annotation(annotation) or (annotation is None and len(path) == 1)
            else FastcacheSkip.WARN
        )
    if isinstance(value, enum.Enum) and not isinstance(value, int):
        return f"[enum-{value.name}-{value.value}]"
    cls = type(value)
    if dataclasses.is_dataclass(value):
        owner = (
            annotation
            if dataclasses.is_dataclass(annotation) and isinstance(annotation, type)
            else cls
        )
        members = [
            f"{f.name}: "
            + _text_of(
                strict,
                (*path, f.name),
                getattr(value, f.name),
                f.type,
                bool(f.metadata.get(FIELD_METADATA_CACHE_VALUE, False)) or is_final(f.type),
            )
            for f in dataclasses.fields(owner)
        ]
        return "[dc-" + ",".join(members) + "]"
    if is_data_oriented(value):
        members_of = value._asdict() if hasattr(value, "_asdict") else vars(value)
        baked = getattr(cls, "_qd_template_primitives", True)
        members = [
            f"{name}: " + _text_of(strict, (*path, name), member, None, baked)
            for name, member in members_of.items()
        ]
        return "[do-" + ",".join(members) + "]"
    if (
        isinstance(value, (int, float))
        or cls.__module__ == "numpy"
        and not hasattr(value, "__len__")
    ):
        if is_qd_template(annotation) or by_value:
            if strict and isinstance(value, float):
                raise ValueError("Floats not allowed as templated types.")
            return f"[{cls.__module__}.{cls.__qualname__}={value}]"
        return f"[{cls.__module__}.{cls.__qualname__}]"
    if hasattr(value, "ndim") and hasattr(value, "dtype"):
        kind = "np" if cls.__module__ == "numpy" else "torch"
        return f"[{kind}-{value.dtype}-{value.ndim}]"
    raise _unknown(value, path)


def stringify_obj_type(
    raise_on_templated_floats: bool, path: tuple[str, ...], obj: Any, arg_meta: ArgMetadata | None
) -> str | None:
    """The text that an argument adds to the key; None if it has none."""
    try:
        return _text_of(
            raise_on_templated_floats, path, obj, arg_meta.annotation if arg_meta else None, False
        )
    except _Uncacheable:
        return None


def hash_args(
    raise_on_templated_floats: bool,
    args: Sequence[Any],
    arg_metas: Sequence[ArgMetadata | None],
    pruning_paths: Any = None,
) -> str | FastcacheSkip:
    """The key of a call's arguments, or why it has none."""
    if len(args) != len(arg_metas):
        raise RuntimeError(
            f"Number of args passed in {len(args)} doesn't match number of arg metas {len(arg_metas)}"
        )
    _counts["calls"] += 1
    texts = []
    for n, (value, meta) in enumerate(zip(args, arg_metas)):
        annotation = meta.annotation if meta is not None else None
        try:
            texts.append(_text_of(raise_on_templated_floats, (str(n),), value, annotation, False))
        except _Uncacheable as e:
            return e.why
    return hash_text("".join(texts))


def reset_unknown_type_warn_state() -> None:
    """Lets unknown types be reported again."""
    _warned_types.clear()


def dump_stats() -> None:
    """Prints how often keys were computed."""
    print("args hasher:", _counts)
