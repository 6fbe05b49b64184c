"""Enumerations shared by Python and native code; members' values are part of the native contract.

Making an enumeration costs about as much as importing a module, so only those that every program
needs are made at once.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Any

_OF_NUMBERS = tuple("bcdeEfFgGnoxX%")


class _Named(IntEnum):
    """Numbers that print as `Arch.x64` everywhere, in lists too. Mind that `Arch.x64` is 0."""

    def __str__(self) -> str:
        return f"{type(self).__name__}.{self._name_}"

    __repr__ = __str__

    def __format__(self, spec: str) -> str:
        return format(int(self) if spec[-1:] in _OF_NUMBERS else str(self), spec)


class Arch(_Named):
    """Where kernels run."""

    x64 = 0
    arm64 = 1
    js = 2
    python = 3
    cuda = 4
    metal = 5
    opencl = 6
    amdgpu = 7
    vulkan = 8


class Layout(_Named):
    """Whether the components of a vector lie together (AOS) or apart (SOA)."""

    AOS = 0
    SOA = 1
    NULL = 2


class BoundaryMode(_Named):
    """What happens to an index outside of a view."""

    UNSAFE = 0
    CLAMP = 1


_LATER = {
    "Extension": "sparse quant mesh quant_basic data64 adstack bls assertion extfunc",
    "SNodeType": "root dense dynamic pointer bitmasked hash place bit_struct quant_array undefined",
    "AutodiffMode": "FORWARD REVERSE NONE VALIDATION",
    "SNodeGradType": "PRIMAL ADJOINT DUAL ADJOINT_CHECKBIT",
    "Format": "unknown r8 rg8 rgba8 rgba8srgb bgra8 bgra8srgb r8u rg8u rgba8u r8i rg8i rgba8i r16 rg16 "
    "rgb16 rgba16 r16u rg16u rgb16u rgba16u r16i rg16i rgb16i rgba16i r16f rg16f rgb16f rgba16f r32u "
    "rg32u rgb32u rgba32u r32i rg32i rgb32i rgba32i r32f rg32f rgb32f rgba32f depth16 depth24stencil8 "
    "depth32f",
}

_DOCS = {
    "Extension": "Features that not every architecture has.",
    "SNodeType": "Kinds of nodes of field trees.",
    "AutodiffMode": "Which derivative a kernel computes.",
    "SNodeGradType": "What a field holds: values, gradients, tangents, or marks of what was read.",
    "Format": "Formats of image texels.",
}

if TYPE_CHECKING:
    from enum import EnumMeta

    class _Members(EnumMeta):
        def __getattr__(cls, name: str) -> Any: ...

    class Extension(_Named, metaclass=_Members): ...

    class SNodeType(_Named, metaclass=_Members): ...

    class AutodiffMode(_Named, metaclass=_Members): ...

    class SNodeGradType(_Named, metaclass=_Members): ...

    class Format(_Named, metaclass=_Members): ...


def __getattr__(name: str) -> Any:
    members = _LATER.get(name)
    if members is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    make: Any = _Named
    made = globals()[name] = make(name, members.split(), start=0, module=__name__)
    made.__doc__ = _DOCS[name]
    return made


# What this build has, and of targets that it has no backend for what the chapter on options says. A
# feature that lands adds its word here.
_EXTENSIONS = {
    Arch.x64: "adstack data64 assertion sparse quant mesh quant_basic",
    Arch.arm64: "adstack data64 assertion sparse quant mesh quant_basic",
    Arch.cuda: "adstack data64 assertion sparse quant mesh quant_basic bls",
    Arch.amdgpu: "quant quant_basic data64 adstack assertion",
    Arch.metal: "adstack",
    Arch.vulkan: "adstack",
}


def is_extension_supported(arch: Arch, extension: Any) -> bool:
    """Whether an architecture has an extension."""
    if not isinstance(arch, Arch) or type(extension).__name__ != "Extension":
        raise TypeError(
            f"an architecture and a member of qd.extension are expected, got {extension!r}"
        )
    return extension.name in _EXTENSIONS.get(arch, "").split()
