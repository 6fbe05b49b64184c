"""The entries of kernels declared `fastcache=True`: files in `python_side_cache` (chapter 51, sections 6 to 9).

What may be reused is decided by recipes and their guards, which are exact. An entry says the same in
the chapter's terms: what it was keyed on, which sources it depends on, where its code is.
"""

from __future__ import annotations

import enum
import json
import os
import sys
import warnings
import weakref
from collections.abc import Iterable
from typing import Any

from quadrants import __version_str__
from quadrants._compat import side_files
from quadrants._lib import core
from quadrants.lang._fast_caching import config_hasher
from quadrants.lang.util import is_data_oriented

_SCHEMA = 1
_ranges: dict[Any, tuple[int, int]] = {}  # first and last line by code object


def _last_line(code: Any) -> int:
    found = _ranges.get(code)
    if found is None:
        if sys.version_info >= (3, 11):
            last = core.last_line(code)
        else:
            last = max((line for _, _, line in code.co_lines() if line), default=0)
        inner = (_last_line(c) for c in code.co_consts if isinstance(c, type(code)))
        found = _ranges[code] = (code.co_firstlineno, max(last, code.co_firstlineno, *inner))
    return found[1]


def _place(function: Any) -> dict[str, Any]:
    code = function.__code__
    return {
        "function_name": function.__name__,
        "filepath": code.co_filename,
        "start_lineno": code.co_firstlineno,
        "end_lineno": _last_line(code),
    }


def _hash(place: dict[str, Any]) -> str:
    lines = side_files.function_lines(place["filepath"], place["start_lineno"], place["end_lineno"])
    return side_files.hash_text("".join(lines))


class Gone(Exception):
    """An object of the call is no more, so the entry cannot be named."""


def _value_text(value: Any, names: set[str], fixed: bool = True) -> str:
    """What a value adds to the key: of an object its members that are named in the source, not its
    class; of members that are no constants (`fixed`) their types alone."""
    if isinstance(value, weakref.ref):
        value = value()
        if value is None:
            raise Gone
    cls = type(value)
    if isinstance(value, enum.Enum):
        return f"{cls.__module__}.{cls.__qualname__}.{value.name}={value.value}"
    if is_data_oriented(value):
        fixed = fixed and getattr(cls, "_qd_template_primitives", True)
        members = value._asdict() if hasattr(value, "_asdict") else vars(value)
        read = {n: members[n] for n in names & members.keys()}
        read |= {n: getattr(value, n) for n in names & _properties(cls)}
    elif hasattr(cls, "__dataclass_fields__"):
        read = {n: getattr(value, n) for n in names & cls.__dataclass_fields__.keys()}
    else:
        text = f"{cls.__module__}.{cls.__qualname__}"
        known = isinstance(value, (int, float, str)) or cls.__module__ == "numpy"
        return f"{text}={value}" if known and fixed else text
    return str([(n, _value_text(read[n], names, fixed)) for n in sorted(read)])


def _properties(cls: type) -> set[str]:
    return {n for c in cls.__mro__ for n, m in vars(c).items() if isinstance(m, property)}


def _enum_name(label: Any) -> str | None:
    if not isinstance(label, enum.Enum):
        return None
    return f"{type(label).__module__}.{type(label).__qualname__}.{label.name}"


def key_of(
    kernel: Any, kinds: tuple[str, ...], functions: list[Any], specialisation: dict[str, Any]
) -> str | None:
    """The entry's name; None if the kernel's source cannot be read. May raise `Gone`.

    Args:
        kernel: what the decorator made.
        kinds: of the call's arguments.
        functions: that the code depends on, the kernel's first.
        specialisation: as native code describes it.
    """
    place = _place(kernel.fn)
    try:
        lines = side_files.lines_of(place["filepath"])
    except (OSError, ValueError):
        return None
    names = {kernel.__name__}.union(*(f.__code__.co_names for f in functions))
    fixed = [(name, path, _value_text(v, names)) for name, path, v in specialisation["fixed"]]
    return side_files.hash_text(
        "\n".join(
            (
                __version_str__,
                "".join(lines[place["start_lineno"] - 1 : place["end_lineno"]]),
                repr((kernel.graph, kernel.checkpoints)),
                repr(kinds),
                repr(sorted(map(repr, specialisation["passed"]))),
                repr(sorted(map(repr, fixed))),
                config_hasher.hash_compile_config(),
                config_hasher.hash_device_caps(),
                place["filepath"],
                str(place["start_lineno"]),
                os.environ.get("QD_KERNEL_COVERAGE", ""),
                f"pruned {_SCHEMA}",
            )
        )
    )


def _is_as_it_was(place: dict[str, Any], hashed: str) -> bool:
    try:
        return _hash(place) == hashed
    except OSError:
        return False


def validate(key: str) -> bool:
    """Whether there is an entry and the sources that it names are as they were."""
    cache = side_files.PythonSideCache()
    text = cache.try_load(key)
    if text is None:
        return False
    try:
        rows = json.loads(text)["hashed_function_source_infos"]
        return all(_is_as_it_was(row["function_source_info"], row["hash"]) for row in rows)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as e:
        path = os.path.join(cache.cache_folder, f"{key}.cache.txt")
        warnings.warn(
            f"Failed to parse cache file {path}: {e}. It will be written again.", stacklevel=2
        )
        return False


def _used_members(specialisation: dict[str, Any]) -> list[str]:
    if not any(path for *_, path in specialisation["passed"]):
        return []
    from quadrants._compat.specialisations import used_members

    return sorted(used_members(specialisation))


def flag_ids(
    loops: Iterable[tuple[str, int]], checkpoints: Iterable[tuple[Any, str | None]]
) -> dict[str | None, int]:
    """A number for each parameter that a graph looks at."""
    flags = [flag for flag, _ in loops] + [flag for _, flag in checkpoints if flag]
    return {flag: n for n, flag in enumerate(dict.fromkeys(flags))}


def store(key: str, functions: Iterable[Any], specialisation: dict[str, Any]) -> bool:
    """Writes the entry; whether that went well."""
    try:
        places = [_place(f) for f in functions]
        levels, checkpoints = specialisation["graph"]
        ids = flag_ids(levels, checkpoints)
        entry = {
            "frontend_cache_key": specialisation["code"],
            "hashed_function_source_infos": [
                {"function_source_info": place, "hash": _hash(place)} for place in places
            ],
            "used_py_dataclass_parameters": _used_members(specialisation),
            "graph_do_while_levels": [(f, parent, ids[f]) for f, parent in levels] or None,
            "checkpoint_yield_on_args": [flag for _, flag in checkpoints],
            "checkpoint_yield_on_cpp_arg_ids": [ids.get(flag, -1) for _, flag in checkpoints],
            "checkpoint_user_labels_by_cp_id": [label for label, _ in checkpoints],
            "checkpoint_user_label_enum_qualnames": [_enum_name(label) for label, _ in checkpoints],
        }  # fmt: skip
        side_files.PythonSideCache().store(key, json.dumps(entry))
    except (OSError, ValueError, TypeError):  # no source, no place for it, or labels of all kinds
        return False
    return True
