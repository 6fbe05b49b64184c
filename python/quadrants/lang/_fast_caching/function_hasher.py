"""Hashes of the source of functions. See `quadrants._compat.fast_caching`."""

import os

from quadrants._compat.fast_caching import hash_text
from quadrants.lang._fast_caching.fast_caching_types import HashedFunctionSourceInfo
from quadrants.lang._wrap_inspect import FunctionSourceInfo
from quadrants.lang.kernel_impl import pure

__all__ = ["hash_functions", "hash_kernel", "pure", "validate_hashed_function_infos"]


_files: dict[str, tuple[tuple[int, int, int], list[str]]] = {}  # as they were, by path


def lines_of(path: str) -> list[str]:
    """The lines of a source file, which is read again when it has changed."""
    found = os.stat(path)
    state = found.st_mtime_ns, found.st_size, found.st_ino
    if path not in _files or _files[path][0] != state:
        with open(path, encoding="utf-8") as f:
            _files[path] = state, f.read().split("\n")
    return _files[path][1]


def _read_file(info: FunctionSourceInfo) -> list[str]:
    """The function's lines, its numbers counted from zero, last one included."""
    return lines_of(info.filepath)[info.start_lineno : info.end_lineno + 1]


def hash_kernel(info: FunctionSourceInfo) -> str:
    """Hash of one function's source."""
    return hash_text("\n".join(_read_file(info)))


def hash_functions(infos: list[FunctionSourceInfo]) -> list[HashedFunctionSourceInfo]:
    """Hashes of several functions."""
    return [HashedFunctionSourceInfo(function_source_info=i, hash=hash_kernel(i)) for i in infos]


def validate_hashed_function_infos(infos: list[HashedFunctionSourceInfo]) -> bool:
    """Whether every function can be read and is as it was."""
    for info in infos:
        try:
            if hash_kernel(info.function_source_info) != info.hash:
                return False
        except (OSError, ValueError):
            return False
    return True
