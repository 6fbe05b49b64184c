"""Two older functions that the host calls; kept for programs written for them."""

from __future__ import annotations

from typing import Any

from quadrants.algorithms import _blocks
from quadrants.algorithms._blocks import _add
from quadrants.algorithms._common import has_blocks
from quadrants.lang.exception import QuadrantsRuntimeError
from quadrants.lang.impl import field as make_field
from quadrants.lang.impl import get_runtime
from quadrants.lang.kernel_impl import kernel
from quadrants.lang.ops import static
from quadrants.types.annotations import template
from quadrants.types.primitive_types import i32, u32

_GROUP = 64


def _warn(message: str) -> None:
    import warnings

    warnings.warn(message, DeprecationWarning, stacklevel=3)


@kernel
def _exchange(
    keys: template(),
    values: template(),
    has_values: template(),
    first_key: int,
    first_value: int,
    n: int,
    p: int,
    k: int,
    pairs: int,
):
    for pair in range(pairs):
        a = k % p + pair // k * 2 * k + pair % k
        b = a + k
        if b < n and a // (2 * p) == b // (2 * p):
            x, y = keys[first_key + a], keys[first_key + b]
            if x > y:
                keys[first_key + a], keys[first_key + b] = y, x
                if static(has_values):
                    v = values[first_value + a]
                    values[first_value + a] = values[first_value + b]
                    values[first_value + b] = v


def parallel_sort(keys: Any, values: Any = None) -> None:
    """Sorts a field in place, ascending, not stable, in O(n log(n)**2).

    Batcher's odd-even merge sort (K. E. Batcher, Sorting networks and their applications, 1968).

    Args:
        keys: 1-D scalar field.
        values: 1-D field as long as keys, permuted alike.

    Raises:
        QuadrantsRuntimeTypeError: an argument is an ndarray.
    """
    _warn(
        "qd.algorithms.parallel_sort is deprecated. Use qd.algorithms.sort, which is called from a kernel."
    )
    n = keys.shape[0]
    first_key = _first_index(keys)
    first_value = 0 if values is None else _first_index(values)
    moved = keys if values is None else values
    p = 1
    while p < n:
        k = p
        while k >= 1:
            pairs = (n - k % p + 2 * k - 1) // (2 * k) * k
            _exchange(keys, moved, values is not None, first_key, first_value, n, p, k, pairs)
            k //= 2
        p *= 2
    get_runtime().sync()


@kernel
def _prefix_sum(x: template(), sums: template(), n: int):
    _blocks.scan(x, x, sums, 0, n, i32, _add, 0, True)


def _first_index(x: Any) -> int:
    snode = getattr(x, "snode", None)  # an ndarray has none; the kernel refuses it
    offset = snode.ptr.offset if snode is not None else ()
    return offset[0] if offset else 0


class PrefixSumExecutor:
    """Inclusive prefix sums of i32 fields of one length, in place.

    Args:
        length: number of elements.

    Raises:
        QuadrantsRuntimeError: the length is below 2, or `qd.init` has not been called.
    """

    def __init__(self, length: int) -> None:
        _warn(
            "qd.algorithms.PrefixSumExecutor is deprecated. Use qd.algorithms.exclusive_scan_add."
        )
        if length < 2:
            raise QuadrantsRuntimeError(f"A prefix sum needs at least 2 elements, got {length}.")
        sums = [-(-length // _GROUP)]
        while sums[-1] > 1:
            sums.append(-(-sums[-1] // _GROUP))
        self._length = length
        self._sums = make_field(u32, shape=_GROUP * sum(sums))

    def run(self, input_arr: Any) -> None:
        """Replaces every element by the sum up to and including it.

        Args:
            input_arr: 1-D i32 field of that length.

        Raises:
            RuntimeError: the field is not i32, or the architecture is neither CUDA nor Vulkan.
        """
        if input_arr.dtype is not i32:
            raise RuntimeError("Only qd.i32 type is supported for prefix sum.")
        if not has_blocks():
            arch = get_runtime().prog.config().arch
            raise RuntimeError(f"{arch} is not supported for prefix sum.")
        _prefix_sum(input_arr, self._sums, self._length)
