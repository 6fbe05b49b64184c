"""Keys of kernel calls from text and types. The compiler has its own, exact ones (guards); these serve
outside code that computes keys itself.
"""

from __future__ import annotations

import dataclasses
import enum
import hashlib
import os
import warnings
from collections.abc import Sequence
from typing import Any

from quadrants import _logging
from quadrants._lib import core
from quadrants.lang._wrap_inspect import FunctionSourceInfo
from quadrants.lang.kernel_arguments import ArgMetadata
from quadrants.lang.util import is_data_oriented, is_qd_template

FIELD_METADATA_CACHE_VALUE = "add_value_to_cache_key"


class FastcacheSkip(enum.Enum):
    """Why a call has no key."""

    FIELD_VIA_TENSOR = enum.auto()
    WARN = enum.auto()


@dataclasses.dataclass(frozen=True)
class HashedFunctionSourceInfo:
    """A function's place and the hash of its text."""

    function_source_info: FunctionSourceInfo
    hash: str


def hash_text(text: str) -> str:
    """SHA-256 as hexadecimal digits."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()  # paths have them


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
            if _is_tensor_annotation(annotation)
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
                bool(f.metadata.get(FIELD_METADATA_CACHE_VALUE, False)),
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


# --- config ---

_EXCLUDED_PREFIXES = ("_", "offline_cache", "print_", "verbose_")
_EXCLUDED = ("debug_dump_path", "cuda_stack_limit", "external_metal_command_queue")


def hash_compile_config() -> str:
    """Hash of the options that influence code."""
    from quadrants.lang.impl import current_cfg

    cfg = current_cfg()
    rows = [
        f"{name}={getattr(cfg, name)}"
        for name in sorted(cfg.as_dict())
        if not name.startswith(_EXCLUDED_PREFIXES) and name not in _EXCLUDED
    ]
    return hash_text("\n".join(rows))


def hash_device_caps() -> str:
    """Hash of what the device can do."""
    from quadrants.lang.impl import get_runtime

    return get_runtime().prog.get_device_caps().hashed_key()


# --- files ---


class PythonSideCache:
    """Texts by key, in a folder of the cache."""

    def __init__(self) -> None:
        from quadrants.lang.impl import current_cfg

        self.cache_folder = os.path.join(current_cfg().offline_cache_file_path, "python_side_cache")

    def _path(self, key: str) -> str:
        return os.path.join(self.cache_folder, f"{key}.cache.txt")

    def store(self, key: str, text: str) -> None:
        """Writes a text; readers see the old one or the new one."""
        os.makedirs(self.cache_folder, exist_ok=True)
        path = self._path(key)
        partial = f"{path}.{os.getpid()}"
        with open(partial, "w", encoding="utf-8") as f:
            f.write(text)
        os.replace(partial, path)

    def try_load(self, key: str) -> str | None:
        """The text, or None."""
        path = self._path(key)
        try:
            with open(path, encoding="utf-8") as f:
                return f.read()
        except OSError:
            return None
        except UnicodeDecodeError as e:
            warnings.warn(f"Failed to read from cache at {path}: {e}", stacklevel=2)
            return None
