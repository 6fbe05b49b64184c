"""Hashes of the source of functions. See `quadrants._compat.fast_caching`."""

from quadrants._compat.side_files import function_lines, hash_text
from quadrants.lang._fast_caching.fast_caching_types import HashedFunctionSourceInfo
from quadrants.lang._wrap_inspect import FunctionSourceInfo
from quadrants.lang.kernel_impl import pure

__all__ = ["hash_functions", "hash_kernel", "pure", "validate_hashed_function_infos"]


def _read_file(info: FunctionSourceInfo) -> list[str]:
    """The function's lines, newlines included, its numbers counted from zero, last one included."""
    return function_lines(info.filepath, info.start_lineno, info.end_lineno)


def hash_kernel(info: FunctionSourceInfo) -> str:
    """Hash of one function's source."""
    return hash_text("".join(_read_file(info)))


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
