"""Where a function's source is."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from quadrants.lang._inspect import typed_source


@dataclass(frozen=True)
class FunctionSourceInfo:
    """Position of a function: lines are 1-based and inclusive, starting at its first decorator."""

    function_name: str
    filepath: str
    start_lineno: int
    end_lineno: int


def get_source_info_and_src(func: Callable[..., Any]) -> tuple[FunctionSourceInfo, list[str]]:
    """Position and raw source lines of a function.

    Raises:
        OSError: there is no source.
    """
    try:
        lines, start = inspect.getsourcelines(func)
        path = inspect.getsourcefile(func) or "<unknown>"
    except (OSError, TypeError) as e:
        typed = typed_source.find(func) if inspect.isfunction(func) else None
        if typed is None:
            raise OSError(f"Cannot find source code for Object: {func}") from e
        text, start = typed
        path = func.__code__.co_filename
        lines = inspect.getblock(text.splitlines(keepends=True)[start - 1 :])
    name = getattr(func, "__name__", "<unknown>")
    return FunctionSourceInfo(name, path, start, start + len(lines) - 1), lines
