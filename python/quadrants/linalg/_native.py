"""The object of `src/linalg`: matrices and solvers as handles, loaded at first use."""

from __future__ import annotations

import ctypes
import functools
import os
import pathlib
import threading
from typing import Any

from quadrants.lang.exception import QuadrantsRuntimeError

_POINTER, _INT, _REAL, _LONG = ctypes.c_void_p, ctypes.c_int, ctypes.c_double, ctypes.c_int64
_DONE = "whether there was memory"
_FUNCTIONS = {  # result, arguments
    "matrix": (_POINTER, _INT, _INT, _INT),
    "drop_matrix": (None, _POINTER),
    "set_triplets": (_DONE, _POINTER, _INT, _POINTER, _POINTER, _POINTER),
    "nonzeros": (_LONG, _POINTER),
    "triplets": (None, _POINTER, _POINTER, _POINTER, _POINTER),
    "get": (_REAL, _POINTER, _INT, _INT),
    "set": (_DONE, _POINTER, _INT, _INT, _REAL),
    "combined": (_POINTER, _POINTER, _POINTER, _INT),
    "scaled": (_POINTER, _POINTER, _REAL),
    "transposed": (_POINTER, _POINTER),
    "multiply": (_DONE, _POINTER, _POINTER, _POINTER),
    "text": (_LONG, _POINTER, ctypes.c_char_p, _LONG),
    "conjugate_gradients": (ctypes.c_bool, _POINTER, _POINTER, _POINTER, _INT, _REAL),
    "solver": (_POINTER, _INT, _INT, _INT),
    "drop_solver": (None, _POINTER),
    "analyze": (_DONE, _POINTER, _POINTER),
    "factorize": (_DONE, _POINTER, _POINTER),
    "solve": (ctypes.c_bool, _POINTER, _POINTER, _POINTER, _INT),
    "succeeded": (ctypes.c_bool, _POINTER),
}


# Threads may share matrices and solvers, which know nothing of threads.
lock = threading.RLock()


def _begin_anew() -> None:
    global lock
    lock = threading.RLock()  # who held it is not in this process


os.register_at_fork(after_in_child=_begin_anew)


@functools.cache
def _library() -> ctypes.CDLL:
    library = ctypes.CDLL(str(pathlib.Path(__file__).parent.parent / "_lib" / "libqd_linalg.so"))
    for name, (result, *arguments) in _FUNCTIONS.items():
        function = getattr(library, f"qd_linalg_{name}")
        function.restype = ctypes.c_bool if result is _DONE else result
        function.argtypes = arguments
    return library


def call(name: str, *args: Any) -> Any:
    """Calls a function of the object; NumPy arrays are given as their memory, and handles as what
    they stand for, which this keeps alive.

    Raises:
        QuadrantsRuntimeError: there is no memory.
    """
    function = getattr(_library(), f"qd_linalg_{name}")
    with lock:
        result = function(*map(_plain, args))
    if not result and _FUNCTIONS[name][0] in (_POINTER, _DONE):
        raise QuadrantsRuntimeError("Out of memory for a sparse matrix")
    return result


def whole(method: Any) -> Any:
    """A method that no other thread's comes in between of."""

    @functools.wraps(method)
    def alone(*args: Any, **kwargs: Any) -> Any:
        with lock:
            return method(*args, **kwargs)

    return alone


def _plain(arg: Any) -> Any:
    if isinstance(arg, Handle):
        return arg.address
    return arg.ctypes.data if hasattr(arg, "ctypes") else arg


class Handle:
    """A native object, dropped with this one."""

    def __init__(self, kind: str, address: int) -> None:
        self.address = address
        self._drop = getattr(_library(), f"qd_linalg_drop_{kind}")

    def __reduce__(self) -> Any:
        raise TypeError("a sparse matrix or solver is neither copied nor pickled")

    def __del__(self) -> None:
        if drop := getattr(self, "_drop", None):
            drop(self.address)
