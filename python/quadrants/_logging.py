"""Log lines on file descriptor 2.

A line is `[<L> date time pid] [file:function@line] text`. Clients replace the six functions, so
package code calls them through the module, with one finished string.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from typing import Any

supported_log_levels = ["trace", "debug", "info", "warn", "error", "critical", "off"]
TRACE, DEBUG, INFO, WARN, ERROR, CRITICAL = supported_log_levels[:6]

_level = supported_log_levels.index(INFO)


def _rank(level: str) -> int:
    try:
        return supported_log_levels.index(level)
    except ValueError:
        text = f"Unknown logging level [{level}]. Levels = {', '.join(supported_log_levels)}"
        _emit(ERROR, text, sys._getframe(2))
        raise RuntimeError(text) from None


def set_logging_level(level: str) -> None:
    """Shows messages of this level and above.

    Args:
        level: trace, debug, info, warn, error, critical or off.

    Raises:
        RuntimeError: another level.
    """
    global _level
    _level = _rank(level)
    from quadrants._lib import core

    if core.native_loaded():  # else it is told by the program that starts
        core.set_log_level(_level)


def is_logging_effective(level: str) -> bool:
    """Whether messages of a level are shown.

    Args:
        level: trace, debug, info, warn, error, critical or off.

    Raises:
        RuntimeError: another level.
    """
    return _rank(level) >= _level


def _emit(level: str, text: str, frame: Any) -> str:
    code = frame.f_code
    where = f"[{os.path.basename(code.co_filename)}:{code.co_name}@{frame.f_lineno}] {text}"
    if supported_log_levels.index(level) >= _level:
        now = time.time()
        stamp = time.strftime("%m/%d/%y %H:%M:%S", time.localtime(now))
        line = f"[{level[0].upper()} {stamp}.{int(now * 1000) % 1000:03d} {os.getpid()}] {where}\n"
        from quadrants._lib import core

        if core.native_loaded():
            core.hide_progress()
        os.write(2, line.encode("utf-8", "replace"))
    return where


def _formatted(text: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """As `str.format` does; a finished text with braces of its own is left as it is."""
    text = str(text)
    try:
        return text.format(*args, **kwargs)
    except (IndexError, KeyError, ValueError, AttributeError):
        if args or kwargs:
            raise
        return text


def _get_logging(level: str) -> Callable[..., None]:
    """The logging function of a level."""
    fatal = level in (ERROR, CRITICAL)

    def log(msg: str, *args: Any, **kwargs: Any) -> None:
        if not fatal and supported_log_levels.index(level) < _level:
            return
        text = _formatted(msg, args, kwargs)
        where = _emit(level, text, sys._getframe(1))
        if fatal:
            raise RuntimeError(where)

    log.__name__ = log.__qualname__ = level
    return log


trace = _get_logging(TRACE)
debug = _get_logging(DEBUG)
info = _get_logging(INFO)
warn = _get_logging(WARN)
error = _get_logging(ERROR)
critical = _get_logging(CRITICAL)


def _level_from_environment() -> None:
    level = os.environ.get("QD_LOG_LEVEL")
    if level:
        set_logging_level(level.lower())


_level_from_environment()
