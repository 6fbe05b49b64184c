"""Enumerations of the public interface."""

from quadrants._lib.core import _enums
from quadrants._lib.core._enums import BoundaryMode, Layout

__all__ = ["BoundaryMode", "DeviceCapability", "Layout", "boundary_mode"]

_SPIRV = (
    "atomic_float atomic_float16 atomic_float16_add atomic_float16_minmax atomic_float64 atomic_float64_add "
    "atomic_float64_minmax atomic_float_add atomic_float_minmax atomic_int64 float16 float64 int16 int64 int8 "
    "no_integer_wrap_decoration non_semantic_info physical_storage_buffer shader_clock subgroup_arithmetic subgroup_ballot "
    "subgroup_basic subgroup_vote variable_ptr"
)


class DeviceCapability:
    """Names of SPIR-V device capabilities."""

    spirv_version_1_3 = "spirv_version=66304"
    spirv_version_1_4 = "spirv_version=66560"
    spirv_version_1_5 = "spirv_version=66816"
    vars().update({f"spirv_has_{name}": f"spirv_has_{name}" for name in _SPIRV.split()})


def __getattr__(name: str) -> object:
    if name in ("AutodiffMode", "Format", "SNodeGradType"):
        return getattr(_enums, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def boundary_mode(boundary: str) -> BoundaryMode:
    """The enumerator of a name.

    Args:
        boundary: "unsafe" or "clamp".

    Raises:
        ValueError: another name.
    """
    if boundary == "unsafe":
        return BoundaryMode.UNSAFE
    if boundary == "clamp":
        return BoundaryMode.CLAMP
    raise ValueError(f"Invalid boundary argument: {boundary}. Valid options: 'unsafe', 'clamp'")
