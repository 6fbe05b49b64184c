"""Files of `python_side_cache`, and hashes of what they are named after.

A first call may wait for this: no `dataclasses`, `inspect` or `hashlib` here, whose imports take longer
than all that is done with them.
"""

from __future__ import annotations

import os
import stat
import sys
import warnings

if sys.version_info >= (3, 12):
    from _sha2 import sha256
else:
    from _sha256 import sha256

from quadrants._lib import core

FIELD_METADATA_CACHE_VALUE = "add_value_to_cache_key"


def hash_text(text: str) -> str:
    """SHA-256 as hexadecimal digits."""
    return str(sha256(text.encode("utf-8", "surrogatepass")).hexdigest())  # paths have them


# --- sources ---

_files: dict[str, tuple[tuple[int, int, int], list[str]]] = {}  # as they were, by path


def lines_of(path: str) -> list[str]:
    """The lines of a source file, newlines included, which is read again when it has changed."""
    found = os.stat(path)
    state = found.st_mtime_ns, found.st_size, found.st_ino
    if path not in _files or _files[path][0] != state:
        with open(path, encoding="utf-8") as f:
            _files[path] = state, f.readlines()
    return _files[path][1]


def function_lines(path: str, first: int, last: int) -> list[str]:
    """A function's lines, its numbers counted from zero, the last one included."""
    return lines_of(path)[first : last + 1]


# --- config ---

_EXCLUDED_PREFIXES = ("_", "offline_cache", "print_", "verbose_")
_EXCLUDED = ("debug_dump_path", "cuda_stack_limit", "external_metal_command_queue")


def hash_compile_config() -> str:
    """Hash of the options that influence code."""
    from quadrants.lang.impl import current_cfg

    values = vars(current_cfg())
    if values["_hash"] is None:  # until an option is written
        rows = [
            f"{name}={values[name]}"
            for name in sorted(values)
            if not name.startswith(_EXCLUDED_PREFIXES) and name not in _EXCLUDED
        ]
        values["_hash"] = hash_text("\n".join(rows))
    return values["_hash"]


def hash_device_caps() -> str:
    """Hash of what the device can do."""
    from quadrants.lang.impl import get_runtime

    return get_runtime().prog.get_device_caps().hashed_key()


# --- files ---


LARGEST = 16 << 20  # bytes of an entry; usual ones have some thousand


def read_entry(path: str) -> str:
    """An entry's text. What is no plain file is not waited for, and nothing endless is read."""
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    with open(descriptor, encoding="utf-8") as f:
        info = os.fstat(descriptor)
        if not stat.S_ISREG(info.st_mode) or info.st_size > LARGEST:
            raise OSError("no entry")
        return f.read()


class PythonSideCache:
    """Texts by key, in a folder of the cache.

    Args:
        root: that cache; None: the one that `qd.init` was told.
    """

    def __init__(self, root: str | None = None) -> None:
        if root is None:
            from quadrants.lang.impl import current_cfg

            root = str(current_cfg().offline_cache_file_path)
        self._root = root
        self.cache_folder = os.path.join(self._root, "python_side_cache") if self._root else ""

    def _path(self, key: str) -> str:
        return os.path.join(self.cache_folder, f"{key}.cache.txt")

    def store(self, key: str, text: str) -> None:
        """Writes a text; readers see the old one or the new one."""
        if not core.cache_may_hold(self._root, True):
            raise PermissionError(f"the cache ignores {self._root}")
        os.makedirs(self.cache_folder, exist_ok=True)
        path = self._path(key)
        partial = f"{path}.{os.getpid()}"
        with open(partial, "w", encoding="utf-8") as f:
            f.write(text)
        os.replace(partial, path)

    def try_load(self, key: str) -> str | None:
        """The text, or None."""
        path = self._path(key)
        if not core.cache_may_hold(self._root, False):
            return None
        try:
            text = read_entry(path)
        except OSError:
            return None
        except UnicodeDecodeError as e:
            warnings.warn(f"Failed to read from cache at {path}: {e}", stacklevel=2)
            return None
        try:
            os.utime(path)  # who clears old entries by hand sees which are used
        except OSError:  # a read-only folder
            pass
        return text
