"""Entries of kernels declared `fastcache=True`, for `cache`: what native code says of all others.

They say what a call was keyed on and where its code is, and run nothing; sources are compared again when
one is looked up. An entry is called `declared/<key>` here and in archives.
"""

from __future__ import annotations

import json
import os
import re

from quadrants._compat.side_files import LARGEST, PythonSideCache, read_entry
from quadrants._lib import core

PREFIX = "declared/"
_FILE = re.compile(r"([0-9a-f]{64})\.cache\.txt")
_NAME = re.compile(PREFIX + "[0-9a-f]{64}")
_Fields = dict[str, type | tuple[type, ...]]
# Field -> what it holds.
_FIELDS: _Fields = {
    "frontend_cache_key": str,
    "hashed_function_source_infos": list,
    "used_py_dataclass_parameters": list,
    "graph_do_while_levels": (list, type(None)),
    "checkpoint_yield_on_args": list,
    "checkpoint_yield_on_cpp_arg_ids": list,
    "checkpoint_user_labels_by_cp_id": list,
    "checkpoint_user_label_enum_qualnames": list,
}
_ROW: _Fields = {"function_source_info": dict, "hash": str}
_PLACE: _Fields = {"function_name": str, "filepath": str, "start_lineno": int, "end_lineno": int}


def entries(folder: str) -> list[tuple[str, str, int, float, bool]]:
    """Name, path, bytes, time of last use, and whether it is whole."""
    cache = PythonSideCache(folder)
    found = []
    if core.cache_may_hold(folder, False) and os.path.isdir(cache.cache_folder):
        for file in sorted(os.listdir(cache.cache_folder)):
            path = os.path.join(cache.cache_folder, file)
            if key := _FILE.fullmatch(file):
                try:
                    info = os.lstat(path)
                except OSError:  # somebody clears the folder
                    continue
                whole = _read(path) is not None
                found.append((PREFIX + key[1], path, info.st_size, info.st_mtime, whole))
    return found


def read(folder: str, name: str) -> bytes | None:
    """The content of an entry; None if it is not whole."""
    key = name.removeprefix(PREFIX)
    return _read(os.path.join(PythonSideCache(folder).cache_folder, f"{key}.cache.txt"))


def _read(path: str) -> bytes | None:
    try:
        text = read_entry(path)
    except (OSError, UnicodeDecodeError):
        return None
    content = text.encode()
    return content if _is_entry(content) else None


def check_name(name: str) -> None:
    """Raises ValueError unless an entry may be called so."""
    if not _NAME.fullmatch(name):
        raise ValueError(f"'{name}' is no name of a cache entry")


def check(name: str, content: bytes) -> None:
    """Raises ValueError unless this may be an entry's content."""
    if len(content) > LARGEST or not _is_entry(content):
        raise ValueError(f"{name} is no entry of a declared kernel")


def write(folder: str, name: str, content: bytes) -> bool:
    """Makes an entry of a name and its content; whether it is there now."""
    try:
        PythonSideCache(folder).store(name.removeprefix(PREFIX), content.decode())
    except OSError:
        return False
    return True


def _is_entry(content: bytes) -> bool:
    try:
        entry = json.loads(content.decode())
        return _has(entry, _FIELDS) and all(
            _has(row, _ROW) and _has(row["function_source_info"], _PLACE)
            for row in entry["hashed_function_source_infos"]
        )
    except (ValueError, RecursionError):
        return False


def _has(value: object, fields: _Fields) -> bool:
    return isinstance(value, dict) and all(
        name in value and isinstance(value[name], kind) for name, kind in fields.items()
    )
