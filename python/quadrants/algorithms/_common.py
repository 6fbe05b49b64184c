"""What the device-wide algorithms share: element types, depths, sizes of workspaces.

Arrays are cut into blocks of 256 elements. A first loop over the blocks leaves one number of each in
the workspace, a serial one turns these into prefixes, a last one uses them. On the CPU that is all;
targets whose threads work in blocks do the same in `_blocks`. `log256_max_n` (D) is checked and
otherwise of little importance.
"""

from __future__ import annotations

from typing import Any

from quadrants.lang.kernel_impl import func
from quadrants.lang.ops import bit_cast, cast, static
from quadrants.types.annotations import template
from quadrants.types.primitive_types import f32, f64, i32, i64, u32, u64

BLOCK = 256
THREADS = 256  # of a block of threads
MAX_DEPTH = 4
DTYPES = (i32, u32, f32, i64, u64, f64)


def has_blocks() -> bool:
    """Whether threads of the target work in blocks."""
    from quadrants.lang.simt import _target

    return _target.has_blocks()


def lane_mask() -> Any:
    """An unsigned integer with a bit for each lane of a subgroup."""
    from quadrants.lang.simt import subgroup

    return u32 if subgroup.group_size() == 32 else u64


def check(what: str, dtype: Any, depth: int) -> None:
    """Raises unless an algorithm has this element type and depth.

    Raises:
        NotImplementedError: the dtype is none of the six of 32 and 64 bits.
        ValueError: the depth is above 4.
    """
    if not any(dtype is known for known in DTYPES):
        raise NotImplementedError(
            f"{what} dtype {dtype} not supported; known: {', '.join(map(str, DTYPES))}"
        )
    check_depth(depth)


def check_depth(depth: int) -> None:
    """Raises `ValueError` if the depth is above 4."""
    if depth > MAX_DEPTH:
        raise ValueError(
            f"log256_max_n={depth} exceeds the maximum of {MAX_DEPTH}: arrays are indexed with 32-bit "
            f"signed integers, and 256**{MAX_DEPTH} covers all of these."
        )


def depth_for(n: int) -> int:
    """The smallest D >= 1 with 256**D >= n."""
    depth = 1
    while depth <= MAX_DEPTH and BLOCK**depth < n:
        depth += 1
    return depth


def blocks(n: Any) -> Any:
    """Blocks of n elements; n may be a value of a kernel."""
    return (n + (BLOCK - 1)) // BLOCK


def at_least_one(n: Any) -> Any:
    if isinstance(n, int):
        return max(n, 1)
    from quadrants.lang.ops import max as largest

    return largest(n, 1)


def level_slots(n: Any, depth: int) -> Any:
    """Slots of the partial results of all levels but the last: c(n) + c(c(n)) + ..."""
    check_depth(depth)
    total = 0
    for _ in range(depth - 1):
        n = blocks(n)
        total = total + n
    return total


def unsigned(dtype: Any) -> Any:
    """The unsigned integer of the same size."""
    return u32 if dtype.size == 4 else u64


def lowest(dtype: Any) -> Any:
    """The identity of max."""
    if dtype in (f32, f64):
        return float("-inf")
    return 0 if dtype in (u32, u64) else -(2 ** (8 * dtype.size - 1))


def highest(dtype: Any) -> Any:
    """The identity of min."""
    if dtype in (f32, f64):
        return float("inf")
    return 2 ** (8 * dtype.size - (dtype not in (u32, u64))) - 1


@func
def constant(value: template(), dtype: template()):
    """A Python number as a value of the dtype."""
    if static(isinstance(value, float) or dtype in (f32, f64)):
        return cast(value, dtype)
    return dtype(value)


@func
def ordered_bits(key, dtype: template()):
    """The key as an unsigned integer of the same order."""
    bits = bit_cast(key, static(unsigned(dtype)))
    sign = static(unsigned(dtype))(static(1 << (8 * dtype.size - 1)))
    if static(dtype in (i32, i64)):
        bits = bits ^ sign
    if static(dtype in (f32, f64)):
        if (bits & sign) != 0:
            bits = ~bits
        else:
            bits = bits ^ sign
    return bits


@func
def digit(bits, low_bit):
    """Eight bits of an unsigned integer."""
    return cast(bits >> low_bit, i32) & 255


@func
def key_of(bits, dtype: template()):
    """The key whose `ordered_bits` these are."""
    sign = static(unsigned(dtype))(static(1 << (8 * dtype.size - 1)))
    if static(dtype in (i32, i64)):
        bits = bits ^ sign
    if static(dtype in (f32, f64)):
        if (bits & sign) != 0:
            bits = bits ^ sign
        else:
            bits = ~bits
    return bit_cast(bits, dtype)
