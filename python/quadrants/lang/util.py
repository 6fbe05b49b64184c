"""Conversions between dtypes of this package, NumPy, torch and Python."""

from __future__ import annotations

import functools
import os
import warnings
from typing import Any

from quadrants.types.annotations import Template
from quadrants.types.primitive_types import DataType, by_name, u1

_NUMPY_NAMES = {"u": "uint", "i": "int", "f": "float"}


def _long_name(dt: DataType) -> str:
    return "bool" if dt is u1 else _NUMPY_NAMES[dt.name[0]] + str(dt.bits)


_MOST_COMPONENTS = 65535


def real_numbers(values: Any) -> Any:
    """The array as it is; TypeError if something in it is no real number."""
    kind = values.dtype.kind
    if kind not in "biuf":
        for v in values.flat:
            if kind != "O" or not hasattr(type(v), "__float__"):
                raise TypeError(f"numbers are expected as components, got {v!r}")
    return values


def check_element_shape(*extents: Any) -> None:
    """Raises unless an element may have these rows and columns; None is open."""
    count = 1
    for extent in extents:
        if extent is not None and not hasattr(type(extent), "__index__"):
            raise TypeError(f"rows and columns are ints, got {extent!r}")
        count *= 1 if extent is None else max(extent.__index__(), 0)
    if not 0 < count <= _MOST_COMPONENTS:
        raise ValueError(
            f"a vector or matrix has 1 to {_MOST_COMPONENTS} components, not "
            f"{' x '.join(map(str, extents))}; give more axes to the field or array instead"
        )


def cook_dtype(dtype: Any) -> Any:
    """The dtype that a user's `float`, `int`, `bool` or dtype stands for; `ValueError` for others."""
    if isinstance(dtype, DataType):
        return dtype
    from quadrants.lang.impl import get_runtime

    if dtype is float:
        return get_runtime().default_fp
    if dtype is int:
        return get_runtime().default_ip
    if dtype is bool:
        return u1
    raise ValueError(f"Invalid data type {dtype}")


def is_one_index(value: Any) -> bool:
    """Whether a shape, offset or extent is one integer; a NumPy array of several is not."""
    return hasattr(type(value), "__index__") and not getattr(value, "shape", ())


def to_numpy_type(dt: Any) -> Any:
    """The NumPy dtype of a dtype."""
    import numpy as np

    dt = cook_dtype(dt)
    return np.bool_ if dt is u1 else getattr(np, _long_name(dt))


def to_pytorch_type(dt: Any) -> Any:
    """The torch dtype of a dtype; `RuntimeError` if this torch has none."""
    import torch

    name = _long_name(cook_dtype(dt))
    found = getattr(torch, name, None)
    if found is None:
        raise RuntimeError(f"PyTorch doesn't support {dt} data type.")
    return found


def to_quadrants_type(dt: Any) -> DataType:
    """The dtype of a NumPy, torch or own dtype."""
    if isinstance(dt, DataType):
        return dt
    text = str(dt)
    if text.startswith("torch."):
        name = text[6:]
    else:
        import numpy as np

        name = np.dtype(dt).name
    if name == "bool":
        return u1
    for prefix, short in (("uint", "u"), ("int", "i"), ("float", "f")):
        if name.startswith(prefix):
            try:
                return by_name(short + name[len(prefix) :])
            except KeyError:
                break
    raise TypeError(f"{dt} is not supported.")


dtype_to_torch_dtype = to_pytorch_type


def has_pytorch() -> bool:
    """Whether torch can be imported; `QD_ENABLE_TORCH=0` pretends it cannot."""
    from quadrants.lang._config import number

    if not number(os.environ, "QD_ENABLE_TORCH", int, "1"):
        return False
    return _torch_imports()


@functools.lru_cache(None)
def _torch_imports() -> bool:
    try:
        import torch  # noqa: F401
    except ImportError:
        return False
    return True


def get_clangpp() -> str | None:
    """Path of a clang++ on this machine."""
    from shutil import which

    names = ["clang++", *(f"clang++-{v}" for v in range(22, 9, -1))]
    return next((path for n in names if (path := which(n))), None)


def has_clangpp() -> bool:
    """Whether there is a clang++."""
    return get_clangpp() is not None


def is_data_oriented(obj: Any) -> bool:
    """Whether obj is of a class decorated with `@qd.data_oriented`."""
    return getattr(type(obj), "_data_oriented", False)


def is_qd_template(annotation: Any) -> bool:
    """Whether an annotation means a template parameter."""
    return annotation is Template or isinstance(annotation, Template)


def warning(text: str, category: type[Warning] = UserWarning, stacklevel: int = 1) -> None:
    """Issues a Python warning."""
    warnings.warn(text, category, stacklevel=stacklevel + 1)


def get_traceback(stacklevel: int = 1) -> str:
    """The calls in progress, as text.

    Args:
        stacklevel: how many of the innermost to leave out.
    """
    import traceback

    return "".join(traceback.format_stack()[: -1 - stacklevel])


# --- what a value is and where the code runs, for functions that kernels and the host call ---


def in_quadrants_scope() -> bool:
    """Whether a kernel is being traced."""
    from quadrants.lang.impl import inside_kernel

    return inside_kernel()


def in_python_scope() -> bool:
    """Whether no kernel is being traced."""
    return not in_quadrants_scope()


def is_matrix_class(value: Any) -> bool:
    """Whether a value is a matrix or vector of the host."""
    from quadrants.lang.matrix import Matrix

    return isinstance(value, Matrix)


def is_quadrants_class(value: Any) -> bool:
    """Whether a value is a matrix, vector or struct of the host."""
    from quadrants.lang.struct import Struct

    return is_matrix_class(value) or isinstance(value, Struct)
