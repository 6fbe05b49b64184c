"""Source of functions that neither a file nor `linecache` holds: typed, passed in or archived.

Asked by native code and by `_wrap_inspect`. A text counts if compiling it gives the very code of the
function. Cells of notebooks are also taken by name and line, since magics such as %%timeit wrap them.
"""

from __future__ import annotations
import __future__

import ast
import os
import sys
from collections.abc import Iterator
from types import CodeType, FunctionType
from typing import Any

_FUTURE = 0
for _name in __future__.all_feature_names:
    _FUTURE |= getattr(__future__, _name).compiler_flag
_HEADERS = ("def ", "class ", "async ", "if ", "for ", "while ", "with ", "try:")
_INNER = (" ", "\t", ")", "]", "}", "else", "elif", "except", "finally")


def find(function: FunctionType) -> tuple[str, int] | None:
    """The text that a function was made from, and the line at which it begins there."""
    code = function.__code__
    for text in _loaded(function):
        if _makes(text, code):
            return text, code.co_firstlineno
    for texts in (_cells, _statements, _program, _blender_texts):
        for text in texts(code):
            if _makes(text, code):
                return text, code.co_firstlineno
    for text in _cells(code):
        if _defines(text, code):
            return text, code.co_firstlineno
    return None


def _makes(text: str, code: CodeType) -> bool:
    if code.co_name not in text:
        return False
    try:
        whole = compile(text, code.co_filename, "exec", code.co_flags & _FUTURE, True)
    except (SyntaxError, ValueError):
        return False
    waiting = [whole]
    for part in waiting:
        if part == code:
            return True
        waiting += [c for c in part.co_consts if isinstance(c, CodeType)]
    return False


def _defines(text: str, code: CodeType) -> bool:
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return False
    return any(
        isinstance(node, ast.FunctionDef)
        and node.name == code.co_name
        and min([node.lineno, *(d.lineno for d in node.decorator_list)]) == code.co_firstlineno
        for node in ast.walk(tree)
    )


def _loaded(function: FunctionType) -> Iterator[str]:
    """What the loader of the function's module says: modules in archives have no file."""
    loader: Any = function.__globals__.get("__loader__")
    path = function.__code__.co_filename
    if os.path.exists(path) and not os.path.isfile(path):
        return  # a pipe, which may block whoever reads on
    try:
        text = loader.get_source(function.__globals__["__name__"])
    except (AttributeError, ImportError, KeyError, OSError):
        return
    if isinstance(text, str):
        yield text


def _cells(code: CodeType) -> Iterator[str]:
    """Bodies of cell magics, newest first; plain cells are known to `linecache`."""
    module = sys.modules.get("IPython")
    shell = module and module.get_ipython()
    if shell is None:
        return
    for cell in reversed(shell.history_manager.input_hist_raw):
        head, _, body = cell.lstrip().partition("\n")
        if head.startswith("%%"):
            yield shell.transform_cell(body)


def _statements(code: CodeType) -> Iterator[str]:
    """Statements of the interactive interpreter's history, newest first.

    A line number counts from the statement's first line; the history has no blank lines.
    """
    readline = sys.modules.get("readline")
    if readline is None or code.co_filename != "<stdin>":
        return
    size = readline.get_current_history_length()
    lines = [readline.get_history_item(k + 1) or "" for k in range(size)]
    for first in range(len(lines) - 1, -1, -1):
        at = first + code.co_firstlineno - 1
        if at >= len(lines) or not lines[at].lstrip().startswith(("@", "def ", "async ")):
            continue
        end = first
        while end < len(lines) and not lines[end].startswith(_HEADERS):  # decorators
            end += 1
        end += 1
        while end < len(lines) and lines[end].startswith(_INNER):
            end += 1
        yield "\n".join(lines[first:end]) + "\n"


def _program(code: CodeType) -> Iterator[str]:
    """What came with `python -c`, or from a file on standard input."""
    if code.co_filename == "<string>":
        for option, value in zip(sys.orig_argv[1:], sys.orig_argv[2:]):
            if option.startswith("-") and option.endswith("c"):
                yield value
                return
    elif code.co_filename == "<stdin>":
        try:
            yield os.pread(0, os.fstat(0).st_size, 0).decode()
        except (OSError, ValueError):  # a terminal or a pipe
            return


def _blender_texts(code: CodeType) -> Iterator[str]:
    bpy = sys.modules.get("bpy")
    if bpy is not None:
        for text in bpy.data.texts:
            yield text.as_string()
