"""Kernels from files and strings."""

import importlib.util
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


def import_kernel_from_file(path: str, name: str) -> Any:
    """The object of that name in the Python file."""
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, name)


@contextmanager
def load_kernel_from_string(src: str, name: str) -> Iterator[Any]:
    """The object of that name in the source text, which is a file for the while."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, f"{name}.py")
        with open(path, "w", encoding="utf-8") as f:
            f.write(src)
        yield import_kernel_from_file(path, name)
